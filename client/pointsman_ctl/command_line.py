"""The command line: shared options, commands by task, and how a run ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import click

from pointsman.names import printable
from pointsman_client import PointsmanError
from pointsman_ctl import __version__
from pointsman_ctl.commands import (
    broker_commands,
    change_commands,
    diff_command,
    doctor_command,
    drain_broker_command,
    group_commands,
    guard_commands,
    kv_commands,
    node_commands,
    offset_commands,
    past_commands,
    pin_commands,
    queue_commands,
    route_commands,
    top_command,
    wait_command,
    watch_command,
    why_command,
)
from pointsman_ctl.options.access_options import ACCESS_OPTIONS, access_options, read_access
from pointsman_ctl.options.command_options import (
    OUTPUT,
    TIMEOUT,
    NoCommandError,
    add_shared_options,
    read_name_servers,
    read_seconds,
)
from pointsman_ctl.options.invocation import DEFAULT_TIMEOUT_SECONDS, Invocation
from pointsman_ctl.output.error_report import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    ErrorReport,
    exit_code_of,
    to_error_report,
)

DEFAULT_NAME_SERVER = "127.0.0.1:9876"


class SharedOptions(click.Command):
    """A command whose help lists the options of the program."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the program, those for access separately."""
        records: dict[bool, list[tuple[str, str]]] = {False: [], True: []}
        root = ctx.find_root()
        for param in root.command.get_params(root):
            if record := param.get_help_record(root):
                records[param.name in ACCESS_OPTIONS].append(record)
        for heading, for_access in (("Options", False), ("TLS, tokens and accounts", True)):
            with formatter.section(heading):
                formatter.write_dl(records[for_access])


@click.command(cls=SharedOptions)
@click.pass_context
def options(ctx: click.Context) -> None:
    """List the options of all commands, and exit codes.

    Options go before the command; --namesrv, --output and --timeout also after it, where `wait` has its own --timeout.
    An option overrides its environment variable.

    `route`, `topics`, `clusters` and `watch` query the first name server in the list that responds. All others, and
    `route --at`, query or change every name server in the list, because name servers share nothing. Commands for
    consumer groups query the agents that the name servers know; `groups`, `group` and `offsets` query RocketMQ brokers
    themselves. With rocketmq:// addresses only these three, `route`, `topics` and `clusters` work.

    \b
    Exit codes:
      0    success
      1    failed, not found, one of several servers failed, or a broker is
           not counted
      2    wrong usage
      3    wait: timed out; drain-broker: drained, but a wait timed out or
           messages are unread
      130  Ctrl-C

    JSON of failures and warnings, on standard error: {error} or {warning}, each with code, message, hint and
    servers[].{addr, message}. A server that failed among others is {addr, error} in the output.

    \b
    Examples:
      pointsmanctl --namesrv ns1:9876,ns2:9876 brokers
      pointsmanctl brokers --output json | jq '.nodes[].brokers[].state'
      pointsmanctl --timeout 10 diff ns1:9876 ns2:9876
    """
    click.echo(ctx.get_help())


TASKS: tuple[tuple[str, tuple[click.Command, ...]], ...] = (
    (
        "Topics and brokers",
        (
            doctor_command.doctor,
            broker_commands.brokers,
            why_command.why,
            past_commands.events,
            broker_commands.flapping,
            route_commands.clusters,
            route_commands.topics,
            route_commands.route,
            watch_command.watch,
            wait_command.wait,
            broker_commands.watchers,
            top_command.top,
        ),
    ),
    (
        "Consumer groups",
        (
            group_commands.groups,
            group_commands.group,
            queue_commands.queues,
            offset_commands.offsets,
            offset_commands.locks,
            pin_commands.pin,
            pin_commands.unpin,
        ),
    ),
    (
        "Maintenance and outages",
        (
            drain_broker_command.drain_broker,
            guard_commands.maintenance,
            change_commands.wipe_write_perm,
            change_commands.add_write_perm,
            change_commands.evict,
            guard_commands.guard,
        ),
    ),
    (
        "Name servers",
        (node_commands.health, node_commands.info, diff_command.diff, past_commands.changes, change_commands.drain),
    ),
    ("Configuration", (kv_commands.order_topic, kv_commands.kv, change_commands.delete_topic)),
)
"""In the order of the help."""


class CommandsByTask(click.Group):
    """A group whose help lists the commands by task, without blank lines, so that it fits on a screen."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of each task; the command ``options`` shows the options."""
        del ctx
        width = max(len(name) for name in self.commands)
        for task, commands in TASKS:
            formatter.write_heading(task)
            with formatter.indentation():
                limit = formatter.width - width - 4
                rows = [((command.name or "").ljust(width), command.get_short_help_str(limit)) for command in commands]
                formatter.write_dl(rows)
        formatter.write_text("Exit codes: 0 done, 1 failed, 2 usage, 3 timeout; see `pointsmanctl options`.")


@click.group(
    cls=CommandsByTask,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.option(
    "--namesrv",
    callback=read_name_servers,
    metavar="HOST:PORT[,...]",
    envvar="POINTSMAN_NAMESRV",
    default=DEFAULT_NAME_SERVER,
    show_default=True,
    show_envvar=True,
    help="Name servers; RocketMQ's as rocketmq://HOST:PORT.",
)
@click.option("--output", "-o", type=OUTPUT, default="table", show_default=True, help="Output format.")
@click.option(
    "--timeout",
    type=TIMEOUT,
    callback=read_seconds,
    default=DEFAULT_TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Timeout per server.",
)
@access_options
@click.version_option(__version__, prog_name="pointsmanctl", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, /, namesrv: tuple[str, ...], output: str, timeout: float, **access: Any) -> None:  # noqa: ANN401  # click's
    """\b
    Inspect and administer name servers, brokers and consumer groups.
    Examples:  pointsmanctl --namesrv ns1:9876,ns2:9876 brokers
    """
    ctx.obj = Invocation(namesrv, output, timeout, read_access(access))


for _, _commands in TASKS:
    for _command in _commands:
        cli.add_command(_command)
        add_shared_options(_command)
cli.add_command(options)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    output = _requested_output(arguments)
    try:
        code = cli.main(args=list(arguments) or ["--help"], prog_name="pointsmanctl", standalone_mode=False)
    except click.Abort:
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        click.echo(_usage(error, output), err=True)
        return EXIT_USAGE
    except PointsmanError as error:
        click.echo(to_error_report(error).render(output), err=True)
        return exit_code_of(error)
    return code if isinstance(code, int) else EXIT_OK


def _usage(error: click.ClickException, output: str) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, NoCommandError) and context and output != "json":
        return context.get_help()
    message = error.format_message()
    if isinstance(error, click.NoSuchOption) and "serv" in error.option_name:
        # click would suggest --version.
        message = f"No such option {error.option_name!r}. Did you mean --namesrv?"
    path = context.command_path if context else "pointsmanctl"
    return ErrorReport("USAGE", printable(message), f"see `{path} --help`").render(output)


def _requested_output(arguments: Sequence[str]) -> str:
    # Usage errors occur before click has read the options.
    pairs = set(pairwise(arguments))
    is_json = {("-o", "json"), ("--output", "json")} & pairs or {"-ojson", "--output=json"} & set(arguments)
    return "json" if is_json else "table"
