"""Resets of committed offsets: the plan from what each server has, and the change at each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import click
import grpc

from pointsman_client import AgentFailedError, PointsmanError
from pointsman_ctl.commands.agent_round import AgentChoice, AgentRound, QueryResult, agent_and_broker_round, finish
from pointsman_ctl.commands.planned_change import PlannedChange, carry_out
from pointsman_ctl.commands.server_changes import Outcome
from pointsman_ctl.options.command_options import Consent
from pointsman_ctl.options.invocation import Invocation
from pointsman_ctl.options.message_options import QueueChoice, QueueNotFoundError
from pointsman_ctl.options.offset_options import Target, TargetKind, is_of
from pointsman_ctl.output.error_report import ErrorReport, failure_text
from pointsman_ctl.output.offset_plan import OffsetPlan, QueueMove
from pointsman_ctl.servers.agent_queries import AgentServer
from pointsman_ctl.servers.found_agents import Agent
from pointsman_ctl.servers.rocketmq_broker import RocketmqBroker
from pointsman_ctl.servers.server_calls import NodeResponse
from pointsman_ctl.servers.topic_offsets import (
    END_MILLIS,
    OffsetMovedError,
    OffsetUnknownError,
    QueuePosition,
    ResetOrder,
    ResetUnsupportedError,
    TopicOffsets,
    reset_offsets,
    topic_offsets,
)

FROM_MESSAGES = {TargetKind.EARLIEST, TargetKind.LATEST, TargetKind.MOMENT}
"""Targets that depend on what messages a queue has."""
MILLIS_OF = {TargetKind.EARLIEST: 0, TargetKind.LATEST: END_MILLIS}


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """What an operator asks for."""

    group: str
    topic: str
    target: Target
    queues: Sequence[QueueChoice] = ()
    """Empty: all, or those that the target names."""
    expected: Sequence[tuple[QueueChoice | None, int]] = ()
    clone_of: str = ""
    """The group whose offsets are the target; empty: the target itself is."""


@dataclass(slots=True)
class _Planned:
    """A plan, and what is needed to carry it out."""

    plan: OffsetPlan
    orders: dict[Agent, ResetOrder] = field(default_factory=dict)
    failures: dict[str, PointsmanError] = field(default_factory=dict)
    """By broker: why it is not reset."""


def carry_out_reset(invocation: Invocation, choice: AgentChoice, wanted: ResetRequest, consent: Consent) -> int:
    """Plan, show, and with the operator's consent make a reset; return the exit code."""
    found, planned = asyncio.run(_planned(invocation, choice, wanted))
    if planned is None:
        return _fail_without_topic(invocation, found, wanted)
    plan, failures = planned.plan, planned.failures
    if any(offsets.is_broadcasting for offsets in plan.found.values()):
        message = f"group {wanted.group} broadcasts: each member stores its own offsets"
        hint = "let the application seek, or remove the offset file of a stopped member"
        return invocation.fail(ErrorReport("GROUP_BROADCASTS", message, hint))
    if not wanted.clone_of and not any(offsets.is_known for offsets in plan.found.values()):
        message = f"group {wanted.group} has neither an offset of topic {wanted.topic} nor a member"
        return invocation.fail(ErrorReport("GROUP_NOT_FOUND", message, "see `pointsmanctl groups`"))
    orders = {agent: replace(order, by=consent.by) for agent, order in planned.orders.items()}

    async def apply() -> Sequence[NodeResponse[Outcome]]:
        return [*await _applied(invocation, orders), *(NodeResponse(name, None, why) for name, why in failures.items())]

    change = PlannedChange(
        f"Reset the offsets of group {wanted.group} in topic {wanted.topic}?",
        plan.document(),
        list(plan.parts()),
        plan.record(),
        is_empty=not orders,
    )
    code = carry_out(invocation, change, apply, consent)
    if failures and (consent.dry_run or not orders):
        named = "; ".join(f"{name}: {failure_text(why)}" for name, why in failures.items())
        return invocation.fail(ErrorReport("NOT_RESET", f"{len(failures)} not reset: {named}", ""))
    return code


