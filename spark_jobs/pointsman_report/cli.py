"""The command ``pointsman-report``: what a person types, and what comes back as text and exit code."""

from __future__ import annotations

import argparse
import sys

from pointsman_report import __version__
from pointsman_report.commands import (
    backfill,
    compact,
    compare,
    explain,
    import_,
    ingest,
    nightly,
    route_at,
    simulate,
    validate,
)
from pointsman_report.commands.command import FAILED, Command
from pointsman_report.errors import ReportError, one_line
from pointsman_report.parameters import ParametersError
from pointsman_report.session import SparkUnavailableError

_MODULES = (nightly, backfill, ingest, compact, compare, route_at, explain, simulate, validate, import_)
COMMANDS: dict[str, Command] = {module.COMMAND.name: module.COMMAND for module in _MODULES}

_DESCRIPTION = """\
From the name servers' history to a report: which brokers went down, which flap, and why.

every night
  pointsman-report nightly --history /var/lib/pointsman/history --warehouse /srv/warehouse
each hour, so that the night is short; each month, so that the tables stay handy
  pointsman-report ingest --history /var/lib/pointsman/history --warehouse /srv/warehouse
  pointsman-report compact --warehouse /srv/warehouse --before 2026-11-01
after a gap, or with other parameters
  pointsman-report backfill --history HISTORY --warehouse /srv/warehouse --from 2026-11-01 --to 2026-11-20
something happened at 03:12
  pointsman-report route-at orders --at 2026-11-20T03:12Z --warehouse /srv/warehouse
  pointsman-report explain orders --at 2026-11-20T03:12Z --warehouse /srv/warehouse
is it better than last week, and what if
  pointsman-report compare 2026-11-13 2026-11-20 --warehouse /srv/warehouse
  pointsman-report simulate --warehouse /srv/warehouse --set flapping.suppress_above=2000 --from ... --to ...
RocketMQ's own name servers
  pointsman-report import rocketmq-log namesrv.log --ids rocketmq-1:9876 --node rocketmq-1 --history mq/history

exit code: 0 nothing to look at; 1 findings (a broker flaps or is dead, nobody watched, history was lost); 2 failed.
pointsman-report COMMAND --help has the rest.
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pointsman-report", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"pointsman-report {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS.values():
        command.add_to(commands)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code; every fault is one line on standard error."""
    options = build_parser().parse_args(arguments)
    try:
        return COMMANDS[options.command].run(options)
    except (ReportError, SparkUnavailableError, ParametersError) as error:
        return _failed(str(error))
    except ModuleNotFoundError as error:
        library = str(error.name).partition(".")[0]
        return _failed(f"{library} is missing: pip install pointsman-report")
    except KeyboardInterrupt:
        return _failed("interrupted; the tables are as they were")
    except Exception as error:  # noqa: BLE001  # an uncaught error would exit 1, which means findings
        return _failed(one_line(error))


def _failed(text: str) -> int:
    print(f"pointsman-report: {text}", file=sys.stderr)
    return FAILED
