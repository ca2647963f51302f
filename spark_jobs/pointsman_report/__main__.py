"""``python -m pointsman_report`` is the command ``pointsman-report``."""

from __future__ import annotations

import sys

from pointsman_report.cli import main

if __name__ == "__main__":
    sys.exit(main())
