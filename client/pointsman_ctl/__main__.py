"""Entry point of ``pointsmanctl``; with an error that names the missing extra."""

from __future__ import annotations

import sys

EXIT_USAGE = 2


def main() -> int:
    """Run the command line and return its exit code."""
    try:
        from pointsman_ctl.command_line import run  # noqa: PLC0415  so that a missing extra is reported
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"click", "rich"}:
            raise
        print("pointsmanctl needs click and rich: pip install 'pointsman-client[cli]'", file=sys.stderr)
        return EXIT_USAGE
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
