"""The main file that ``spark-submit`` wants: the command ``pointsman-report`` from the zip beside it."""

from __future__ import annotations

from pointsman_report.__main__ import main

if __name__ == "__main__":
    main()
