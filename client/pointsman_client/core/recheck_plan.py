"""Topics that need lookups in addition to the poll: their routes are disputed, or they have none."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from pointsman.backoff import FullJitterBackoff

MAX_RECHECKS = 8
"""Rechecks per dispute; then only the poll continues. With backoff this takes about 10 s, and name servers expire the
same broker within one sweep (5 s) of each other."""
MAX_BACKOFF_SECONDS = 5.0


@dataclass(slots=True)
class _Recheck:
    backoff: FullJitterBackoff
    left: int = MAX_RECHECKS
    due_at: float | None = None


class RecheckPlan:
    """Times at which topics are due. ``now`` is monotonic seconds, ``draw(a, b)`` is ``random.uniform``."""

    def __init__(self, draw: Callable[[float, float], float]) -> None:
        self._draw = draw
        self._rechecks: dict[str, _Recheck] = {}

    def doubted(self, topic: str, *, now: float) -> None:
        """Schedule an immediate lookup, after a watch reported a removal."""
        self._recheck_of(topic).due_at = now

    def disputed(self, topic: str, *, now: float) -> None:
        """Schedule another lookup with backoff, at most :data:`MAX_RECHECKS` until the dispute is settled."""
        recheck = self._recheck_of(topic)
        if recheck.due_at is None and recheck.left:
            recheck.left -= 1
            recheck.due_at = now + recheck.backoff.next_wait()

    def settled(self, topic: str) -> None:
        """End the dispute."""
        self._rechecks.pop(topic, None)

    def take_due(self, *, now: float) -> list[str]:
        """Return the topics that are due and mark them as looked up."""
        due = [
            topic for topic, recheck in self._rechecks.items() if recheck.due_at is not None and recheck.due_at <= now
        ]
        for topic in due:
            self._rechecks[topic].due_at = None
        return due

    def next_due_at(self) -> float | None:
        """Return the time at which the next topic is due; None: no topic is."""
        return min((recheck.due_at for recheck in self._rechecks.values() if recheck.due_at is not None), default=None)

    def _recheck_of(self, topic: str) -> _Recheck:
        if topic not in self._rechecks:
            self._rechecks[topic] = _Recheck(FullJitterBackoff(self._draw, cap=MAX_BACKOFF_SECONDS))
        return self._rechecks[topic]


WANTED_TTL_SECONDS = 600.0
"""Time after its last use at which lookups of an unknown topic stop: it may be deleted permanently."""


class WantedTopics:
    """Requested topics that have no route, at most ``max_topics``; beyond that the oldest is evicted."""

    def __init__(self, max_topics: int) -> None:
        self._max_topics = max_topics
        self._wanted_at: OrderedDict[str, float] = OrderedDict()

    def want(self, topic: str, *, now: float) -> bool:
        """Record a request of the topic; return whether it is the first."""
        is_new = topic not in self._wanted_at
        self._wanted_at[topic] = now
        self._wanted_at.move_to_end(topic)
        if len(self._wanted_at) > self._max_topics:
            self._wanted_at.popitem(last=False)
        return is_new

    def found(self, topic: str) -> None:
        """Remove a topic that now has a route in the route table."""
        self._wanted_at.pop(topic, None)

    def topics(self, *, now: float) -> list[str]:
        """Return the topics requested within :data:`WANTED_TTL_SECONDS`, the oldest first; drop the others."""
        while self._wanted_at:
            topic, wanted_at = next(iter(self._wanted_at.items()))
            if now - wanted_at <= WANTED_TTL_SECONDS:
                break
            del self._wanted_at[topic]
        return list(self._wanted_at)
