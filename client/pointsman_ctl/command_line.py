"""The command line: options that all commands share, its commands by subject, and how a run ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import click

from pointsman_client import PointsmanError
from pointsman_ctl import (
    __version__,
    broker_commands,
    change_commands,
    diff_command,
    drain_broker_command,
    group_commands,
    guard_commands,
    kv_commands,
    node_commands,
    offset_commands,
    route_commands,
    top_command,
    watch_command,
    why_command,
)
from pointsman_ctl.command_options import (
    ACCESS_OPTIONS,
    OUTPUT,
    TIMEOUT,
    NoCommandError,
    access_options,
    read_credentials,
    read_name_servers,
    read_seconds,
    take_after,
)
from pointsman_ctl.error_report import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, ErrorReport, exit_code_of, to_error_report
from pointsman_ctl.invocation import Invocation
from pointsman_ctl.operator_texts import printable

DEFAULT_NAME_SERVER = "127.0.0.1:9876"
SUBJECTS = (
    (
        "Look at topics and brokers",
        (*route_commands.COMMANDS, *broker_commands.COMMANDS[:1], *why_command.COMMANDS, *broker_commands.COMMANDS[1:]),
    ),
    ("Look on", (*watch_command.COMMANDS, *top_command.COMMANDS)),
    ("Consumer groups, at the agents", (*group_commands.COMMANDS, *offset_commands.COMMANDS)),
    ("Look at name servers", (*node_commands.COMMANDS, *diff_command.COMMANDS)),
    ("Protect a cluster", guard_commands.COMMANDS),
    ("Change", (*change_commands.COMMANDS, *drain_broker_command.COMMANDS, *kv_commands.COMMANDS)),
)
"""In the order of the help."""


class CommandsBySubject(click.Group):
    """Lists the commands under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those of access apart, and the commands."""
        records: dict[bool, list[tuple[str, str]]] = {False: [], True: []}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                records[param.name in ACCESS_OPTIONS].append(record)
        for heading, of_access in (("Options", False), ("TLS and tokens, for name servers and agents", True)):
            with formatter.section(heading):
                formatter.write_dl(records[of_access])
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a part for each subject."""
        del ctx
        width = max(len(name) for name in self.commands)
        for subject, commands in SUBJECTS:
            with formatter.section(subject):
                limit = formatter.width - width - 6
                rows = [((command.name or "").ljust(width), command.get_short_help_str(limit)) for command in commands]
                formatter.write_dl(rows)


@click.group(
    cls=CommandsBySubject,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="Exit codes: 0 fine, 1 failed or not found, 2 wrong usage, 130 Ctrl-C. "
    "`pointsmanctl COMMAND --help` has examples, and the keys of --output json.",
)
@click.option(
    "--namesrv",
    callback=read_name_servers,
    metavar="HOST:PORT[,...]",
    envvar="POINTSMAN_NAMESRV",
    default=DEFAULT_NAME_SERVER,
    show_default=True,
    show_envvar=True,
    help="Name servers to ask.",
)
@click.option("--output", "-o", type=OUTPUT, default="table", show_default=True, help="How to answer.")
@click.option(
    "--timeout",
    type=TIMEOUT,
    callback=read_seconds,
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for a server's whole answer.",
)
@access_options
@click.version_option(__version__, prog_name="pointsmanctl", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, /, namesrv: tuple[str, ...], output: str, timeout: float, **access: Any) -> None:  # noqa: ANN401  # click's
    """Ask Pointsman's name servers who is alive and who holds which queues, and tell them what operators decide.

    `route`, `topics`, `clusters` and `watch` ask the first server in the list that answers. All others ask, or tell,
    every one: name servers share nothing, and where they differ is often the news. --namesrv, --output and --timeout
    may stand after the command as well. What concerns consumer groups is asked of the brokers' agents, which the name
    servers know; one that fails stands in the answer in the same way.

    With --output json a failure is {error}, a remark {warning} on standard error, each with code, message, hint and
    servers[].{addr, message}; a server that failed among others stands in the answer as {addr, error}.

    \b
    Examples:
      pointsmanctl route orders
      pointsmanctl --namesrv ns1:9876,ns2:9876 brokers
      pointsmanctl --output json clusters | jq .
    """
    ctx.obj = Invocation(namesrv, output, timeout, read_credentials(access))


for _, _commands in SUBJECTS:
    for _command in _commands:
        cli.add_command(_command)
        take_after(_command)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    output = _asked_output(arguments)
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
        # By its letters alone it is nearest to --version.
        message = f"No such option {error.option_name!r}. Did you mean --namesrv?"
    path = context.command_path if context else "pointsmanctl"
    return ErrorReport("USAGE", printable(message), f"see `{path} --help`").render(output)


def _asked_output(arguments: Sequence[str]) -> str:
    # Read by hand: usage errors come before click has read the options.
    pairs = set(pairwise(arguments))
    is_json = {("-o", "json"), ("--output", "json")} & pairs or {"-ojson", "--output=json"} & set(arguments)
    return "json" if is_json else "table"
