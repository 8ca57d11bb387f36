"""Tries the wheel that ``python -m build`` made: installed in an environment of its own, away from the repository.

``python3 go.py wheel`` builds it and runs this file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

BUILT = Path(__file__).parent.parent / "build" / "dist"
PYTHON = """
import symcircuits as sc
from symcircuits.zoo import path
model = sc.load(path())
run = model.run([0, 7, 19, 3, 11, 26, 7, 19, 3, 11])
found = sc.evaluate(sc.logits(model), run).largest(1, sc.logit(26))
assert found.exact and found.terms[0].term.label == "embed -> L1H0", found
assert sc.verify(sc.attention_only((2, 2))).ok
assert sc.check("A[L0H0] @ X0 @ W_OV[L0H0].T @ W_U.T", model).right
assert "/site-packages/" in sc.__file__.replace("\\\\", "/"), sc.__file__
"""
# words of the command: exit code, and what is printed
COMMANDS = {
    ("--version",): (0, "symcircuits "),
    ("count", "--heads", "12,12"): (0, "169"),
    ("derive", "--heads", "2,2", "--format", "text"): (0, "Every step was checked"),
    ("verify", "--general"): (2, "derivations/general"),  # the proofs are not in the wheel: it says where they are
}


def newest() -> Path:
    """The wheel that was built last."""
    wheels = sorted(BUILT.glob("*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        raise SystemExit(f"there is no wheel in {BUILT}: python -m build --outdir {BUILT} makes one")
    return wheels[-1]


def main() -> None:
    wheel = newest()
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        programs = Path(folder) / ("Scripts" if sys.platform == "win32" else "bin")
        subprocess.run([programs / "python", "-m", "pip", "install", "--quiet", str(wheel)], check=True, cwd=folder)
        subprocess.run([programs / "python", "-c", PYTHON], check=True, cwd=folder)
        for words, (code, said) in COMMANDS.items():
            ran = subprocess.run([programs / "symcircuits", *words], cwd=folder, capture_output=True, text=True)
            assert ran.returncode == code, (words, ran.returncode, ran.stderr)
            assert said in ran.stdout + ran.stderr, (words, ran.stdout, ran.stderr)
    print(f"{wheel.name}: installed by itself it runs")


if __name__ == "__main__":
    main()
