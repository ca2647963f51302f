"""The main file that ``spark-submit`` wants: the command ``pointsman-report`` from the zip beside it."""

from __future__ import annotations

import sys

from pointsman_report.cli import main

if __name__ == "__main__":
    sys.exit(main())
