"""``python -m pointsman_report`` is the command ``pointsman-report``."""

from __future__ import annotations

import sys

from pointsman_report.cli import main as _main


def main() -> None:
    """Run the command and exit with its code."""
    sys.exit(_main())


if __name__ == "__main__":
    main()
