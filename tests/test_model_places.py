"""Where a model is looked for: home folders, the cache of Hugging Face, names of its hub, and prefixes of wrappers."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import symcircuits as sc
from symcircuits.loaders import from_arrays
from symcircuits.loaders.by_path import ModelFile
from symcircuits.loaders.strictjson import strict_json
from symcircuits.work.files import user_path, write_text

NAME = "tl_plain_s0"


@pytest.fixture
def home(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with a model in it."""
    shutil.copytree(data / NAME, tmp_path / NAME)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    return tmp_path


# -------------------------------------------------------------------------------------------- home folders
def test_the_home_folder_in_every_path(home: Path) -> None:
    model = sc.load(f"~/{NAME}")
    assert model.name == NAME
    assert sc.load(Path(f"~/{NAME}/model.safetensors")).name == NAME
    assert sc.compare_with_reference(model, f"~/{NAME}/reference.npz").ok
    write_text("~/prompts.txt", "1 2\n3 4\n")
    write_text("~/labels.txt", "\n".join(f"t{i}" for i in range(model.d_vocab)))
    assert (home / "prompts.txt").is_file()
    found = sc.explain_many(f"~/{NAME}", "~/prompts.txt").labelled("~/labels.txt")
    assert found.ok, found
    assert sc.explain(model, [1, 2]).labelled("~/labels.txt").ok
    sc.logits(model.architecture).export("~/terms.csv")
    assert (home / "terms.csv").is_file()
    assert ModelFile.at(f"~/{NAME}").path == str((home / NAME).resolve())
    assert not (Path.cwd() / "~").exists()


def test_the_home_folder_on_the_command_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from symcircuits.cli.main import main

    np.save(home / "probe.npy", np.ones((1, sc.load(home / NAME).d_model)))
    code = main(["explain", f"~/{NAME}", "--tokens", "1,2", "--readout", "probe=~/probe.npy", "--html", "~/page.html"])
    assert (code, capsys.readouterr().err.count("error")) == (0, 0)
    assert (home / "page.html").is_file()


def test_a_user_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="no-such-user-here/m: the home folder of this user is not known"):
        user_path("~no-such-user-here/m")


# ------------------------------------------------------------------------------- the cache of Hugging Face
def cache(data: Path, folder: Path, snapshots: list[str], main: str | None) -> Path:
    """The folder of a model in the cache; every snapshot has other weights."""
    place = folder / "models--org--tiny"
    for i, name in enumerate(snapshots):
        shutil.copytree(data / ("tl_plain_s0", "tl_bias_s1")[i], place / "snapshots" / name)
    if main is not None:
        (place / "refs").mkdir(parents=True)
        (place / "refs" / "main").write_text(main)
    return place


@pytest.mark.parametrize(("main", "expected"), [("a1", "tl_plain_s0"), ("b2", "tl_bias_s1"), ("b2\n", "tl_bias_s1")])
def test_the_snapshot_that_main_names(data: Path, tmp_path: Path, main: str, expected: str) -> None:
    model, right = sc.load(cache(data, tmp_path, ["a1", "b2"], main)), sc.load(data / expected)
    assert np.array_equal(model.run([1, 2]).logits, right.run([1, 2]).logits)
    assert model.name == "tiny"


def test_the_only_snapshot(data: Path, tmp_path: Path) -> None:
    place = cache(data, tmp_path, ["a1"], None)
    assert sc.load(place).architecture == sc.load(data / NAME).architecture
    assert sc.load(place / "snapshots" / "a1").name == "tiny"
    assert ModelFile.at(place).model().name == "tiny"


@pytest.mark.parametrize(
    ("snapshots", "main", "message"),
    [
        (
            ["a1", "b2"],
            None,
            r"it holds 2 snapshots \(a1, b2\), and there is no refs/main that names one; give the folder",
        ),
        (["a1"], "c3", r"it holds 1 snapshots \(a1\), and refs/main names 'c3', which is not there"),
    ],
)
def test_a_snapshot_that_cannot_be_told(
    data: Path, tmp_path: Path, snapshots: list[str], main: str | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        sc.load(cache(data, tmp_path, snapshots, main))


def test_the_file_of_a_snapshot_is_a_link(data: Path, tmp_path: Path) -> None:
    """As the cache has it: its config stands beside the link, and not beside what the link leads to."""
    place = cache(data, tmp_path, ["a1"], "a1")
    file = place / "snapshots" / "a1" / "model.safetensors"
    (place / "blobs").mkdir()
    file.rename(place / "blobs" / "0123")
    file.symlink_to(place / "blobs" / "0123")
    assert ModelFile.at(file).model().name == sc.load(place).name == "tiny"


# --------------------------------------------------------------------------------------- names of the hub
@pytest.mark.parametrize("name", ["gpt2", "openai-community/gpt2"])
def test_the_name_of_a_hub_says_what_saves_the_model(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="there is no such file or folder; a model of that name") as fault:
        sc.load(name)
    lines = f'AutoModelForCausalLM.from_pretrained("{name}").save_pretrained("{name}")'
    assert str(fault.value).endswith(f"is saved here by: from transformers import AutoModelForCausalLM; {lines}")


@pytest.mark.parametrize("name", ["no/such/folder", "./gpt2", "model.safetensors", "a b", "..", "/gpt2", "x.npz"])
def test_what_is_no_name_of_a_hub(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^[^;]*$"):
        sc.load(name)


# -------------------------------------------------------------------------------------- names of what wraps
@pytest.mark.parametrize(
    "wrap",
    [
        lambda n: f"_orig_mod.{n}",
        lambda n: f"module.{n}",
        lambda n: f"module._orig_mod.{n}",
        lambda n: f"_orig_mod.module.{n}",
        lambda n: f"module.module.{n}",
        lambda n: n.replace("blocks.0.", "blocks.0._orig_mod."),
        lambda n: n.replace("blocks.0.", "blocks.0._checkpoint_wrapped_module."),
        lambda n: f"_fsdp_wrapped_module.{n}",
    ],
)
def test_prefixes_of_wrappers(data: Path, tmp_path: Path, wrap: Any) -> None:
    for name in ("tl_bias_s1", "hf_gpt2", "hf_llama"):
        stored, config = load_file(data / name / "model.safetensors"), data / name / "config.json"
        wrapped = {wrap(n): w for n, w in stored.items()}
        right, found = sc.load(data / name), from_arrays(wrapped, strict_json(config.read_text()))
        assert np.array_equal(found.run([1, 2]).logits, right.run([1, 2]).logits)
        changed = wrapped.keys() != stored.keys()
        assert changed == any("without the prefix of a wrapper" in note for note in found.notes)
        (tmp_path / name).mkdir()
        save_file(wrapped, tmp_path / name / "model.safetensors")
        shutil.copy(config, tmp_path / name)
        assert np.array_equal(sc.load(tmp_path / name).run([1, 2]).logits, right.run([1, 2]).logits)


def test_two_weights_of_one_name(data: Path) -> None:
    weights = load_file(data / NAME / "model.safetensors")
    config = strict_json((data / NAME / "config.json").read_text())
    with pytest.raises(ValueError, match=r"and another weight are both embed\.W_E without the prefix"):
        from_arrays({**weights, "_orig_mod.embed.W_E": weights["embed.W_E"]}, config)
    with pytest.raises(ValueError, match=r"that it does not use: module\.embed\.W_E"):  # not before all names
        from_arrays({**weights, "module.embed.W_E": weights["embed.W_E"]}, config)
