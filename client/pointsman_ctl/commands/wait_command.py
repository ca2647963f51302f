"""The command ``wait``: until every name server has a route, a broker's state or its own, or a time has passed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import click
from rich.text import Text

from pointsman.names import printable
from pointsman.v1 import broker_pb2
from pointsman.wire.json_document import Document, enum_name
from pointsman.wire.operator_texts import counted, duration_text
from pointsman_client import (
    AccessDeniedError,
    InvalidInputError,
    NameServersUnavailableError,
    RequestRejectedError,
    TopicNotFoundError,
)
from pointsman_ctl.options.command_options import read_duration, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.name_completion import complete_broker_names, complete_topics
from pointsman_ctl.output.error_report import (
    CONNECTION_REFUSED,
    EXIT_FAILED,
    EXIT_OK,
    EXIT_TIMED_OUT,
    ErrorReport,
    failure_sentence,
    failure_text,
    to_error_report,
)
from pointsman_ctl.output.output_layout import node_document
from pointsman_ctl.servers.name_servers import NameServer, name_servers
from pointsman_ctl.servers.server_calls import NodeResponse, Query, query_every

POLL_SECONDS = 0.5
MAX_WAIT = "24h"
GONE = "GONE"
STATES = ("UP", "SUSPECT", "PROVISIONAL", "PROTECTED", "OUT", GONE)
NOT_LISTENING = "no name server is listening there: check that it runs, its log, and --namesrv or POINTSMAN_NAMESRV"


@dataclass(frozen=True, slots=True)
class Seen:
    """What one name server has."""

    is_met: bool
    text: str


@dataclass(frozen=True, slots=True)
class Condition:
    """What is waited for."""

    text: str
    hint: str
    """What to do when it does not come."""
    check: Query[NameServer, Seen]


def _read_timeout(_ctx: click.Context, _param: click.Parameter, value: str) -> int:
    return read_duration(value, longest=MAX_WAIT)


def _read_broker(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    parts = () if value is None else tuple(value.split("/"))
    if len(parts) > 3 or (len(parts) == 3 and not (parts[2].isascii() and parts[2].isdigit())):
        raise click.BadParameter(f"broker must be BROKER, CLUSTER/BROKER or CLUSTER/BROKER/ID, got {value!r}")
    for part in parts[:2]:
        read_name(ctx, param, part)
    return parts


@click.command()
@click.option(
    "--route", "topic", callback=read_name, shell_complete=complete_topics, metavar="TOPIC", help="A broker is up."
)
@click.option(
    "--broker",
    callback=_read_broker,
    shell_complete=complete_broker_names,
    metavar="BROKER",
    help="All its replicas have the --state. Also CLUSTER/BROKER[/ID].",
)
@click.option(
    "--state",
    type=click.Choice(STATES, case_sensitive=False),
    metavar="STATE",
    help="With --broker.  [default: UP]",
)
@click.option("--ready", is_flag=True, help="The name servers are READY.")
@click.option(
    "--timeout",
    "seconds",
    default="30s",
    show_default=True,
    callback=_read_timeout,
    metavar="DURATION",
    help="Stop after this time, e.g. 90s or 5m (max 24h).",
)
@pass_invocation
def wait(
    invocation: Invocation, topic: str, broker: tuple[str, ...], state: str | None, seconds: int, *, ready: bool
) -> int:
    """Wait for a route, a broker's state, or READY name servers.

    For scripts, in place of a loop. The condition must hold at every name server in the list. What is missing is
    printed on standard error, and again when it changes. The limit for one query is the --timeout before the command.

    States: UP, SUSPECT, PROVISIONAL, PROTECTED, OUT as in `brokers`; GONE: not registered.

    Exits 0 when the condition holds; 3 if it does not within --timeout; 1 if no name server responds within --timeout,
    or immediately if access is denied.

    \b
    JSON: condition, isMet, elapsedSeconds, nodes[].{addr, isMet, seen}
          or {addr, error}

    \b
    Examples:
      pointsmanctl wait --route orders
      pointsmanctl wait --broker broker-a --state OUT --timeout 2m
      pointsmanctl --namesrv ns1:9876,ns2:9876 wait --ready --timeout 5m
    """
    if sum(map(bool, (topic, broker, ready))) != 1:
        raise click.UsageError("give one of --route TOPIC, --broker BROKER and --ready")
    if state and not broker:
        raise click.UsageError("--state needs --broker")
    if topic:
        condition = _route_condition(topic)
    else:
        condition = _broker_condition(broker, (state or "UP").upper()) if broker else _ready_condition()
    return asyncio.run(_wait(invocation, condition, seconds))


def _route_condition(topic: str) -> Condition:
    async def check(server: NameServer, deadline: float) -> Seen:
        try:
            route = await server.route(topic, deadline)
        except TopicNotFoundError:
            return Seen(False, f"no broker has registered {topic}")
        if route.queue_datas:
            return Seen(True, f"{counted(len(route.broker_datas), 'broker')} up")
        down = ", ".join(
            f"{each.identity.broker_name} {'OUT' if each.is_registered else GONE}" for each in route.absent_brokers
        )
        return Seen(False, f"no broker of {topic} is up: {printable(down)}")

    hint = "check the log of the broker's agent, and its [[topics.topic]]; see `pointsmanctl brokers`"
    return Condition(f"a route of topic {topic}", hint, check)


def _broker_condition(broker: tuple[str, ...], state: str) -> Condition:
    cluster, name = ("", broker[0]) if len(broker) == 1 else broker[:2]
    broker_id = int(broker[2]) if len(broker) == 3 else None

    async def check(server: NameServer, deadline: float) -> Seen:
        try:
            found = (await server.brokers(deadline, cluster=cluster, broker_name=name)).brokers
        except RequestRejectedError as refusal:
            if refusal.details.code != "CLUSTER_NOT_FOUND":
                raise
            found = ()
        states = [
            (f"{who.cluster}/{who.broker_name}/{who.broker_id}", enum_name(status, "state"))
            for status in found
            for who in (status.identity,)
            if broker_id in {None, who.broker_id}
        ]
        text = ", ".join(f"{each} is {now}" for each, now in states) or f"{'/'.join(broker)} is not registered"
        is_met = not states if state == GONE else bool(states) and all(now == state for _, now in states)
        return Seen(is_met, text)

    return Condition(f"state {state} of broker {'/'.join(broker)}", f"see `pointsmanctl why {name}`", check)


def _ready_condition() -> Condition:
    async def check(server: NameServer, deadline: float) -> Seen:
        info = await server.node_info(deadline)
        return Seen(info.state == broker_pb2.NODE_STATE_READY, enum_name(info, "state"))

    return Condition("state READY of the name servers", "see `pointsmanctl health`", check)


async def _wait(invocation: Invocation, condition: Condition, seconds: int) -> int:
    """Poll until the condition holds or the time has passed. Raises AccessDeniedError and InvalidInputError."""
    now = asyncio.get_running_loop().time
    started, last = now(), ""
    async with invocation.connections() as to:
        servers = name_servers(to, invocation.rocketmq_access)
        while True:
            left = started + seconds - now()
            nodes = await query_every(
                servers,
                invocation.name_servers,
                condition.check,
                max(min(invocation.timeout_seconds, left), min(1.0, invocation.timeout_seconds)),
            )
            for node in nodes:
                if isinstance(node.failure, (AccessDeniedError, InvalidInputError)):
                    raise node.failure
            if all(node.response is not None and node.response.is_met for node in nodes):
                _show(invocation, condition, nodes, elapsed=now() - started)
                return EXIT_OK
            if now() - started >= seconds:
                return _time_out(invocation, condition, nodes, seconds=seconds, elapsed=now() - started)
            missing = _missing_text(nodes)
            if missing != last:
                invocation.warn("WAITING", f"waiting up to {_limit(seconds)} for {condition.text}: {missing}")
                last = missing
            await asyncio.sleep(max(0.0, min(POLL_SECONDS, started + seconds - now())))


def _time_out(
    invocation: Invocation, condition: Condition, nodes: Sequence[NodeResponse[Seen]], *, seconds: int, elapsed: float
) -> int:
    """Show what the name servers had last, and what to do; return the exit code."""
    if invocation.is_json:
        _show(invocation, condition, nodes, elapsed=elapsed)
    message = f"timed out after {_limit(seconds)}, waiting for {condition.text}: {_missing_text(nodes)}"
    failures = [node.failure for node in nodes if node.failure is not None]
    hint = condition.hint
    if failures and len(failures) == len(nodes):
        is_refused = any(failure_text(failure) == CONNECTION_REFUSED for failure in failures)
        servers = {node.addr: failure_text(node.failure) for node in nodes if node.failure is not None}
        hint = NOT_LISTENING if is_refused else to_error_report(failures[0]).hint
        invocation.fail(ErrorReport(NameServersUnavailableError.code, message, hint, servers))
        return EXIT_FAILED
    invocation.fail(ErrorReport("WAIT_TIMED_OUT", message, hint))
    return EXIT_TIMED_OUT


def _missing_text(nodes: Sequence[NodeResponse[Seen]]) -> str:
    texts = []
    for node in nodes:
        if node.failure is not None:
            texts.append(failure_sentence(node.addr, node.failure))
        elif node.response is not None and not node.response.is_met:
            texts.append(f"at {node.addr} {node.response.text}")
    return ", ".join(texts)


def _limit(seconds: int) -> str:
    return f"{seconds}s" if seconds < 120 else duration_text(seconds)


def _show(invocation: Invocation, condition: Condition, nodes: Sequence[NodeResponse[Seen]], *, elapsed: float) -> None:
    is_met = all(node.response is not None and node.response.is_met for node in nodes)
    document: Document = {
        "condition": condition.text,
        "isMet": is_met,
        "elapsedSeconds": round(elapsed, 3),
        "nodes": [node_document(node, lambda seen: {"isMet": seen.is_met, "seen": seen.text}) for node in nodes],
    }
    seen = ", ".join(dict.fromkeys(node.response.text for node in nodes if node.response is not None))
    invocation.show(document, [Text(f"{condition.text}: {seen}, after {duration_text(elapsed)}")])
