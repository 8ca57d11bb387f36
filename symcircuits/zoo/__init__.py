"""Small trained models that ship with the package; `path` returns the folder of one of them."""

import pathlib

_NAMES = ("induction",)


def path(name: str = "induction") -> pathlib.Path:
    """The folder of the shipped model `name`: `config.json`, `model.safetensors` and `scores.json`."""
    if name not in _NAMES:
        raise ValueError(f"no shipped model is named {name!r}; the known names are: {', '.join(_NAMES)}")
    return pathlib.Path(__file__).parent / name
