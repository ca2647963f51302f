"""``python -m spark_jobs`` is the command ``pointsman-report``."""

from __future__ import annotations

import sys

from spark_jobs.cli import main as _main


def main() -> None:
    """Run the command and exit with its code."""
    sys.exit(_main())


if __name__ == "__main__":
    main()
