"""The command line: shared options, commands by task, and how a run ends."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from importlib import import_module
from itertools import chain, pairwise
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

import pointsman_client
from pointsman.names import printable
from pointsman_ctl import __version__
from pointsman_ctl.options import DEFAULT_TIMEOUT_SECONDS
from pointsman_ctl.options.access_options import ACCESS_OPTIONS, access_options, read_access
from pointsman_ctl.options.command_options import (
    OUTPUT,
    TIMEOUT,
    NoCommandError,
    add_shared_options,
    read_name_servers,
    read_seconds,
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
    themselves, as `messages`, `dlq`, `producers` and `topic` do. With rocketmq:// addresses only these, `route`,
    `topics` and `clusters` work; `diff` compares with them. observe://HOST:PORT means the RocketMQ name servers
    that `pointsman-observe --listen` polls; commands that change nothing there work, as `brokers`, `why` and `doctor`.

    \b
    Exit codes:
      0    success
      1    failed, not found, one of several servers failed, or a broker is
           not counted
      2    wrong usage
      3    wait: timed out; drain-broker: drained, but a wait timed out or
           messages are unread; topic alter: a wait timed out
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


class Entry(NamedTuple):
    """A command in the help: its module is imported when it is used, so that no command waits for the others."""

    name: str
    module: str
    """In ``pointsman_ctl.commands``; it has the command as ``name``, with ``_`` for ``-``."""
    summary: str
    """The first sentence of its help."""

    def load(self) -> click.Command:
        """Import the command."""
        module = import_module(f"pointsman_ctl.commands.{self.module}")
        command: click.Command = getattr(module, self.name.replace("-", "_"))
        add_shared_options(command)
        return command


TASKS: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    (
        "Topics and brokers",
        (
            Entry("doctor", "doctor_command", "Find what is wrong, the worst first, and what to do."),
            Entry("brokers", "broker_commands", "Show every broker's state at each name server."),
            Entry("broker", "broker_status_command", "Show what brokers report of themselves."),
            Entry("why", "why_command", "Explain the state of BROKER and its past outages."),
            Entry("events", "past_commands", "Show events of the history, oldest first."),
            Entry("flapping", "broker_commands", "List flapping brokers, the worst first."),
            Entry("clusters", "route_commands", "List clusters and their brokers."),
            Entry("topics", "route_commands", "List topic names, one per line."),
            Entry("route", "route_commands", "Show the queues and brokers of TOPIC."),
            Entry("messages", "message_commands", "Look at messages, find, send and probe them."),
            Entry("producers", "producer_commands", "List the producers that are connected to TOPIC's brokers."),
            Entry("watch", "watch_command", "Print the route of each TOPIC, then every change."),
            Entry("wait", "wait_command", "Wait for a route, a broker's state, or READY name servers."),
            Entry("watchers", "broker_commands", "List the clients that watch TOPIC at each server."),
            Entry("top", "top_command", "Monitor name servers and brokers live."),
        ),
    ),
    (
        "Consumer groups",
        (
            Entry("groups", "group_commands", "List consumer groups."),
            Entry("group", "group_commands", "Show, change or delete a consumer group."),
            Entry("queues", "queue_commands", "List the busiest topics and queues, and what to do."),
            Entry("offsets", "offset_commands", "Show and reset committed offsets of consumer groups."),
            Entry("locks", "offset_commands", "Show the queue locks of consumers."),
            Entry("pin", "pin_commands", "Assign queues of GROUP to some members for a time."),
            Entry("unpin", "pin_commands", "End the pins of GROUP; all members share its queues again."),
            Entry("dlq", "dead_letter_commands", "Show and replay dead letters, which a group gave up on."),
        ),
    ),
    (
        "Maintenance and outages",
        (
            Entry("drain-broker", "drain_broker_command", "Take a broker out of service before you stop it."),
            Entry("maintenance", "guard_commands", "Schedule maintenance; departures are not outages."),
            Entry("wipe-write-perm", "change_commands", "Stop writes to BROKER: remove its write permission."),
            Entry("add-write-perm", "change_commands", "Allow writes to BROKER again."),
            Entry("evict", "change_commands", "Retire one broker that will not return."),
            Entry("guard", "guard_commands", "Show or set the expiry guard of a cluster."),
        ),
    ),
    (
        "Name servers",
        (
            Entry("health", "node_commands", "Check that every name server is READY; exit 1 if not."),
            Entry("info", "node_commands", "Show version, state and sizes of each name server."),
            Entry("diff", "diff_command", "Compare two name servers, or a client with name servers."),
            Entry("changes", "past_commands", "Show what operators changed, oldest first."),
            Entry("drain", "change_commands", "Move the clients of a name server to others."),
        ),
    ),
    (
        "Configuration",
        (
            Entry("topic", "topic_commands", "Show and change topics at their brokers."),
            Entry("order-topic", "kv_commands", "Show and change order topics."),
            Entry("kv", "kv_commands", "Show and change RocketMQ's key-value configuration."),
            Entry("nsaddr", "nsaddr_commands", "Show and change lists of name servers over HTTP."),
            Entry("settings", "settings_commands", "Copy operators' settings to a file or to name servers."),
            Entry("delete-topic", "change_commands", "Delete TOPIC from the name servers."),
        ),
    ),
)
"""In the order of the help."""


class CommandsOnDemand(MutableMapping[str, click.Command]):
    """Commands by name, each loaded when it is read."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            self._loaded[name] = self._entries[name].load()
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._loaded

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(chain(self._entries, self._loaded)))

    def __len__(self) -> int:
        return len(self._entries.keys() | self._loaded)


