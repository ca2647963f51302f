"""The command ``pointsman-report``: options, output and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from pointsman.config import ConfigError
from pointsman_report import __version__
from pointsman_report.commands import computing, history_queries, raw_history
from pointsman_report.commands.arguments import FAILED
from pointsman_report.report_errors import ReportError, one_line
from pointsman_report.spark_session import SparkUnavailableError


class ReportCommands(click.Group):
    """Commands whose errors are one line on standard error and exit code 2."""

    def invoke(self, ctx: click.Context) -> object:
        """Return the exit code of the command."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (ReportError, SparkUnavailableError) as error:
            return _failed(str(error))
        except ConfigError as error:
            return _failed("; ".join(error.problems))
        except ModuleNotFoundError as error:
            library = str(error.name).partition(".")[0]
            return _failed(f"{library} is missing: pip install pointsman-report")
        except BrokenPipeError:
            return _unread()
        except KeyboardInterrupt:
            return _failed("interrupted; the tables are as they were")
        except Exception as error:  # noqa: BLE001  # an uncaught error would exit 1, which means findings
            return _failed(one_line(error))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order of use, not alphabetically."""
        del ctx
        return list(self.commands)


@click.group(
    "pointsman-report",
    cls=ReportCommands,
    commands=[*computing.COMMANDS, *history_queries.COMMANDS, *raw_history.COMMANDS],
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="""\
\b
Exit codes:  0 no findings; 1 findings (a broker is flapping or dead, a cluster
             was not monitored, history was lost); 2 failed

`pointsman-report COMMAND --help` shows the options of a command.
""",
)
@click.version_option(__version__, prog_name="pointsman-report", message="%(prog)s %(version)s")
def cli() -> None:
    """Report from the name servers' history: which brokers went down, which are flapping, and why.

    \b
    Examples:
      every night
        pointsman-report nightly --history /var/lib/pointsman/history --warehouse /srv/warehouse
      every hour, to shorten the nightly run; every month, to keep the tables small
        pointsman-report ingest --history /var/lib/pointsman/history --warehouse /srv/warehouse
        pointsman-report compact --warehouse /srv/warehouse --before 2026-11-01
      after a gap, or with other parameters
        pointsman-report backfill --history HISTORY --warehouse /srv/warehouse --from 2026-11-01 --to 2026-11-20
      investigate an outage at 03:12
        pointsman-report route-at orders --at 2026-11-20T03:12Z --warehouse /srv/warehouse
        pointsman-report explain orders --at 2026-11-20T03:12Z --warehouse /srv/warehouse
        pointsman-report history c1/broker-a --days 30 --html broker-a.html --warehouse /srv/warehouse
      every week; compare with last week; try other thresholds
        pointsman-report week --warehouse /srv/warehouse
        pointsman-report compare 2026-11-13 2026-11-20 --warehouse /srv/warehouse
        pointsman-report simulate --warehouse /srv/warehouse --set flapping.suppress_above=2000 --from ... --to ...
      RocketMQ's own name servers
        pointsman-report import rocketmq-log namesrv.log --ids rocketmq-1:9876 --node rocketmq-1 --history mq/history
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; every error is one line on standard error."""
    try:
        code = cli.main(args=arguments, prog_name=cli.name, standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        message = error.format_message()
        end = "" if message.endswith((".", "?")) else "."
        return _failed(f"{message}{end} See `{context.command_path if context else cli.name} --help`.")
    except click.Abort:
        return FAILED
    except BrokenPipeError:
        return _unread()
    return int(code)


def _unread() -> int:
    """End quietly: the reader of the output, such as ``head``, has enough."""
    # Python would complain when it flushes the rest at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


def _failed(text: str) -> int:
    click.echo(f"pointsman-report: {text}", err=True)
    return FAILED
