"""How far consumer groups are, put together from what each agent knows: lags and their totals. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pointsman.v1 import offset_service_pb2 as wire
from pointsman.wire.group_topics import is_retry_topic
from pointsman_ctl.agent_question import AgentOffsets
from pointsman_ctl.agents import Agent


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """How far a group is in one queue, by the word of one agent."""

    agent: Agent
    progress: wire.QueueProgress

    @property
    def max_offset(self) -> int | None:
        """One beyond the last message; None: not known."""
        return self.progress.max_offset if self.progress.HasField("max_offset") else None

    @property
    def lag(self) -> int | None:
        """Messages that the group has still to read; None: not known."""
        return None if self.max_offset is None else max(0, self.max_offset - self.progress.committed.offset)

    @property
    def is_beyond_end(self) -> bool:
        """Whether more is committed than there is: the queue has lost messages, and new ones will be passed over."""
        return self.max_offset is not None and self.progress.committed.offset > self.max_offset


@dataclass(frozen=True, slots=True)
class GroupTotal:
    """How far a group is in all."""

    group: str
    queues: int
    lag: int
    """In the queues whose end is known."""
    without_end: int
    """Queues whose end is not known."""


def offset_rows(answers: Iterable[tuple[Agent, AgentOffsets]]) -> list[OffsetRow]:
    """Return the offsets by (group, topic, agent, queue)."""
    rows = [OffsetRow(agent, progress) for agent, answer in answers for progress in answer.progress]
    return sorted(rows, key=lambda row: (*_place(row.progress), row.agent.name, row.progress.committed.queue_id))


def without_empty_retries(rows: Sequence[OffsetRow]) -> list[OffsetRow]:
    """Leave out queues of retry topics that are read to their end: 16 a broker and group, nearly always empty."""
    return [
        row
        for row in rows
        if not (is_retry_topic(row.progress.committed.topic) and row.lag == 0 and not row.is_beyond_end)
    ]


def group_totals(rows: Sequence[OffsetRow]) -> list[GroupTotal]:
    """Return a total for each group; a queue of which agents of several replicas tell counts once, as the furthest."""
    furthest: dict[tuple[str, str, str, int], OffsetRow] = {}
    for row in rows:
        committed = row.progress.committed
        queue = (row.progress.group, committed.topic, row.agent.queues_of, committed.queue_id)
        other = furthest.get(queue)
        if other is None or committed.offset > other.progress.committed.offset:
            furthest[queue] = row
    of_group: dict[str, list[int | None]] = {}
    for (group, *_), row in furthest.items():
        of_group.setdefault(group, []).append(row.lag)
    return [
        GroupTotal(group, len(lags), sum(lag for lag in lags if lag is not None), lags.count(None))
        for group, lags in sorted(of_group.items())
    ]


def _place(progress: wire.QueueProgress) -> tuple[str, str]:
    return progress.group, progress.committed.topic