class CommandsByTask(click.Group):
    """A group whose help lists the commands by task, without blank lines, so that it fits on a screen."""

    def __init__(self, *args: Any, **settings: Any) -> None:  # noqa: ANN401  # click's
        super().__init__(*args, **settings)
        self.commands = CommandsOnDemand([entry for _, entries in TASKS for entry in entries])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of each task; the command ``options`` shows the options."""
        del ctx
        width = max(map(len, self.commands))
        for task, entries in TASKS:
            formatter.write_heading(task)
            with formatter.indentation():
                formatter.write_dl([(entry.name.ljust(width), entry.summary) for entry in entries])
        formatter.write_text("Exit codes: 0 done, 1 failed, 2 usage, 3 timeout; see `pointsmanctl options`.")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin so; no command is loaded."""
        summaries = {entry.name: entry.summary for _, entries in TASKS for entry in entries}
        summaries["options"] = options.get_short_help_str(limit=100)
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [
            *(CompletionItem(name, help=summaries[name]) for name in names),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]


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
    help="Name servers; RocketMQ's as rocketmq://HOST:PORT, an observer as observe://.",
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
    from pointsman_ctl.options.invocation import Invocation  # noqa: PLC0415  # gRPC: not for --version, help, usage

    ctx.obj = Invocation(namesrv, output, timeout, read_access(access))


cli.add_command(options)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        code = cli.main(args=list(arguments) or ["--help"], prog_name="pointsmanctl", standalone_mode=False)
    except Exception as error:  # noqa: BLE001  # raised again where it is not one that commands raise
        return _failed(error, _requested_output(arguments))
    return code if isinstance(code, int) else 0


def _failed(error: Exception, output: str) -> int:
    # With gRPC's statuses: a run that ends well without a server does not import them.
    from pointsman_ctl.output import error_report  # noqa: PLC0415

    if isinstance(error, click.Abort):
        return error_report.EXIT_INTERRUPTED
    if isinstance(error, click.ClickException):
        click.echo(_usage(error, output), err=True)
        return error_report.EXIT_USAGE
    if isinstance(error, pointsman_client.PointsmanError):
        click.echo(error_report.to_error_report(error).render(output), err=True)
        return error_report.exit_code_of(error)
    raise error


def _usage(error: click.ClickException, output: str) -> str:
    from pointsman_ctl.output.error_report import ErrorReport  # noqa: PLC0415

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
