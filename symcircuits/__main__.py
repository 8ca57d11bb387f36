"""``python -m symcircuits``."""

from symcircuits.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
