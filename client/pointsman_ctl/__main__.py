"""Entry point of ``pointsmanctl``; with an error that names the missing extra."""

from __future__ import annotations

import sys
from importlib.util import find_spec

EXIT_USAGE = 2


def main() -> int:
    """Run the command line and return its exit code."""
    if any(find_spec(name) is None for name in ("click", "rich")):
        print("pointsmanctl needs click and rich: pip install 'pointsman-client[cli]'", file=sys.stderr)
        return EXIT_USAGE
    from pointsman_ctl.command_line import run  # noqa: PLC0415  # imports click

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
