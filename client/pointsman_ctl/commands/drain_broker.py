"""Take a broker out of service through its agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import click
import grpc
from google.protobuf.duration_pb2 import Duration

from pointsman.v1 import agent_service_pb2 as wire
from pointsman_client.errors import PointsmanError
from pointsman_client.rpc.agent_link import AgentLink, AgentLinks
from pointsman_ctl import layout
from pointsman_ctl.agent_asking import agent_round, complain, warn_of_name_servers
from pointsman_ctl.agent_choice import AgentChoice, read_agent_addrs
from pointsman_ctl.agent_failure import to_agent_complaint
from pointsman_ctl.agents import Agent
from pointsman_ctl.argument import CommandT, ReplicaTarget, by_option, read_replica_target, yes_option
from pointsman_ctl.confirmation import confirm
from pointsman_ctl.drain_view import (
    INCOMPLETE,
    drain_parts,
    is_late,
    outcome_words,
    step_state_words,
    to_drain_document,
)
from pointsman_ctl.duration import duration_problem, to_seconds
from pointsman_ctl.failure import EXIT_OK, EXIT_TIMED_OUT, Complaint
from pointsman_ctl.node import CLOSE_SECONDS
from pointsman_ctl.settings import Settings, pass_settings
from pointsman_ctl.wording import printable

OTHER_STEPS_SECONDS = 120.0
"""For all steps but the two waits; the agent bounds each, and an agent that hangs must not hold us."""


def _read_target(ctx: click.Context, param: click.Parameter, value: str | None) -> ReplicaTarget | None:
    return None if value is None else read_replica_target(ctx, param, value)


def _read_agent(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    return "" if value is None else read_agent_addrs(ctx, param, [value])[0]


def _seconds(name: str, default: str, *, longest: str, help: str) -> Callable[[CommandT], CommandT]:  # noqa: A002  # click's word
    def read(_ctx: click.Context, _param: click.Parameter, value: str) -> int:
        problem = duration_problem(value, longest=longest)
        if problem:
            raise click.BadParameter(problem)
        return to_seconds(value)

    return click.option(name, default=default, show_default=True, callback=read, metavar="DURATION", help=help)


@click.command()
@click.argument("broker", required=False, callback=_read_target, metavar="[CLUSTER/BROKER/ID]")
@click.option(
    "--agent", "addr", callback=_read_agent, metavar="HOST:PORT", help="The broker of this agent; asks no name server."
)
@_seconds("--quiet", "3s", longest="5m", help="Time without a write, and without an unread message; at most 5m.")
@_seconds("--wait", "60s", longest="1h", help="Longest wait for producers, then go on; at most 1h.")
@_seconds("--deadline", "10m", longest="24h", help="Longest wait for consumers, then go on; at most 24h.")
@yes_option
@by_option
@pass_settings
def drain_broker(
    settings: Settings, /, broker: ReplicaTarget | None, addr: str, yes: bool, by: str, **seconds: int
) -> int:
    """Take one broker out of service, before it is stopped.

    Its agent takes the write permission off its topics on every name server, waits until producers have stopped
    writing and consumer groups have read what is left, sends their members to other brokers, and unregisters it. Each
    step is shown with the name servers' responses, the wait for consumers with the unread messages of each group, retry
    queues included. A group without a member is named and not waited for. You are asked whether you mean it (without a
    terminal, --yes is needed). Ctrl-C before the last step undoes all. After it, the broker returns with the next
    start of its agent, with its full write permission: the drain ends each wipe, an operator's too.

    Exits 0 when the broker is drained; 3 when it is drained but a wait timed out or messages stay unread; what a step
    left undone is on standard error.

    \b
    JSON: one object a line: agent, step, state, detail, elapsedSeconds,
          nameServers[].{addr, done, answer},
          groups[].{group, lag, retryLag, members}; members is null if unknown

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
        raise click.UsageError("say which broker, as CLUSTER/BROKER/ID or by its --agent" + (", not both" * bool(addr)))
    what = f"broker {broker}" if broker else f"the broker of agent {addr}"
    confirm(f"Take {what} out of service, so that its clients go elsewhere?", yes=yes)
    request = wire.DrainRequest(
        quiet=Duration(seconds=seconds["quiet"]),
        producers_timeout=Duration(seconds=seconds["wait"]),
        consumers_timeout=Duration(seconds=seconds["deadline"]),
        by=by,
    )
    return asyncio.run(_drain(settings, broker, addr, request))


