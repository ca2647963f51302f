"""The main file for ``spark-submit``: the command ``pointsman-report`` from the zip next to it."""

from __future__ import annotations

import sys

from pointsman_report.cli import main

if __name__ == "__main__":
    sys.exit(main())
