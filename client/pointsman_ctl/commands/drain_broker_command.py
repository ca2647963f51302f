"""The command ``drain-broker``: take a broker out of service through its agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable

import click
import grpc
from google.protobuf.duration_pb2 import Duration
from rich.console import RenderableType
from rich.text import Text

from pointsman.names import printable
from pointsman.v1 import agent_service_pb2 as wire
from pointsman.wire.json_document import enum_name, to_document
from pointsman.wire.operator_texts import duration_text
from pointsman.wire.wire_time import seconds_of
from pointsman_ctl.commands.agent_round import AgentChoice, agent_round, read_agent_addrs, warn_of_name_servers
from pointsman_ctl.options.command_options import (
    CommandT,
    ReplicaTarget,
    by_option,
    confirm,
    read_duration,
    read_replica_target,
    yes_option,
)
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.name_completion import complete_replicas
from pointsman_ctl.output.error_report import EXIT_OK, EXIT_TIMED_OUT, ErrorReport
from pointsman_ctl.output.output_layout import ALARM, WARNING, show
from pointsman_ctl.servers.agent_queries import AgentServer
from pointsman_ctl.servers.found_agents import Agent
from pointsman_ctl.servers.server_calls import deadline_in

OTHER_STEPS_SECONDS = 120.0
"""Limit for all steps except the two waits, in case the agent hangs."""
_NAME_THE_AGENT = "give its agent with --agent HOST:PORT"
_STATE_STYLES = {"DONE": "green", "TIMED_OUT": WARNING, "FAILED": ALARM}
INCOMPLETE = frozenset({"TIMED_OUT", "FAILED"})


def _read_target(ctx: click.Context, param: click.Parameter, value: str | None) -> ReplicaTarget | None:
    return None if value is None else read_replica_target(ctx, param, value)


def _read_agent(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    return "" if value is None else read_agent_addrs(ctx, param, [value])[0]


def _seconds(name: str, default: str, *, longest: str, help: str) -> Callable[[CommandT], CommandT]:  # noqa: A002  # click's word
    def read(_ctx: click.Context, _param: click.Parameter, value: str) -> int:
        return read_duration(value, longest=longest)

    return click.option(name, default=default, show_default=True, callback=read, metavar="DURATION", help=help)


@click.command()
@click.argument(
    "broker", required=False, callback=_read_target, shell_complete=complete_replicas, metavar="[CLUSTER/BROKER/ID]"
)
@click.option(
    "--agent",
    "addr",
    callback=_read_agent,
    metavar="HOST:PORT",
    help="Drain the broker of this agent; no name server is queried.",
)
@_seconds("--quiet", "3s", longest="5m", help="Idle time after the last write or read (max 5m).")
@_seconds("--wait", "60s", longest="1h", help="Timeout for producers; then it continues (max 1h).")
@_seconds("--deadline", "10m", longest="24h", help="Timeout for consumers; then it continues (max 24h).")
@yes_option
@by_option
@pass_invocation
def drain_broker(
    invocation: Invocation, /, broker: ReplicaTarget | None, addr: str, yes: bool, by: str, **seconds: int
) -> int:
    """Take a broker out of service before you stop it.

    Its agent removes the broker's write permission at every name server, waits until producers have stopped and
    consumer groups have read all messages, moves the members to other brokers, and unregisters the broker. Each step is
    shown with the responses of the name servers and the unread messages of each group, retry queues included. Groups
    without a member are listed, not waited for.

    You must confirm (without a terminal: --yes). Ctrl-C before the last step reverts everything. The next start of the
    agent registers the broker again, writable: the drain also ends earlier wipes.

    Exits 0 when drained; 3 when drained but a wait timed out or messages are unread. Incomplete steps are listed on
    standard error.

    \b
    JSON: one object a line: agent, step, state, detail, elapsedSeconds,
          nameServers[].{addr, done, answer},
          groups[].{group, lag, retryLag, memberCount}, null if unknown

    \b
    Steps:  WIPE_WRITE_PERM, WAIT_FOR_PRODUCERS, WAIT_FOR_CONSUMERS, STOP_GROUPS,
            UNREGISTER; UNDO
    States: RUNNING, DONE, SKIPPED, TIMED_OUT, FAILED

    \b
    Examples:
      pointsmanctl drain-broker c1/broker-a/0 --yes
      pointsmanctl drain-broker --agent 10.0.0.1:9880 --deadline 1h --yes
    """
    if (broker is None) == (not addr):
        raise click.UsageError("give the broker as CLUSTER/BROKER/ID or by its --agent" + (", not both" * bool(addr)))
    what = f"broker {broker}" if broker else f"the broker of agent {addr}"
    confirm(f"Take {what} out of service and move its clients to other brokers?", yes=yes)
    request = wire.DrainRequest(
        quiet=Duration(seconds=seconds["quiet"]),
        producers_timeout=Duration(seconds=seconds["wait"]),
        consumers_timeout=Duration(seconds=seconds["deadline"]),
        by=by,
    )
    return asyncio.run(_drain(invocation, broker, addr, request))


async def _drain(invocation: Invocation, broker: ReplicaTarget | None, addr: str, request: wire.DrainRequest) -> int:
    if broker is not None:
        found = await _agent_of(invocation, broker)
        if isinstance(found, ErrorReport):
            return invocation.fail(found)
        addr = found.addr
    async with invocation.agent_connections() as to:
        return await _follow(invocation, to(addr), request, broker)


async def _agent_of(invocation: Invocation, broker: ReplicaTarget) -> Agent | ErrorReport:
    async with agent_round(invocation, AgentChoice(cluster=broker.cluster, replicas_too=True)) as asking:
        warn_of_name_servers(invocation, asking.name_servers)
        found = [agent for agent in asking.found.agents if str(broker) in agent.brokers]
        if len(found) == 1:
            return found[0]
        if found:
            where = ", ".join(agent.addr for agent in found)
            return ErrorReport(
                "AGENT_AMBIGUOUS", f"name servers report different agents for {broker}: {where}", _NAME_THE_AGENT
            )
        if str(broker) in asking.found.without:
            return ErrorReport("AGENT_UNKNOWN", f"agent address unknown for {broker}", _NAME_THE_AGENT)
        return ErrorReport(
            "BROKER_NOT_FOUND", f"{broker} is not in the routes", f"see `pointsmanctl brokers`; {_NAME_THE_AGENT}"
        )


async def _follow(
    invocation: Invocation, server: AgentServer, request: wire.DrainRequest, broker: ReplicaTarget | None
) -> int:
    """Drain, and show each step. Raises AgentFailedError or RequestRejectedError."""
    who = await server.call(
        server.agent.GetAgentInfo, wire.GetAgentInfoRequest(), deadline=deadline_in(invocation.timeout_seconds)
    )
    if broker is not None and who.HasField("identity"):
        of = who.identity
        name = printable(f"{of.cluster}/{of.broker_name}/{of.broker_id}")
        if name != str(broker):
            message = f"the agent at {server.addr} serves {name}, not {broker}: nothing was changed"
            return invocation.fail(ErrorReport("AGENT_OF_OTHER_BROKER", message, "see `pointsmanctl brokers`"))
    incomplete: list[str] = []
    code = EXIT_OK
    waits = request.quiet.seconds + request.producers_timeout.seconds + request.consumers_timeout.seconds
    seconds = waits + OTHER_STEPS_SECONDS
    call: grpc.aio.UnaryStreamCall[wire.DrainRequest, wire.DrainResponse] = server.agent.Drain(request, timeout=seconds)
    try:
        with server.errors():
            async for progress in call:
                if invocation.is_json:
                    click.echo(json.dumps({"agent": server.addr, **to_document(progress)}))
                else:
                    show(drain_parts(progress))
                if enum_name(progress, "state") in INCOMPLETE:
                    incomplete.append(outcome_text(progress))
                if is_late(progress):
                    code = EXIT_TIMED_OUT
    except asyncio.CancelledError:
        call.cancel()
        text = "drain aborted; the agent reverts it unless it has begun to unregister"
        invocation.warn("DRAIN_ABORTED", text, "see `pointsmanctl brokers`")
        raise
    if incomplete:
        invocation.warn("DRAIN_INCOMPLETE", f"drained, but {', '.join(incomplete)}", "see the output of that step")
    return code


def drain_parts(progress: wire.DrainResponse) -> Iterable[RenderableType]:
    """Show one step, and below it the responses of name servers and the unread messages of groups."""
    state = enum_name(progress, "state")
    line = Text(f"{duration_text(seconds_of(progress.elapsed)):>8}  {enum_name(progress, 'step'):<18} ")
    line.append(state, style=_STATE_STYLES.get(state, ""))
    if progress.detail:
        line.append(f": {printable(progress.detail)}")
    yield line
    for answer in progress.name_servers:
        text = printable(f"{answer.addr}: {answer.answer or ('done' if answer.done else 'not done')}")
        yield Text(f"{'':10}{text}", style="dim" if answer.done else ALARM)
    for group in progress.groups:
        yield Text(f"{'':10}{_unread_text(group)}", style=WARNING if _is_alone(group) else "")


def outcome_text(progress: wire.DrainResponse) -> str:
    """Describe an incomplete step: its state, and groups with unread messages."""
    unread = ", ".join(f"{printable(group.group)} {group.lag}" for group in progress.groups)
    outcome = f"{enum_name(progress, 'step')} {enum_name(progress, 'state')}"
    return f"{outcome} (unread: {unread})" if unread else outcome


def is_late(progress: wire.DrainResponse) -> bool:
    """Return whether a wait timed out or left messages unread."""
    is_unread = progress.step == wire.DRAIN_STEP_WAIT_FOR_CONSUMERS and progress.state == wire.DRAIN_STEP_STATE_FAILED
    return is_unread or progress.state == wire.DRAIN_STEP_STATE_TIMED_OUT


def _is_alone(group: wire.UnreadGroup) -> bool:
    return group.HasField("member_count") and not group.member_count


def _unread_text(group: wire.UnreadGroup) -> str:
    retry = f", {group.retry_lag} of them in retry queues" if group.retry_lag else ""
    members = f"members: {group.member_count}" if group.HasField("member_count") else "members unknown"
    if _is_alone(group):
        members = "no member: not waited for"
    return f"{printable(group.group)}: {group.lag} unread{retry}; {members}"