async def _planned(
    invocation: Invocation, choice: AgentChoice, wanted: ResetRequest
) -> tuple[QueryResult[TopicOffsets], _Planned | None]:
    """Return what servers have, and the plan; None: no server has the topic."""
    async with agent_and_broker_round(invocation, choice) as asking:
        result = await _offsets_of(asking, wanted.group, wanted.topic)
        if not any(offsets.queues for _, offsets in result.received):
            return result, None
        cloned = await _offsets_of(asking, wanted.clone_of, wanted.topic) if wanted.clone_of else None
    found = {agent: offsets for agent, offsets in _serving(result) if offsets.queues}
    failures: dict[str, PointsmanError] = {}
    for agent, node in result.responses:
        if node.failure is not None and not _is_replaced(agent, result):
            failures[agent.name] = node.failure
    for missing in result.found.missing:
        failures.setdefault(missing.name, AgentFailedError(missing.name, grpc.StatusCode.UNAVAILABLE, missing.why))
    targets: Callable[[Agent, QueuePosition], int | None]
    if cloned is not None:
        targets = _cloned(cloned, failures)
    elif wanted.target.moment is not None:
        at = await _at_moment(invocation, choice, wanted.topic, wanted.target.moment, found, failures)
        targets = lambda agent, position: at.get((agent, position.queue_id))  # noqa: E731  # one of three
    else:
        targets = lambda agent, position: _new_offset(wanted.target, agent, position)  # noqa: E731
    moves = [
        QueueMove(agent, position, targets(agent, position))
        for agent, offsets in found.items()
        if agent.name not in failures
        for position in offsets.queues
        if _is_chosen(wanted, agent, position)
    ]
    if cloned is None and wanted.target.kind in FROM_MESSAGES:
        for move in moves:
            if move.new is None:
                failures.setdefault(move.server.name, OffsetUnknownError(move.name))
    moves.sort(key=lambda move: (move.server.queues_of, move.position.queue_id))
    _check_names(wanted, found)
    _check_expected(wanted, moves)
    plan = OffsetPlan(wanted.group, wanted.topic, wanted.clone_of or wanted.target.text, moves, found)
    planned = _Planned(plan, failures=failures)
    for agent in found:
        _add_order(planned, agent, wanted)
    failed = {name: failure_text(why) for name, why in failures.items()}
    planned.plan = replace(plan, failed=failed, moves=[move for move in moves if move.server.name not in failures])
    return result, planned


async def _offsets_of(
    asking: AgentRound[AgentServer | RocketmqBroker], group: str, topic: str
) -> QueryResult[TopicOffsets]:
    return await asking.query(lambda server, deadline: topic_offsets(server, group, topic, deadline))


def _serving(result: QueryResult[TopicOffsets]) -> list[tuple[Agent, TopicOffsets]]:
    """Return one server for each broker name: not an absent master whose queues a routed replica serves."""
    return [(agent, offsets) for agent, offsets in result.received if not _is_replaced(agent, result)]


def _is_replaced(agent: Agent, result: QueryResult[TopicOffsets]) -> bool:
    absent = result.found.absent
    if not agent.brokers or any(name not in absent for name in agent.brokers):
        return False
    return any(
        other.queues_of == agent.queues_of and any(name not in absent for name in other.brokers)
        for other, _ in result.received
    )


def _is_chosen(wanted: ResetRequest, agent: Agent, position: QueuePosition) -> bool:
    names = wanted.queues or [name for name, _ in wanted.target.each]
    return not names or any(is_of(name, agent.queues_of, position.queue_id) for name in names)


def _check_names(wanted: ResetRequest, found: Mapping[Agent, TopicOffsets]) -> None:
    """Raise QueueNotFoundError for a name of no queue."""
    expected = [name for name, _ in wanted.expected if name is not None]
    for name in (*wanted.queues, *(name for name, _ in wanted.target.each), *expected):
        if not any(
            is_of(name, agent.queues_of, position.queue_id)
            for agent, offsets in found.items()
            for position in offsets.queues
        ):
            raise QueueNotFoundError(wanted.topic, name)


def _check_expected(wanted: ResetRequest, moves: Sequence[QueueMove]) -> None:
    """Raise OffsetMovedError, or a usage error for an offset that could be that of several queues."""
    for name, offset in wanted.expected:
        if name is None and len(moves) != 1:
            raise click.UsageError(f"--expect {offset} is for one queue, and {len(moves)} are chosen: use QUEUE=OFFSET")
        for move in moves:
            is_named = name is None or is_of(name, move.server.queues_of, move.position.queue_id)
            if is_named and move.position.committed != offset:
                raise OffsetMovedError(move.name, committed=move.position.committed, expected=offset)


def _new_offset(target: Target, agent: Agent, position: QueuePosition) -> int | None:
    if target.kind is TargetKind.EARLIEST:
        return position.min_offset
    if target.kind is TargetKind.LATEST:
        return position.max_offset
    if target.kind is TargetKind.EACH:
        return next(offset for name, offset in target.each if is_of(name, agent.queues_of, position.queue_id))
    if target.kind is TargetKind.RELATIVE:
        return None if position.committed is None else _within(position, position.committed + target.number)
    return _within(position, target.number)


