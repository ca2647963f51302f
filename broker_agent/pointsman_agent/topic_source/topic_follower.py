"""Follow a topic source while the agent runs: poll it, and use the last valid topics during failures.

Before the first successful read there are no topics to register: an empty set would remove the broker from the routes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pointsman.clock import Clock
from pointsman.deadline import within
from pointsman_agent.core.topic_set import TopicSet
from pointsman_agent.topic_source import TopicSource, TopicSourceError

REMIND_SECONDS = 60.0
"""Minimum time between log lines of a source that fails with changing errors; the same error is logged once."""

PAUSE_RATIO = 10.0
"""Minimum pause after a read, as a multiple of its duration: reads use at most a tenth of a core."""

log = logging.getLogger(__name__)


class FollowerMetrics(Protocol):
    """Metrics of the follower; see ``SourceMetrics``."""

    def count_read(self, result: str) -> None:
        """Count a finished read: ``changed``, ``unchanged`` or ``failed``."""
        ...

    def set_last_good(self, at: float) -> None:
        """Record the time of the last successful read, in monotonic seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Following:
    """State of the follower. Replaced as a whole, so any thread may read it."""

    problem: str = "not read yet"
    """Why the source cannot be read; empty if it can."""
    last_good_at: float | None = None
    """In monotonic seconds; None: never."""


class TopicFollower:
    """Polls one source. ``on_change`` is called in the event loop with each set of another version.

    ``timeout`` is the deadline of a read, in seconds.
    """

    def __init__(
        self,
        source: TopicSource,
        *,
        clock: Clock,
        interval: float,
        timeout: float,
        on_change: Callable[[TopicSet], None],
        metrics: FollowerMetrics | None = None,
    ) -> None:
        self._source = source
        self._clock = clock
        self._interval = interval
        self._timeout = timeout
        self._on_change = on_change
        self._metrics = metrics
        self._topics: TopicSet | None = None
        self._now = asyncio.Event()
        self._has_topics = asyncio.Event()
        self._logged_at = 0.0
        self.state = Following()

    @property
    def topics(self) -> TopicSet | None:
        """The last valid topics; None before the first."""
        return self._topics

    async def first(self) -> TopicSet:
        """Wait for the first successful read, without a deadline. ``run`` must be running."""
        await self._has_topics.wait()
        assert self._topics is not None  # noqa: S101  # set before the event
        return self._topics

    def poll_now(self) -> None:
        """Poll immediately, as requested by SIGHUP. Several requests are one."""
        self._now.set()

    async def run(self) -> None:
        """Poll every interval, until cancelled."""
        while True:
            self._now.clear()
            started_at = self._clock.monotonic()
            problem = await self._poll()
            took = self._clock.monotonic() - started_at
            await self._wait(self._interval if problem else max(self._interval, PAUSE_RATIO * took))

    async def _poll(self) -> str:
        """Poll once; return the problem, or an empty string."""
        try:
            topics = await within(self._clock, self._timeout, self._source.read())
        except TopicSourceError as error:
            problem = str(error) or type(error).__name__
        except TimeoutError:
            problem = f"no response within {self._timeout:g} s"
        except Exception as error:  # the border to foreign data: a failure of a source is a failed poll
            # Foreign data and libraries: their failure must not stop heartbeats.
            log.exception("topic source raised an unexpected exception")
            problem = f"{type(error).__name__}: {error}"
        else:
            self._take(topics)
            return ""
        self._on_failure(problem)
        return problem

    def _take(self, topics: TopicSet) -> None:
        now = self._clock.monotonic()
        old, was = self._topics, self.state
        is_other = old is None or topics.data_version != old.data_version
        self.state = Following("", now)
        if self._metrics is not None:
            self._metrics.count_read("changed" if is_other else "unchanged")
            self._metrics.set_last_good(now)
        if was.problem and was.last_good_at is not None:
            log.info("topic source recovered", extra={"facts": _age(now, was)})
        if not is_other:
            return
        facts = {"topics": len(topics.topics), "previous_topics": len(old.topics) if old is not None else None}
        log.info("topics changed", extra={"facts": facts | _version(topics)})
        self._topics = topics
        self._on_change(topics)
        self._has_topics.set()

    def _on_failure(self, problem: str) -> None:
        now = self._clock.monotonic()
        was = self.state
        self.state = Following(problem, was.last_good_at)
        if self._metrics is not None:
            self._metrics.count_read("failed")
        is_new = was.problem in ("", Following().problem)
        if is_new or (problem != was.problem and now - self._logged_at >= REMIND_SECONDS):
            self._logged_at = now
            known = (
                "keeping the last valid topics"
                if was.last_good_at is not None
                else "the broker is registered when they can be"
            )
            log.warning("topics cannot be read; %s", known, extra={"facts": {"problem": problem} | _age(now, was)})

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await within(self._clock, seconds, self._now.wait())


def _age(now: float, state: Following) -> dict[str, object]:
    return {} if state.last_good_at is None else {"last_good_seconds_ago": round(now - state.last_good_at, 1)}


def _version(topics: TopicSet) -> dict[str, object]:
    version = topics.data_version
    return {
        "state_version": version.state_version,
        "timestamp_millis": version.timestamp_millis,
        "counter": version.counter,
    }
