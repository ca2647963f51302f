"""Topics that are looked up apart from the poll: name servers contradict each other on them, or they have no route."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from pointsman.wire.backoff import FullJitterBackoff

MAX_RECHECKS = 8
"""For one dispute; then the poll alone goes on. With the waits below that is about 10 s: name servers that lose sight
of the same broker do so within a sweep of 5 s of each other."""
MAX_BACKOFF_SECONDS = 5.0


@dataclass(slots=True)
class _Recheck:
    backoff: FullJitterBackoff
    left: int = MAX_RECHECKS
    due_at: float | None = None


class RecheckPlan:
    """Topic to the time at which it is due. ``now`` is monotonic seconds, ``draw(a, b)`` is ``random.uniform``."""

    def __init__(self, draw: Callable[[float, float], float]) -> None:
        self._draw = draw
        self._rechecks: dict[str, _Recheck] = {}

    def doubted(self, topic: str, *, now: float) -> None:
        """Ask at once: a watch said that something is gone."""
        self._recheck_of(topic).due_at = now

    def disputed(self, topic: str, *, now: float) -> None:
        """Ask again, later each time, until the dispute is over or so many times."""
        recheck = self._recheck_of(topic)
        if recheck.due_at is None and recheck.left:
            recheck.left -= 1
            recheck.due_at = now + recheck.backoff.next_wait()

    def settled(self, topic: str) -> None:
        """Forget the dispute."""
        self._rechecks.pop(topic, None)

    def take_due(self, *, now: float) -> list[str]:
        """Return the topics to ask for now; each is told once."""
        due = [
            topic for topic, recheck in self._rechecks.items() if recheck.due_at is not None and recheck.due_at <= now
        ]
        for topic in due:
            self._rechecks[topic].due_at = None
        return due

    def next_due_at(self) -> float | None:
        """Return when the next topic is due; None: none is."""
        return min((recheck.due_at for recheck in self._rechecks.values() if recheck.due_at is not None), default=None)

    def _recheck_of(self, topic: str) -> _Recheck:
        if topic not in self._rechecks:
            self._rechecks[topic] = _Recheck(FullJitterBackoff(self._draw, cap=MAX_BACKOFF_SECONDS))
        return self._rechecks[topic]


WANTED_TTL_SECONDS = 600.0
"""After the last use; a topic deleted for good must not be asked for for ever."""


class WantedTopics:
    """Topic to when it was last wanted, monotonic seconds; at most ``max_topics``, the oldest makes room."""

    def __init__(self, max_topics: int) -> None:
        self._max_topics = max_topics
        self._wanted_at: OrderedDict[str, float] = OrderedDict()

    def want(self, topic: str, *, now: float) -> bool:
        """Note that the topic is wanted; return whether that is new."""
        is_new = topic not in self._wanted_at
        self._wanted_at[topic] = now
        self._wanted_at.move_to_end(topic)
        if len(self._wanted_at) > self._max_topics:
            self._wanted_at.popitem(last=False)
        return is_new

    def found(self, topic: str) -> None:
        """Note that the topic has a route: the route table keeps it from now on."""
        self._wanted_at.pop(topic, None)

    def topics(self, *, now: float) -> list[str]:
        """Return what is still wanted, the oldest first; the rest is forgotten."""
        while self._wanted_at:
            topic, wanted_at = next(iter(self._wanted_at.items()))
            if now - wanted_at <= WANTED_TTL_SECONDS:
                break
            del self._wanted_at[topic]
        return list(self._wanted_at)
