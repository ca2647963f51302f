"""The command ``broker status``: what brokers report of themselves, through their agents or RocketMQ's directly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import click
from rich.console import RenderableType
from rich.text import Text

from pointsman.names import printable
from pointsman.v1 import agent_service_pb2 as wire
from pointsman.wire.json_document import Document, enum_name, to_document
from pointsman.wire.operator_texts import duration_text, rate_text
from pointsman_ctl.commands.agent_round import (
    AgentChoice,
    agent_and_broker_round,
    finish,
    of_agents,
    query_agents,
    to_agents_document,
)
from pointsman_ctl.options.command_options import CommandGroup
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.output.output_layout import WARNING, new_table
from pointsman_ctl.servers.agent_queries import AgentServer
from pointsman_ctl.servers.found_agents import Agent
from pointsman_ctl.servers.rocketmq_broker import RocketmqBroker
from pointsman_ctl.servers.runtime_info import runtime_of

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """What a broker reports; one of both."""

    info: wire.GetAgentInfoResponse | None = None
    """Its agent's."""
    runtime: Mapping[str, str] | None = None
    """A RocketMQ broker's own, by RocketMQ's names."""


@click.group(cls=CommandGroup)
def broker() -> None:
    """Show what brokers report of themselves.

    \b
    Examples:
      pointsmanctl broker status
      pointsmanctl broker status --cluster DefaultCluster
    """


@broker.command("status")
@of_agents
@pass_invocation
def broker_status(invocation: Invocation, choice: AgentChoice) -> int:
    """Show what brokers report of themselves.

    The agents of masters are queried, or with --all those of replicas, too; RocketMQ brokers have no agent and are
    queried themselves. `brokers` shows what the name servers know, `queues` the busiest queues.

    \b
    Redis brokers, at the agent's last probe:
      PROBE          PASSING, FAILING or UNKNOWN
      MEMORY, LIMIT  in use, and maxmemory; "-" is not known, or no limit
      PERSISTS       "no": after a restart it is empty
      REPLICAS, LAG  connected replicas, and what the furthest lacks; of a
                     replica itself: whether its link is up
      PUT/S          messages per second that arrive, at the last
                     measurement (30 s)
    RocketMQ brokers, as mqadmin's brokerStatus:
      PUT/S, GET/S   messages per second over the last 10 s
      DISK           used share of the disk with the commit log
      TODAY          messages stored since midnight

    Below the tables are warnings of the agents. Brokers that are not counted are listed; then it exits 1.

    \b
    JSON: agents[].{addr, brokers[], absent[].{broker, state}, agent.{version,
            identity.{cluster, brokerName, brokerId, brokerAddr}, incarnation,
            role, health.{status, detail, evidence, everPassed}, warnings[],
            dataVersion.{stateVersion, timestampMillis, counter}, topicCount,
            uptimeSeconds, drain, redis.{usedMemoryBytes, maxMemoryBytes,
            persists, replicaCount, replicaLagBytes, linkIsUp}, putRate},
            runtime}
          or {addr, brokers[], absent[], error}; agent is null for a RocketMQ
            broker, runtime (RocketMQ's names and texts) for one with an agent,
          notCounted[].{broker, state, addr, reason}, isAbsentKnown

    \b
    Examples:
      pointsmanctl broker status
      pointsmanctl broker status --all --cluster DefaultCluster
      pointsmanctl -o json broker status | jq '.agents[].agent.redis'
    """

    async def ask(server: AgentServer | RocketmqBroker, deadline: float) -> BrokerStatus:
        if isinstance(server, RocketmqBroker):
            return BrokerStatus(runtime=await server.runtime_info(deadline))
        return BrokerStatus(info=await server.info(deadline))

    result = query_agents(agent_and_broker_round(invocation, choice), ask)
    document: Document = {"agents": to_agents_document(result, _to_document)}
    return finish(invocation, result, document, status_parts(result.received, now=datetime.now(UTC)))


def _to_document(status: BrokerStatus) -> Document:
    info = None if status.info is None else to_document(status.info)
    if info is not None:
        # `brokers` shows the registrations.
        del info["nameServers"]
    return {
        "agent": info,
        "runtime": None if status.runtime is None else dict(status.runtime),
    }


def status_parts(received: Sequence[tuple[Agent, BrokerStatus]], *, now: datetime) -> Iterable[RenderableType]:
    """Show brokers with agents, RocketMQ brokers, and warnings."""
    agents = [(agent, status.info) for agent, status in received if status.info is not None]
    brokers = [(agent, status.runtime) for agent, status in received if status.runtime is not None]
    if agents:
        right = ("MEMORY", "LIMIT", "REPLICAS", "LAG", "PUT/S", "TOPICS")
        table = new_table("BROKER", "ROLE", "PROBE", *right[:2], "PERSISTS", *right[2:], "AGENT", right=right)
        for agent, info in agents:
            table.add_row(agent.name, *map(printable, _agent_cells(info)))
        yield table
    if agents and brokers:
        yield ""
    if brokers:
        numbers = ("UPTIME", "PUT/S", "GET/S", "DISK", "TODAY")
        table = new_table("BROKER", "VERSION", *numbers, right=numbers)
        for agent, values in brokers:
            table.add_row(agent.name, *map(printable, _runtime_cells(values, now=now)))
        yield table
    for agent, info in agents:
        for warning in info.warnings:
            yield Text(f"{agent.name} {printable(warning)}", style=WARNING)


def _agent_cells(info: wire.GetAgentInfoResponse) -> Iterator[str]:
    redis = info.redis
    yield info.role or "-"
    yield enum_name(info.health, "status")
    yield bytes_text(redis.used_memory_bytes) if redis.HasField("used_memory_bytes") else "-"
    yield bytes_text(redis.max_memory_bytes) if redis.max_memory_bytes else "-"
    yield ("yes" if redis.persists else "no") if redis.HasField("persists") else "-"
    yield str(redis.replica_count) if info.HasField("redis") else "-"
    if redis.HasField("link_is_up"):
        yield "link up" if redis.link_is_up else "link down"
    else:
        yield bytes_text(redis.replica_lag_bytes) if redis.HasField("replica_lag_bytes") else "-"
    yield rate_text(info.put_rate) if info.HasField("put_rate") else "-"
    yield str(info.topic_count)
    yield info.version


def _runtime_cells(values: Mapping[str, str], *, now: datetime) -> Iterator[str]:
    shown = runtime_of(values)
    yield shown.version or "-"
    yield "-" if shown.started_at is None else duration_text(max(0.0, (now - shown.started_at).total_seconds()))
    yield "-" if shown.put_rate is None else rate_text(shown.put_rate)
    yield "-" if shown.get_rate is None else rate_text(shown.get_rate)
    yield "-" if shown.disk_ratio is None else f"{shown.disk_ratio:.0%}"
    yield "-" if shown.puts_today is None else str(shown.puts_today)


def bytes_text(count: float) -> str:
    """Return a number of bytes: ``512 B``, ``1.5 GiB``."""
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