async def _drain(settings: Settings, broker: ReplicaTarget | None, addr: str, request: wire.DrainRequest) -> int:
    agent = Agent(addr)
    if broker is not None:
        found = await _agent_of(settings, broker)
        if isinstance(found, Complaint):
            return complain(settings, found)
        agent = found
    links = AgentLinks()
    try:
        return await _follow(settings, links.to(agent.addr), request, broker)
    except PointsmanError as failure:
        return complain(settings, to_agent_complaint(agent, failure))
    finally:
        await links.close(timeout_seconds=CLOSE_SECONDS)


async def _agent_of(settings: Settings, broker: ReplicaTarget) -> Agent | Complaint:
    async with agent_round(settings, AgentChoice(cluster=broker.cluster, replicas_too=True)) as asking:
        warn_of_name_servers(settings, asking.name_servers)
        found = [agent for agent in asking.found.agents if str(broker) in agent.brokers]
        if len(found) == 1:
            return found[0]
        if found:
            where = ", ".join(agent.addr for agent in found)
            return Complaint("AGENT_AMBIGUOUS", f"name servers tell several agents of {broker}: {where}", _SAY_WHICH)
        if str(broker) in asking.found.without:
            return Complaint("AGENT_UNKNOWN", f"no address of an agent is known for {broker}", _SAY_WHICH)
        return Complaint(
            "BROKER_NOT_FOUND", f"{broker} is not in the routes", f"see `pointsmanctl brokers`; {_SAY_WHICH}"
        )


_SAY_WHICH = "name its agent with --agent HOST:PORT"


async def _follow(settings: Settings, link: AgentLink, request: wire.DrainRequest, broker: ReplicaTarget | None) -> int:
    """Drain, and tell each step. Raises AgentFailedError or RequestRejectedError."""
    loop = asyncio.get_running_loop()
    who = await link.call(
        link.agent.GetAgentInfo, wire.GetAgentInfoRequest(), deadline=loop.time() + settings.timeout_seconds
    )
    if broker is not None and who.HasField("identity"):
        of = who.identity
        name = printable(f"{of.cluster}/{of.broker_name}/{of.broker_id}")
        if name != str(broker):
            message = f"the agent at {link.addr} is that of {name}, not of {broker}: nothing was changed"
            return complain(settings, Complaint("AGENT_OF_OTHER_BROKER", message, "see `pointsmanctl brokers`"))
    incomplete: list[str] = []
    code = EXIT_OK
    waits = request.quiet.seconds + request.producers_timeout.seconds + request.consumers_timeout.seconds
    seconds = waits + OTHER_STEPS_SECONDS
    call: grpc.aio.UnaryStreamCall[wire.DrainRequest, wire.DrainResponse] = link.agent.Drain(request, timeout=seconds)
    try:
        with link.errors():
            async for news in call:
                if settings.is_json:
                    click.echo(json.dumps(to_drain_document(link.addr, news)))
                else:
                    layout.show(drain_parts(news))
                if step_state_words(news.state) in INCOMPLETE:
                    incomplete.append(outcome_words(news))
                if is_late(news):
                    code = EXIT_TIMED_OUT
    except asyncio.CancelledError:
        call.cancel()
        words = "the drain is aborted: the agent undoes what was done, unless it had begun to unregister"
        settings.warn("DRAIN_ABORTED", words, "see `pointsmanctl brokers`")
        raise
    if incomplete:
        settings.warn("DRAIN_INCOMPLETE", f"drained, but {', '.join(incomplete)}", "see what that step said")
    return code


COMMANDS = (drain_broker,)
