"""How members read this broker's queues, as they report it with their heartbeats.

A reading belongs to the stream that reported it and ends with it. It changes no membership.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pointsman_agent.core.offsets import OffsetKey
from pointsman_agent.core.queue import QueueKey

MAX_QUEUES_OF_STREAM = 1_024
"""Queues that one stream may report, of all its groups; more are left out."""
MAX_QUEUES = 100_000
"""Queues that all streams may report together, about 0.5 kB each; more are left out."""


class QueueReading(NamedTuple):
    """How a member reads one queue."""

    position: int
    """Offset of the message that is processed next."""
    committed: int | None
    """As the member committed it; None: not yet."""
    in_flight: int
    """Messages that the listener or the application has and has not finished."""
    oldest_call: float | None
    """Seconds for which the oldest running listener call has run; None: none runs."""
    is_waiting: bool = False
    """Whether there is nothing to do now: the application paused the queue, or its next message is not due yet."""


class GroupReading(NamedTuple):
    """What a member reports about one group: the queues that changed since its last report on the stream."""

    group: str
    queues: Mapping[QueueKey, QueueReading]
    released: Collection[QueueKey] = ()
    """Queues that it no longer reads."""
    retries: int = 0
    """Messages sent to the retry topic since the consumer was started."""
    dead_letters: int = 0
    """Messages sent to the dead letters since the consumer was started."""
    rebalances: tuple[tuple[str, int], ...] = ()
    """Rebalances since the consumer was started, by trigger."""


class QueueReport(NamedTuple):
    """The last reading of a queue."""

    reading: QueueReading
    at: float
    """Monotonic seconds."""

    def oldest_call(self, *, now: float) -> float | None:
        """Return for how many seconds the oldest call has run; one runs until the member reports that it has ended."""
        return None if self.reading.oldest_call is None else self.reading.oldest_call + now - self.at


@dataclass(slots=True)
class MemberReading:
    """What a member has reported about one group on one stream."""

    queues: dict[QueueKey, QueueReport] = field(default_factory=dict)
    last: GroupReading | None = None
    """The last report, for its counts."""


class MemberReadings:
    """Readings of all streams. Memory is bounded: queues beyond the limits are left out and counted."""

    def __init__(self, *, max_queues: int = MAX_QUEUES, max_queues_of_stream: int = MAX_QUEUES_OF_STREAM) -> None:
        self._max_queues = max_queues
        self._max_queues_of_stream = max_queues_of_stream
        self._streams: dict[int, dict[str, MemberReading]] = {}
        self._counts: dict[int, int] = {}
        self.count = 0
        """Queues of all streams."""
        self.left_out = 0
        """Queues that were left out at a limit."""

    def take(self, stream: int, reports: Iterable[GroupReading], *, groups: Collection[str], now: float) -> None:
        """Record the reports of a heartbeat that names ``groups``; of other groups nothing is kept."""
        held = self._streams.setdefault(stream, {})
        for name in held.keys() - groups:
            self._add(stream, -len(held.pop(name).queues))
        for report in reports:
            member = held.setdefault(report.group, MemberReading())
            member.last = report._replace(queues={}, released=())
            for queue in report.released:
                if member.queues.pop(queue, None) is not None:
                    self._add(stream, -1)
            for queue, reading in report.queues.items():
                if queue not in member.queues:
                    if self.count >= self._max_queues or self._counts.get(stream, 0) >= self._max_queues_of_stream:
                        self.left_out += 1
                        continue
                    self._add(stream, 1)
                member.queues[queue] = QueueReport(reading, now)

    def of(self, stream: int, group: str) -> MemberReading | None:
        """Return what a stream reported about a group; None: nothing."""
        return self._streams.get(stream, {}).get(group)

    def waiting(self) -> set[OffsetKey]:
        """Return the queues in which a member has nothing to do now."""
        return {
            OffsetKey(group, *queue)
            for groups in self._streams.values()
            for group, member in groups.items()
            for queue, report in member.queues.items()
            if report.reading.is_waiting
        }

    def drop(self, stream: int) -> None:
        """Remove what an ended stream reported."""
        self._streams.pop(stream, None)
        self.count -= self._counts.pop(stream, 0)

    def _add(self, stream: int, queues: int) -> None:
        self._counts[stream] = self._counts.get(stream, 0) + queues
        self.count += queues