def _within(position: QueuePosition, offset: int) -> int:
    """Return the offset that the queue has next to this one."""
    most = offset if position.max_offset is None else min(offset, position.max_offset)
    return max(position.min_offset or 0, most)


def _cloned(
    cloned: QueryResult[TopicOffsets], failures: dict[str, PointsmanError]
) -> Callable[[Agent, QueuePosition], int | None]:
    offsets: dict[tuple[Agent, int], int] = {}
    for agent, node in cloned.responses:
        if node.failure is not None:
            failures.setdefault(agent.name, node.failure)
        for position in node.response.queues if node.response is not None else ():
            if position.committed is not None:
                offsets[agent, position.queue_id] = position.committed
    return lambda agent, position: offsets.get((agent, position.queue_id))


async def _at_moment(
    invocation: Invocation,
    choice: AgentChoice,
    topic: str,
    moment: datetime,
    found: Mapping[Agent, TopicOffsets],
    failures: dict[str, PointsmanError],
) -> dict[tuple[Agent, int], int]:
    """Return the first offset from a time, by server and queue id; a broker that cannot be read is a failure."""
    from pointsman_ctl.servers.stored_messages import of_every  # noqa: PLC0415  # transports, for this target alone

    if choice.addrs:
        raise click.UsageError("a time cannot be combined with --agent: messages are read from the brokers of a route")
    agents = {agent.queues_of: agent for agent in found}
    at: dict[tuple[Agent, int], int] = {}
    async with invocation.stored_messages() as messages:
        held = [each for each in await messages.queues(topic, choice.cluster) if each.is_readable]
        for each, offset in await of_every(held, lambda queue: messages.offset_at(queue, moment)):
            agent = agents.get(f"{each.queue.cluster}/{each.queue.broker_name}")
            if agent is None:
                continue
            if isinstance(offset, PointsmanError):
                failures.setdefault(agent.name, offset)
            else:
                at[agent, each.queue.queue_id] = offset
    return at


def _add_order(planned: _Planned, agent: Agent, wanted: ResetRequest) -> None:
    """Add what to reset at one server, if there is anything; a server that cannot make it becomes a failure."""
    moves = [move for move in planned.plan.moves if move.server is agent]
    again = planned.plan.found[agent].is_unstored
    offsets = {
        move.position.queue_id: move.new for move in moves if move.new is not None and (move.is_changed or again)
    }
    if not offsets or agent.name in planned.failures:
        return
    millis = None
    if not wanted.queues and not wanted.clone_of:
        moment = wanted.target.moment
        millis = MILLIS_OF.get(wanted.target.kind) if moment is None else round(moment.timestamp() * 1000)
    if planned.plan.found[agent].by_members and millis is None:
        planned.failures[agent.name] = ResetUnsupportedError(agent.addr, wanted.group)
        return
    expected = {
        move.position.queue_id: offset
        for name, offset in wanted.expected
        for move in moves
        if name is None or is_of(name, agent.queues_of, move.position.queue_id)
    }
    planned.orders[agent] = ResetOrder(wanted.group, wanted.topic, offsets, expected, millis)


async def _applied(invocation: Invocation, orders: Mapping[Agent, ResetOrder]) -> list[NodeResponse[Outcome]]:
    brokers = {
        agent.addr: RocketmqBroker(agent.addr, invocation.rocketmq_access) for agent in orders if agent.is_rocketmq
    }

    async def one(agent: Agent, server: AgentServer | RocketmqBroker) -> NodeResponse[Outcome]:
        order = orders[agent]
        deadline = asyncio.get_running_loop().time() + invocation.timeout_seconds
        try:
            await reset_offsets(server, order, deadline)
        except PointsmanError as failure:
            return NodeResponse(agent.name, None, failure)
        count = len(order.offsets)
        text = f"{count} {'queue' if count == 1 else 'queues'} reset"
        return NodeResponse(agent.name, Outcome(text, facts={"queues": count}), None)

    async with invocation.agent_connections() as to:
        try:
            calls: list[Awaitable[NodeResponse[Outcome]]] = [
                one(agent, brokers.get(agent.addr) or to(agent.addr))
                for agent in sorted(orders, key=lambda agent: agent.name)
            ]
            return await asyncio.gather(*calls)
        finally:
            await asyncio.gather(*(broker.close() for broker in brokers.values()))


def _fail_without_topic(invocation: Invocation, found: QueryResult[TopicOffsets], wanted: ResetRequest) -> int:
    if not found.received:
        return finish(invocation, found, {}, [])
    message = f"no broker that responded has topic {wanted.topic}"
    return invocation.fail(ErrorReport("TOPIC_NOT_FOUND", message, "see `pointsmanctl topics`"))
