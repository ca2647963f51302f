"""Queue statistics as a name server accepts them: the longest allowed, and those of an idle broker."""

from __future__ import annotations

from pointsman_namesrv.core.reported_queue_stats import (
    MAX_MESSAGES,
    GroupTotals,
    QueueLag,
    QueuePuts,
    QueueStats,
    TopicTotals,
)

NOTHING_MEASURED = QueueStats(
    period=0.0, queue_count=0, unmeasured_queue_count=0, topic_count=0, depth=0, put_rate=0.0, lag=0
)

MEASURED = QueueStats(
    period=600.0,
    queue_count=80,
    unmeasured_queue_count=1,
    topic_count=20,
    depth=MAX_MESSAGES,
    put_rate=1 / 3,
    lag=MAX_MESSAGES,
    top_put_rates=tuple(QueuePuts("orders", n, 1 / 3, n) for n in range(20)),
    top_lags=tuple(QueueLag("billing", "orders", n, MAX_MESSAGES, 1e300) for n in range(20)),
    top_topics=tuple(TopicTotals(f"t{n}", 4, 2, 1.5, 1.0, 10, 9) for n in range(20)),
    top_groups=tuple(GroupTotals(f"g{n}", "orders", 4, 10, 9, 3) for n in range(20)),
)


def with_detail(**facts: object) -> dict[str, object]:
    """The row's detail, with other facts in it."""
    return MEASURED.detail() | facts
