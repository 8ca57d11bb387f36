"""One command on a fresh machine: sets up an environment of its own, then does the job in it.

    python3 go.py demo    the main job (what follows is passed on to `symcircuits demo`)
    python3 go.py test    the tests (what follows is passed on to pytest: python3 go.py test -k walk)
    python3 go.py torch   the tests that use PyTorch and transformers, which they bring along
    python3 go.py lint    style and types
    python3 go.py wheel   the package as a wheel in build/dist, tried in an environment of its own
    python3 go.py docs    the documentation as a site, build/docs/index.html, and its notebooks run, build/notebooks
    python3 go.py prove   the path expansions of derivations/, claim by claim, proved by Coq, which must be installed
    python3 go.py mutate  are the tests good enough: small mistakes put into a copy of the package, one at a time

The environment is the folder .venv beside this file, or the one named by SYMCIRCUITS_ENV. It is
set up once; later runs need no network until pyproject.toml changes. Only the standard library is
used, and only syntax of Python 3.8, so that an older Python can say that it is too old.
"""

import hashlib
import json
import os
import re
import subprocess
import sys

OLDEST = (3, 11)
OLDEST_PIP = (22, 3)  # the first with `pip --python`
ROOT = os.path.dirname(os.path.abspath(__file__))

NOTEBOOKS = ["--output-dir", "build/notebooks", "docs/notebooks/*.ipynb"]  # where they go, which they are

# command: extras it needs, the folder it runs in (None: where the user stands), arguments for Python
COMMANDS = {
    "demo": ([], None, [["-m", "symcircuits", "demo"]]),
    "test": (["test"], ROOT, [["-m", "pytest", "-n", "auto", "--dist", "loadfile"]]),
    "torch": (
        ["test", "train", "oracle"],
        ROOT,
        [
            [
                "-m",
                "pytest",
                "tests/test_live_tensors.py",
                "tests/test_containers.py::test_a_real_file_of_torch",
                "tests/test_transformers.py",
                "tests/test_hub_models.py",
                "tests/test_live_transformers.py",
                "tests/test_zoo.py::test_checkpoints_are_written_while_it_trains",
            ]
        ],
    ),
    "mutate": (["test", "mutation"], ROOT, [[os.path.join("tests", "mutation", "mutate.py")]]),
    "docs": (
        ["docs"],
        ROOT,
        [
            ["-m", "sphinx", "-qW", "--keep-going", "-c", "docs", ".", "build/docs"],
            ["-m", "nbconvert", "--log-level", "WARN", "--to", "notebook", "--execute", *NOTEBOOKS],
        ],
    ),
    "prove": ([], ROOT, [[os.path.join("derivations", "prove.py")]]),
    "wheel": (["build"], ROOT, [["-m", "build", "--outdir", "build/dist"], [os.path.join("tests", "installed.py")]]),
    "lint": (["lint"], ROOT, [["-m", "ruff", "check"], ["-m", "ruff", "format", "--check"], ["-m", "mypy"]]),
}


class Failure(Exception):
    """Ends the run with one plain sentence."""


def main(arguments):
    if sys.version_info < OLDEST:
        raise Failure(
            f"symcircuits needs Python {dotted(OLDEST)} or newer, and this is Python {dotted(sys.version_info[:3])}."
        )
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if arguments else 2
    command, rest = arguments[0], arguments[1:]
    if command not in COMMANDS:
        raise Failure(f"there is no command '{command}'; the commands are {', '.join(COMMANDS)}.")
    extras, folder, jobs = COMMANDS[command]
    if rest and len(jobs) > 1:
        raise Failure(f"'{command}' takes no arguments, and got '{' '.join(rest)}'.")
    python = set_up(environment_folder(), extras)
    codes = [run([python, *job, *rest], folder) for job in jobs]
    return next((code for code in codes if code), 0)


def run(command, folder):
    """Runs a job with the terminal to itself and gives its exit code."""
    process = subprocess.Popen(command, cwd=folder)
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:  # the job was interrupted too, and says how it ends
            continue
        return code if code >= 0 else 128 - code


