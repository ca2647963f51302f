"""Pins of consumer groups and of their queues: the commands ``pin`` and ``unpin``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import click
from google.protobuf.duration_pb2 import Duration
from rich.text import Text

from pointsman.client_id import address_of, pin_target_problem
from pointsman.group_topics import retry_topic
from pointsman.names import MAX_QUEUES, printable, registered_name_problem
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.v1 import route_service_pb2
from pointsman.wire.json_document import to_document
from pointsman.wire.operator_texts import utc_of
from pointsman_ctl.commands.agent_round import (
    AgentChoice,
    QueryResult,
    agent_round,
    finish_change,
    of_every_agent,
    query_agents,
    to_agents_document,
)
from pointsman_ctl.commands.group_commands import complete_groups, fail_unknown_group
from pointsman_ctl.options.command_options import by_option, duration_option, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.output.consumer_group_view import pin_text
from pointsman_ctl.output.error_report import ErrorReport
from pointsman_ctl.output.output_layout import failure_line
from pointsman_ctl.servers.agent_queries import AgentGroup, AgentServer

MAX_TARGETS = 16
MAX_NAMED = 10
"""Members, brokers or topics that an error names."""

PinResponse = TypeVar("PinResponse", wire.PinGroupResponse, wire.PinQueueResponse)


class QueueTarget(NamedTuple):
    """A queue of a broker."""

    topic: str
    cluster: str
    """Empty: not stated."""
    broker_name: str
    queue_id: int


def _read_queue(_ctx: click.Context, _param: click.Parameter, value: str | None) -> QueueTarget | None:
    if value is None:
        return None
    parts = value.split("/")
    if len(parts) not in {3, 4}:
        raise click.BadParameter(f"queue must be TOPIC/BROKER/N, e.g. orders/broker-a/3, got {value!r}")
    topic, cluster, broker_name, number = parts if len(parts) == 4 else (parts[0], "", *parts[1:])
    for what, name in (("topic", topic), ("cluster", cluster), ("broker", broker_name)):
        problem = registered_name_problem(name) if name or what != "cluster" or len(parts) == 4 else None
        if problem:
            raise click.BadParameter(f"{what} {name!r} {problem}")
    if not (number.isascii() and number.isdigit() and len(number) <= 5 and int(number) < MAX_QUEUES):
        raise click.BadParameter(f"queue number must be from 0 to {MAX_QUEUES - 1}, got {number!r}")
    return QueueTarget(topic, cluster, broker_name, int(number))


def _read_targets(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    targets = tuple(dict.fromkeys(values))
    for target in targets:
        if problem := pin_target_problem(target):
            raise click.BadParameter(f"{target!r} {problem}")
    if len(targets) > MAX_TARGETS:
        raise click.BadParameter(f"has {len(targets)} members, at most {MAX_TARGETS} are allowed")
    return targets


queue_option = click.option(
    "--queue",
    callback=_read_queue,
    metavar="TOPIC/BROKER/N",
    help="One queue only. TOPIC/CLUSTER/BROKER/N where two clusters have the broker, and with --agent.",
)


@click.command()
@click.argument("group", callback=read_name, shell_complete=complete_groups)
@queue_option
@click.option(
    "--to",
    "targets",
    multiple=True,
    required=True,
    callback=_read_targets,
    metavar="ID|ADDRESS",
    help="Client id, or its part before the @ for all clients of that host. Repeatable without --queue (max 16).",
)
@duration_option("7d", required=True, help="Duration, e.g. 90s, 30m, 2h or 1d (max 7d).")
@of_every_agent
@by_option
@pass_invocation
def pin(
    invocation: Invocation,
    group: str,
    queue: QueueTarget | None,
    targets: tuple[str, ...],
    seconds: int,
    choice: AgentChoice,
    by: str,
) -> int:
    """Assign queues of GROUP to some members for a time.

    Without --queue, all queues: to try a new version on one host, or to debug one consumer. The other members stay in
    the group without queues. A pinned member may join later; while no pinned member is in the group, it is balanced as
    usual. The pin ends after --for, with unpin, or when the agent restarts.

    With --queue, one queue to one member: to move a hot queue to a member with less to do. The other queues are divided
    as usual, and so is this one while the member is absent. The pin ends after --for or with unpin. It has no effect
    while a client that is too old to follow it is a member, or while the group is pinned to others.

    Repeating the command replaces the pin. Sent to the agents of masters and replicas, those of brokers that are OUT
    too; exits 1 if one failed.

    \b
    JSON: agents[].{addr, brokers[], absent[], pinnedClientIds[], until}
          or {addr, brokers[], absent[], error};
          with --queue pin.{topic, cluster, brokerName, queueId, to, until,
          clientId} instead; clientId is empty without effect

    \b
    Examples:
      pointsmanctl pin billing --to 10.0.0.7@4711 --for 1h
      pointsmanctl pin billing --to 10.0.0.7 --to 10.0.0.8 --for 30m
      pointsmanctl pin billing --queue orders/broker-a/3 --to 10.0.0.7 --for 1h
    """
    duration = Duration(seconds=seconds)
    if queue is None:
        return _pin_group(invocation, choice, wire.PinGroupRequest(group=group, to=targets, duration=duration, by=by))
    if len(targets) > 1:
        raise click.UsageError(f"with --queue there must be one --to, not {len(targets)}")
    if choice.addrs and not queue.cluster:
        raise click.UsageError("with --agent, which queries no name server, --queue must be TOPIC/CLUSTER/BROKER/N")
    members = query_members(invocation, choice, group)
    known = [response.group for _, response in members.received if response.group is not None]
    if members.received and not known:
        return fail_unknown_group(invocation, members, f"consumer group {group} has no members")
    found = _found_queue(invocation, queue, choice)
    if isinstance(found, ErrorReport):
        return invocation.fail(found)
    if known and (problem := _member_problem(group, queue.topic, targets[0], known)) is not None:
        return invocation.fail(problem)
    request = wire.PinQueueRequest(group=group, **found._asdict(), to=targets[0], duration=duration, by=by)
    return _pin_queue(invocation, choice, request)


@click.command()
@click.argument("group", callback=read_name, shell_complete=complete_groups)
@queue_option
@of_every_agent
@by_option
@pass_invocation
def unpin(invocation: Invocation, group: str, queue: QueueTarget | None, choice: AgentChoice, by: str) -> int:
    """End the pins of GROUP; all members share its queues again.

    The pin of the group and those of its queues, or with --queue of this queue only. Sent to the agents of masters and
    replicas, those of brokers that are OUT too; exits 1 if one failed. Repeating it is safe.

    \b
    JSON: agents[].{addr, brokers[], absent[], pinnedClientIds[], until}
          or {addr, brokers[], absent[], error}; until is null;
          with --queue pin instead, which is null

    \b
    Examples:
      pointsmanctl unpin billing
      pointsmanctl unpin billing --queue orders/broker-a/3
      pointsmanctl unpin billing --agent 10.0.0.1:9880
    """
    if queue is None:
        return _pin_group(invocation, choice, wire.PinGroupRequest(group=group, by=by))
    return _pin_queue(invocation, choice, wire.PinQueueRequest(group=group, **queue._asdict(), by=by))


def query_members(invocation: Invocation, choice: AgentChoice, group: str) -> QueryResult[AgentGroup]:
    """Return the members of a group at each agent."""

    async def ask(server: AgentServer, deadline: float) -> AgentGroup:
        return await server.group(group, deadline)

    return query_agents(agent_round(invocation, choice), ask)


def _found_queue(invocation: Invocation, queue: QueueTarget, choice: AgentChoice) -> QueueTarget | ErrorReport:
    """Return a queue of the route with its cluster, or why there is none."""
    if choice.addrs:
        return queue
    route = invocation.query_first(lambda server, deadline: server.route(queue.topic, deadline))
    return queue_in(route, queue)


def queue_in(route: route_service_pb2.TopicRoute, queue: QueueTarget) -> QueueTarget | ErrorReport:
    """Return a queue with its cluster, or why the route has none or several."""
    hint = f"see `pointsmanctl route {queue.topic}`"
    datas = [
        data
        for data in route.queue_datas
        if data.broker_name == queue.broker_name and queue.cluster in {"", data.cluster}
    ]
    if not datas:
        broker = f"{queue.cluster}/{queue.broker_name}" if queue.cluster else queue.broker_name
        brokers = _named(f"{data.cluster}/{data.broker_name}" for data in route.queue_datas)
        elsewhere = f"it has some on {brokers}" if brokers else "none of its brokers is up"
        text = f"topic {queue.topic} has no queues on broker {broker}; {elsewhere}"
        return ErrorReport("QUEUE_NOT_FOUND", text, hint)
    if len(datas) > 1:
        clusters = _named(data.cluster for data in datas)
        text = f"broker {queue.broker_name} has queues of topic {queue.topic} in several clusters: {clusters}"
        return ErrorReport("QUEUE_NOT_FOUND", text, "use --queue TOPIC/CLUSTER/BROKER/N")
    [data] = datas
    if queue.queue_id >= data.read_queue_nums:
        where = f"topic {queue.topic} on {data.cluster}/{data.broker_name}"
        text = f"{where} has {data.read_queue_nums} readable queues, numbered from 0, and no queue {queue.queue_id}"
        return ErrorReport("QUEUE_NOT_FOUND", text, hint)
    return queue._replace(cluster=data.cluster)


def _member_problem(group: str, topic: str, target: str, known: Sequence[wire.GetGroupResponse]) -> ErrorReport | None:
    members = [member for response in known for member in response.members]
    client_ids = {member.client_id for member in members}
    if not any(target in {client_id, address_of(client_id)} for client_id in client_ids):
        text = f"{printable(target)} is not a member of group {group}, nor the address of one"
        return ErrorReport("MEMBER_NOT_FOUND", f"{text}; its members are {_named(client_ids)}")
    topics = {subscription.topic for member in members for subscription in member.subscriptions}
    if topic not in {*topics, retry_topic(group)}:
        text = f"group {group} does not read topic {topic}; it reads {_named(topics)}"
        return ErrorReport("QUEUE_NOT_FOUND", text, f"see `pointsmanctl group {group}`")
    return None


def _named(names: Iterable[str]) -> str:
    several = sorted(set(names))
    more = f" and {len(several) - MAX_NAMED} more" if len(several) > MAX_NAMED else ""
    return printable(", ".join(several[:MAX_NAMED])) + more


def _pin_group(invocation: Invocation, choice: AgentChoice, request: wire.PinGroupRequest) -> int:
    async def change(server: AgentServer, deadline: float) -> wire.PinGroupResponse:
        return await server.call(server.groups.PinGroup, request, deadline=deadline)

    result = query_agents(agent_round(invocation, choice), change)
    return _finish(invocation, result, lambda response: _group_pin_text(request.group, response))


def _pin_queue(invocation: Invocation, choice: AgentChoice, request: wire.PinQueueRequest) -> int:
    async def change(server: AgentServer, deadline: float) -> wire.PinQueueResponse:
        return await server.call(server.groups.PinQueue, request, deadline=deadline)

    result = query_agents(agent_round(invocation, choice), change)
    return _finish(invocation, result, lambda response: _queue_pin_text(request, response))


def _finish(invocation: Invocation, result: QueryResult[PinResponse], to_text: Callable[[PinResponse], str]) -> int:
    lines = [
        Text(f"{agent}: {to_text(node.response)}") if node.response is not None else failure_line(node)
        for agent, node in result.responses
    ]
    return finish_change(invocation, result, {"agents": to_agents_document(result, to_document)}, lines)


def _group_pin_text(group: str, pin: wire.PinGroupResponse) -> str:
    if not pin.HasField("until"):
        return f"{group} is not pinned"
    until = f"{group} is pinned until {utc_of(pin.until):%Y-%m-%d %H:%M:%S} UTC"
    members = ", ".join(map(printable, pin.pinned_client_ids))
    return f"{until} to {members}" if members else f"{until}, to members that have not joined yet"


def _queue_pin_text(request: wire.PinQueueRequest, response: wire.PinQueueResponse) -> str:
    if response.HasField("pin"):
        return f"{request.group}: {pin_text(response.pin)}"
    return f"{request.group}: queue {request.queue_id} of {request.topic} on {request.broker_name} is not pinned"
