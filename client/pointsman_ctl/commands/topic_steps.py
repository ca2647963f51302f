"""The steps of a change of a topic, at all brokers together: a broker that fails stays behind, the others go on.

A topic shrinks in two steps: its queues that go are first not writable, and stay readable until their groups have read
them. The state in between is one of the brokers', so the same command finishes what was interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pointsman.wire.operator_texts import counted
from pointsman_client import PointsmanError
from pointsman_ctl.commands.agent_round import AgentRound
from pointsman_ctl.commands.server_changes import Outcome
from pointsman_ctl.output.topic_plan import Behind, TopicChange, groups_behind
from pointsman_ctl.servers.agent_queries import AgentServer
from pointsman_ctl.servers.rocketmq_broker import RocketmqBroker
from pointsman_ctl.servers.server_calls import NodeResponse
from pointsman_ctl.servers.topic_brokers import HeldQueue, HeldTopic, TopicBroker, TopicGroup, topic_broker

POLL_SECONDS = 1.0
MAX_NAMED = 5

ResultT = TypeVar("ResultT")
Ask = Callable[[TopicChange, TopicBroker, float], Awaitable[ResultT]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """How a topic is changed."""

    by: str
    wait_seconds: float
    """For groups to read the queues that go; 0: they are left readable."""
    quiet_seconds: float
    """A queue that goes must not have got a message for this time: producers with an old route still write."""
    ignores_stuck: bool
    """Whether groups are not waited for that cannot be waited for."""
    deletes_messages: bool
    report: Callable[[str], None]
    """Takes a line about the progress."""


@dataclass(slots=True)
class _Watched:
    """A broker whose queues go."""

    ends: Mapping[int, int | None] = field(default_factory=dict)
    quiet_since: float = 0.0
    behind: Sequence[Behind] = ()
    queues: Sequence[HeldQueue] = ()
    failure: PointsmanError | None = None


class TopicSteps:
    """Changes one topic at the brokers of a round."""

    def __init__(
        self,
        asking: AgentRound[AgentServer | RocketmqBroker],
        topic: str,
        changes: Sequence[TopicChange],
        steps: Steps,
    ) -> None:
        self._asking = asking
        self._topic = topic
        self._changes = {each.addr: each for each in changes}
        self._steps = steps
        self._failures: dict[str, PointsmanError] = {}
        self._changed: set[str] = set()
        self._notes: dict[str, str] = {}
        self._settled_ends: dict[str, Mapping[int, int | None]] = {}
        self.is_timed_out = False
        """Whether a wait ended before all groups had read the queues that go."""

    async def write(self) -> list[NodeResponse[Outcome]]:
        """Create the topic, or change its queues and permission; return what came of it at each broker."""
        await self._take(self._changes, self._write_first)
        shrinking = [addr for addr, each in self._changes.items() if each.going and addr not in self._failures]
        if shrinking:
            settled = await self._settled(shrinking)
            await self._take(settled, self._write_last)
            for addr in set(shrinking) - set(settled) - self._failures.keys():
                queues = self._changes[addr].going
                self._notes[addr] = (
                    f"queues {queues[0].queue_id} to {queues[-1].queue_id} stay readable: "
                    "run the same command again to finish"
                )
            done = set(self._changes) - (set(shrinking) - set(settled))
        else:
            done = set(self._changes)
        if self._steps.deletes_messages:
            await self._take(done - self._failures.keys(), self._remove_unused)
        return self._outcomes()

    async def delete(self) -> list[NodeResponse[Outcome]]:
        """Delete the topic; return what came of it at each broker."""
        await self._take(self._changes, self._remove)
        if self._steps.deletes_messages:
            holding = [
                addr
                for addr, each in self._changes.items()
                if each.held.removes_queues and each.held.queues and addr not in self._failures
            ]
            await self._take(await self._settled(holding, of_groups=False), self._remove_unused)
        return self._outcomes()

    async def _write_first(self, change: TopicChange, broker: TopicBroker, deadline: float) -> bool:
        assert change.first is not None  # noqa: S101  # a deletion has no such step
        return change.first != change.before and await broker.write(
            self._topic, change.first, deadline, by=self._steps.by
        )

    async def _write_last(self, change: TopicChange, broker: TopicBroker, deadline: float) -> bool:
        assert change.after is not None  # noqa: S101  # as above
        return await broker.write(self._topic, change.after, deadline, by=self._steps.by)

    async def _remove(self, _: TopicChange, broker: TopicBroker, deadline: float) -> bool:
        return await broker.remove(self._topic, deadline, by=self._steps.by)

    async def _remove_unused(self, change: TopicChange, broker: TopicBroker, deadline: float) -> bool:
        if not change.held.removes_queues:
            return False
        held = await broker.topic(self._topic, deadline)
        in_use = held.settings.queues if held.settings is not None else 0
        # A message that came after groups had read the queue must stay.
        settled = self._settled_ends.get(change.addr, {})
        ends = {
            each.queue_id: end
            for each in held.queues
            if each.queue_id >= in_use and (end := settled.get(each.queue_id, each.max_offset)) is not None
        }
        if not ends:
            return False
        removed, moved = await broker.remove_queues(self._topic, ends, deadline, by=self._steps.by)
        messages = sum(each.message_count or 0 for each in held.queues if each.queue_id in removed)
        note = f"{counted(len(removed), 'queue')} with {counted(messages, 'message')} removed"
        if moved:
            note += f", {counted(len(moved), 'queue')} kept because of new messages: run the same command again"
        self._notes[change.addr] = note
        return bool(removed)

    async def _settled(self, addrs: Sequence[str], *, of_groups: bool = True) -> list[str]:
        """Wait until groups have read the queues that go, and these are quiet; return the brokers where it is so."""
        watched = {addr: _Watched() for addr in addrs}
        settled: list[str] = []
        loop = asyncio.get_running_loop()
        until = loop.time() + self._steps.wait_seconds
        last_line = ""
        while watched and self._steps.wait_seconds:
            await self._look(watched, of_groups=of_groups)
            for addr, each in list(watched.items()):
                waits_for = [one for one in each.behind if not (one.is_stuck and self._steps.ignores_stuck)]
                if self._changes[addr].held.is_replica and self._is_master_watched(addr, watched):
                    continue  # if it were promoted now, groups would read the rest at it
                is_quiet = loop.time() - each.quiet_since >= self._steps.quiet_seconds or not each.queues
                if each.failure is None and not waits_for and is_quiet:
                    settled.append(addr)
                    self._settled_ends[addr] = each.ends
                    del watched[addr]
            if not watched:
                return settled
            if (line := _waiting_line(watched)) != last_line:
                last_line = line
                self._steps.report(line)
            if loop.time() >= until:
                self.is_timed_out = True
                break
            await asyncio.sleep(POLL_SECONDS)
        for addr, each in watched.items():
            if each.failure is not None:
                self._failures[addr] = each.failure
        return settled

    def _is_master_watched(self, addr: str, watched: Collection[str]) -> bool:
        return any(
            self._changes[other].broker == self._changes[addr].broker and not self._changes[other].held.is_replica
            for other in watched
        )

    async def _look(self, watched: Mapping[str, _Watched], *, of_groups: bool) -> None:
        async def look(
            change: TopicChange, broker: TopicBroker, deadline: float
        ) -> tuple[HeldTopic, Sequence[TopicGroup]]:
            has_groups = of_groups and not change.held.is_replica
            groups = await broker.groups(self._topic, deadline) if has_groups else ()
            # After the groups: what arrives in between is not committed.
            return await broker.topic(self._topic, deadline), groups

        now = asyncio.get_running_loop().time()
        for addr, node in (await self._ask(watched, look)).items():
            each = watched[addr]
            each.failure = node.failure
            if node.response is None:
                each.behind = ()
                continue
            held, groups = node.response
            begin = self._changes[addr].after
            numbers = {one.queue_id for one in self._changes[addr].held.queues}
            first = begin.read_queues if begin is not None else 0
            each.queues = [one for one in held.queues if one.queue_id >= first and one.queue_id in numbers]
            ends = {one.queue_id: one.max_offset for one in each.queues}
            if ends != each.ends:
                each.ends, each.quiet_since = ends, now
            each.behind = groups_behind(self._changes[addr].broker, groups, each.queues)

    async def _take(self, addrs: Collection[str], step: Ask[bool]) -> None:
        """Take a step at these brokers, and record changes and failures."""
        for addr, node in (await self._ask(addrs, step)).items():
            if node.failure is not None:
                self._failures[addr] = node.failure
            elif node.response:
                self._changed.add(addr)

    async def _ask(self, addrs: Collection[str], question: Ask[ResultT]) -> dict[str, NodeResponse[ResultT]]:
        if not addrs:
            return {}

        async def one(server: AgentServer | RocketmqBroker, deadline: float) -> list[ResultT]:
            if server.addr not in addrs:
                return []
            return [await question(self._changes[server.addr], topic_broker(server), deadline)]

        result = await self._asking.query(one)
        return {
            node.addr: NodeResponse(node.addr, node.response[0] if node.response else None, node.failure)
            for _, node in result.responses
            if node.addr in addrs
        }

    def _outcomes(self) -> list[NodeResponse[Outcome]]:
        nodes: list[NodeResponse[Outcome]] = []
        for addr, change in self._changes.items():
            if addr in self._failures:
                nodes.append(NodeResponse(addr, None, self._failures[addr]))
                continue
            is_changed, note = addr in self._changed, self._notes.get(addr, "")
            text = f"{change.broker}: {change.text() if is_changed else _unchanged_text(change)}"
            facts = {"broker": change.broker, "note": note or None}
            nodes.append(NodeResponse(addr, Outcome(f"{text}{f'; {note}' if note else ''}", is_changed, facts), None))
        return nodes


def _unchanged_text(change: TopicChange) -> str:
    return f"already {change.after}" if change.after is not None else "does not have the topic"


def _waiting_line(watched: Mapping[str, _Watched]) -> str:
    behind = [one.text() for each in watched.values() for one in each.behind]
    if behind:
        more = f" and {len(behind) - MAX_NAMED} more" if len(behind) > MAX_NAMED else ""
        return f"waiting for {'; '.join(behind[:MAX_NAMED])}{more}"
    silent = [addr for addr, each in watched.items() if each.failure is not None]
    if silent:
        return f"waiting for {', '.join(silent[:MAX_NAMED])} to respond"
    return "waiting for the queues that go to be quiet"
