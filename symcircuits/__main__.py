"""``python -m symcircuits``."""

from symcircuits.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
