"""What is known of one observed name server: whether it is watched, and its tables. Pure; time is an argument."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pointsman.wire.refusals import NotReady
from pointsman_namesrv.core.events import Event
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.history.recent import RecentEvents
from pointsman_namesrv.observe.observed_brokers import ObservedBrokers


async def _nothing() -> None: ...


@dataclass(slots=True)
class Hooks:
    """What else follows the watches of a name server."""

    note: Callable[[Event, float], None] = lambda _event, _now: None
    """Takes each recorded event, and monotonic seconds."""
    until_read: Callable[[], Awaitable[None]] = _nothing
    """Waits until the history of earlier runs is read; a second watch would be taken for an earlier one."""
    went_away: Callable[[], Awaitable[None]] = _nothing
    """Called when a watch has ended."""
    write_now: Callable[[], object] = lambda: True
    """Writes what is recorded of the watch; blocks. See :meth:`Recorder.write_now`."""


class ObservedServer:
    """One name server, from the start of the observer on."""

    def __init__(self, addr: str, *, boot: int, now: float, collects_topics: bool = True) -> None:
        self.addr = addr
        self.boot = boot
        """Of the first watch in the history; each other watch has another one."""
        self.brokers = ObservedBrokers()
        self.recent = RecentEvents()
        self.lifecycle = NodeLifecycle(started_at=now, warm_up_seconds=0.0)
        """WARMING until the first watch."""
        self.hooks = Hooks()
        self.runs = 0
        """Watches that have begun; each is a run in the history."""
        self.topics_walked_at: float | None = None
        """End of the last walk over all topics, monotonic seconds; None: there was none."""
        self.collects_topics = collects_topics
        self._away: tuple[float, str] | None = (now, "it has not responded yet")
        """Since when it is not watched, monotonic seconds, and why."""

    @property
    def is_watched(self) -> bool:
        """Return whether it responds, and lists the brokers that it listed before."""
        return self._away is None

    def begin(self, *, now: float) -> int:
        """Note that a watch began; return the number of its run, from 0 on."""
        self._away = None
        self.lifecycle.end_warm_up(now=now, still_provisional=0)
        self.runs += 1
        return self.runs - 1

    def not_watched(self, problem: str, *, now: float) -> None:
        """Note that it does not respond, or waits for its brokers; what it listed before is not known to hold."""
        since = now if self._away is None else self._away[0]
        self._away = since, problem

    def happened(self, events: Sequence[Event], *, now: float) -> None:
        """Apply what was recorded of a watch."""
        self.brokers.apply(events, now=now)
        for event in events:
            self.hooks.note(event, now)

    def away(self, *, now: float) -> tuple[float, str] | None:
        """Return for how many seconds it has not been watched, and why; None: it is."""
        return None if self._away is None else (now - self._away[0], self._away[1])

    def refuse_unless_watched(self, *, now: float) -> None:
        """Raise ObservedUnreachable."""
        if (away := self.away(now=now)) is not None:
            raise ObservedUnreachable(self.addr, *away)

    def refuse_unless_walked(self, *, now: float) -> None:
        """Raise ObservedUnreachable, or TopicsNotCollected: without a walk an unknown topic may exist."""
        self.refuse_unless_watched(now=now)
        if self.topics_walked_at is None:
            raise self.topics_refusal()

    def topics_refusal(self) -> TopicsNotCollected:
        """Return why its topics are unknown."""
        return TopicsNotCollected(self.addr, is_on=self.collects_topics)


class ObservedUnreachable(NotReady):
    """An observed name server does not respond to the observer, or was restarted and waits for its brokers."""

    code = "OBSERVED_UNREACHABLE"

    def __init__(self, addr: str, seconds: float, problem: str) -> None:
        super().__init__(
            f"the observer has not watched {addr} for {seconds:.0f} s: {problem}; the state of its brokers is unknown"
        )


class TopicsNotCollected(NotReady):
    """The topics of an observed name server are not collected, or not yet."""

    code = "TOPICS_NOT_COLLECTED"

    def __init__(self, addr: str, *, is_on: bool) -> None:
        why = "its first walk over them has not ended; retry later" if is_on else "--topics-seconds is 0"
        super().__init__(f"the observer has not collected the topics of {addr}: {why}")