def set_up(env, extras):
    """The Python of the environment, with the package and these extras in it."""
    python = os.path.join(env, *(["Scripts", "python.exe"] if os.name == "nt" else ["bin", "python"]))
    stamp = read_stamp(env)
    key = fingerprint()
    usable = python_version(python) == dotted(sys.version_info[:2])
    if usable and stamp.get("key") == key and set(extras) <= set(stamp["extras"]):
        return python
    if not usable and not stamp and os.path.isdir(env) and os.listdir(env):
        raise Failure(
            f"the folder {env} is there, and holds no environment of Python {dotted(sys.version_info[:2])}; "
            "remove it, or name another in SYMCIRCUITS_ENV."
        )
    sys.stderr.write(f"Setting up {env} (once; this takes up to a minute and needs the network) ...\n")
    if not usable:
        create(env)
        stamp = {}
    extras = sorted(set(extras).union(stamp.get("extras", [])))
    install(env, python, extras)
    with open(stamp_path(env), "w", encoding="utf-8") as file:
        json.dump({"key": key, "extras": extras}, file)
    return python


def create(env):
    """An environment without pip: this works also where ensurepip is missing, as on a plain Debian."""
    code, output = capture([sys.executable, "-m", "venv", "--clear", "--without-pip", env])
    if code:
        raise Failure(
            f"could not make the environment {env} ({last_line(output)}); "
            "on Debian and Ubuntu `apt install python3-venv python3-pip` brings what is needed."
        )


def install(env, python, extras):
    what = ROOT + ("[" + ",".join(extras) + "]" if extras else "")
    code, output = capture([*pip_for(python), "install", "--disable-pip-version-check", "--editable", what])
    log = os.path.join(env, "setup.log")
    with open(log, "w", encoding="utf-8") as file:
        file.write(output)
    if code:
        raise Failure(f"could not install symcircuits into {env}: {last_line(output)} (all of it is in {log}).")


def pip_for(python):
    """The first of the ways to call pip for that environment that works here."""
    code, output = capture([sys.executable, "-m", "pip", "--version"])
    version = re.match(r"pip (\d+)\.(\d+)", output)
    if code == 0 and version and tuple(map(int, version.groups())) >= OLDEST_PIP:
        return [sys.executable, "-m", "pip", "--python", python]
    inside = [python, "-m", "pip"]
    if capture([*inside, "--version"])[0] == 0:
        return inside
    if capture([python, "-m", "ensurepip", "--default-pip"])[0] == 0:
        return inside
    raise Failure(
        f"{sys.executable} has neither pip {dotted(OLDEST_PIP)} or newer nor ensurepip; install one of them "
        "(on Debian and Ubuntu: `apt install python3-pip`) and run this again."
    )


def capture(command):
    """Exit code and output of a command; one that cannot be started has failed."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(os.environ, PIP_USER="0", PIP_REQUIRE_VIRTUALENV="0"),  # it is an environment of its own
        )
    except OSError as error:
        return 1, str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def last_line(output):
    """What pip or venv says went wrong: the last line that starts with ERROR, else the last line."""
    lines = [line.strip(" \t|\u2502") for line in output.splitlines()]
    lines = [line for line in lines if line] or ["it gave no reason"]
    errors = [line for line in lines if line.startswith(("ERROR:", "Error:"))]
    return (errors or lines)[-1].rstrip(".")


def fingerprint():
    """What an environment is made for: this pyproject.toml, in this folder, with this Python."""
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        parts = [file.read(), ROOT.encode("utf-8", "surrogateescape"), dotted(sys.version_info[:2]).encode("ascii")]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def environment_folder():
    named = os.environ.get("SYMCIRCUITS_ENV")
    return os.path.abspath(os.path.expanduser(named)) if named else os.path.join(ROOT, ".venv")


def stamp_path(env):
    return os.path.join(env, "symcircuits-setup.json")


def read_stamp(env):
    try:
        with open(stamp_path(env), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def python_version(python):
    """Its version as '3.11', or None where it does not run."""
    code, output = capture([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    return output.strip() if code == 0 else None


def dotted(version):
    return ".".join(map(str, version))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.stderr.write("\ngo.py: interrupted.\n")
        sys.exit(130)
    except (Failure, OSError) as problem:
        sys.stderr.write(f"go.py: {problem}\n")
        sys.exit(2)
