"""Periodic rows about a broker: every hour its heartbeats and, on request, every ten minutes its queues.

A row of heartbeats closes after ten minutes if a heartbeat in it was late.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from pointsman_namesrv.core.events import BrokerFacts, Event, EventKind
from pointsman_namesrv.core.liveness import LATE_AFTER_INTERVALS, Punctuality
from pointsman_namesrv.core.reported_queue_stats import GroupTotals, QueueLag, QueuePuts, QueueStats, TopicTotals
from tests.bench.histories.fleet import DAY, Fleet

PERIOD_SECONDS, HOUR_SECONDS = 600.0, 3_600.0
BEAT = 30.0
JITTER = 0.15
PUNCTUAL_ROWS = 256
"""Rows of punctual heartbeats differ only in their digits: some are generated and reused."""
STATS_ROWS = 64


class Beats:
    """Each broker has one turn every ten minutes, at its own second."""

    def __init__(self, fleet: Fleet, rng: random.Random) -> None:
        self._wanted = fleet.heartbeats
        self._rng = rng
        self._punctual = [_punctuality(rng) for _ in range(PUNCTUAL_ROWS)]
        self._stats = [_queue_stats(rng, fleet.topics_a_broker) for _ in range(STATS_ROWS * fleet.queue_stats)]
        self._turns = sorted((rng.uniform(0, PERIOD_SECONDS), number) for number in range(fleet.brokers))
        self._late: dict[int, list[tuple[float, float]]] = {}
        self._row_at: dict[int, float] = {}

    def turns(self, began: float) -> Iterator[tuple[float, int]]:
        """Every broker's turns of the day that starts at ``began``, in order."""
        if not self._wanted and not self._stats:
            return
        for period in range(round(DAY / PERIOD_SECONDS)):
            start = began + period * PERIOD_SECONDS
            for at, number in self._turns:
                yield start + at, number

    def late(self, number: int, at: float, silence: float) -> None:
        """Add a late heartbeat to the broker's next row."""
        self._late.setdefault(number, []).append((at, silence))

    def rows(self, broker: BrokerFacts, number: int, *, at: float, since: float) -> Iterator[Event]:
        """The broker's rows at its turn; none in its first ten minutes."""
        if at - since < PERIOD_SECONDS:
            return
        choice = self._rng.random()
        begun = max(since, self._row_at.get(number, since))
        if self._wanted and (number in self._late or at - begun >= HOUR_SECONDS - 1):
            detail = self._punctual[int(choice * PUNCTUAL_ROWS)]
            late = self._late.pop(number, None)
            if late is not None or at - begun > HOUR_SECONDS + 1:
                silences = [silence for when, silence in late or () if when >= begun]
                detail = _punctuality(self._rng, silences, seconds=at - begun)
            self._row_at[number] = at
            yield Event(kind=EventKind.HEARTBEATS, broker=broker, detail=detail)
        if self._stats:
            yield Event(kind=EventKind.QUEUE_STATS, broker=broker, detail=self._stats[int(choice * STATS_ROWS)])


def _punctuality(
    rng: random.Random, silences: list[float] | None = None, *, seconds: float = HOUR_SECONDS
) -> dict[str, object]:
    punctuality = Punctuality(0.0)
    for silence in silences or ():
        punctuality.add(silence, is_late=silence > LATE_AFTER_INTERVALS * BEAT)
    left = seconds - sum(silences or ())
    for _ in range(round(left / BEAT)):
        punctuality.add(max(1.0, rng.gauss(BEAT, JITTER)), is_late=False)
    punctuality.add_clock(-rng.randint(0, 20))
    return punctuality.detail(now=seconds)


def _queue_stats(rng: random.Random, topics: int) -> dict[str, object]:
    rates = {f"topic-{number + 1:05d}": rng.lognormvariate(1, 1) for number in range(min(20, topics))}
    puts = [QueuePuts(topic, 0, round(rate / 3, 3), rng.randrange(1000)) for topic, rate in rates.items()]
    lags = [QueueLag("billing", topic, 0, rng.randrange(1, 5000), round(rate / 3, 3)) for topic, rate in rates.items()]
    totals = [TopicTotals(t, 4, 0, round(r, 3), round(r / 3, 3), 2000, 900) for t, r in rates.items()]
    groups = [GroupTotals("billing", topic, 4, 5000, 2000, rng.randint(1, 6)) for topic in rates]
    return QueueStats(
        period=PERIOD_SECONDS,
        queue_count=4 * topics,
        unmeasured_queue_count=0,
        topic_count=topics,
        depth=2000 * topics,
        put_rate=sum(rates.values()),
        lag=5000 * topics,
        top_put_rates=tuple(sorted(puts, key=lambda each: -each.put_rate)),
        top_lags=tuple(sorted(lags, key=lambda each: -each.lag)),
        top_topics=tuple(sorted(totals, key=lambda each: -each.put_rate)),
        top_groups=tuple(sorted(groups, key=lambda each: -each.lag)),
    ).detail()
