"""All benchmarks, one after the other, each in a process of its own: `python tests/benchmarks [--only terms,values]`.

First the machine, then each table as the script prints it, with the seconds that it took. BLAS has one thread, so that
CPU seconds compare; peers that are not installed are said to be absent by the script that would ask them. What a
script ends with when it fails is printed, the others still run, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
# In the order in which they are run; what each is asked for.
SCRIPTS = {
    "values": ["--size", "deep"],
    "reductions": [],
    "terms": ["--rounds", "1"],
    "deep": ["--small"],
    "accuracy": ["--seeds", "6"],
    "tensors": ["--size", "deep", "--rounds", "3"],
    "gpt2": [],
}


def main() -> int:
    """Run them; 1 where one fails."""
    parser = argparse.ArgumentParser(prog="python tests/benchmarks", description="all benchmarks, one after the other")
    parser.add_argument("--only", metavar="values,terms", help=f"some of {', '.join(SCRIPTS)}")
    only = parser.parse_args().only
    chosen = list(SCRIPTS) if only is None else only.split(",")
    for name in chosen:
        if name not in SCRIPTS:
            parser.error(f"there is no benchmark {name!r}; they are {', '.join(SCRIPTS)}")
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}")
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    failed = []
    for name in chosen:
        print(f"\n== {name}", flush=True)
        start = time.perf_counter()
        command = [sys.executable, str(HERE / f"bench_{name}.py"), *SCRIPTS[name]]
        code = subprocess.run(command, env={**os.environ, **one}, check=False).returncode
        print(f"({time.perf_counter() - start:.0f} s" + (f"; it failed with exit code {code})" if code else ")"))
        failed += [name] if code else []
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
