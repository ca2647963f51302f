"""Queue statistics as a message. Does no I/O."""

from __future__ import annotations

from pointsman.v1 import registration_service_pb2 as wire
from pointsman_agent.core.queue_stats import QueueStats

STATUSES = {
    wire.REPORT_QUEUE_STATS_STATUS_RECORDED: "recorded",
    wire.REPORT_QUEUE_STATS_STATUS_UNKNOWN_BROKER: "unknown_broker",
    wire.REPORT_QUEUE_STATS_STATUS_STALE_GENERATION: "stale_generation",
}


def to_message(stats: QueueStats) -> wire.QueueStats:
    """Build the message."""
    message = wire.QueueStats(
        queue_count=stats.queue_count,
        unmeasured_queue_count=stats.unmeasured_queue_count,
        topic_count=stats.topic_count,
        depth=stats.depth,
        put_rate=stats.put_rate,
        lag=stats.lag,
        top_put_rates=[
            wire.QueuePuts(topic=each.topic, queue_id=each.queue_id, put_rate=each.put_rate, depth=each.depth)
            for each in stats.top_put_rates
        ],
        top_lags=[
            wire.QueueLag(
                group=each.group, topic=each.topic, queue_id=each.queue_id, lag=each.lag, put_rate=each.put_rate
            )
            for each in stats.top_lags
        ],
        top_topics=[
            wire.TopicTotals(
                topic=each.topic,
                queue_count=each.queue_count,
                idle_queue_count=each.idle_queue_count,
                put_rate=each.put_rate,
                highest_put_rate=each.highest_put_rate,
                depth=each.depth,
                highest_depth=each.highest_depth,
            )
            for each in stats.top_topics
        ],
        top_groups=[
            wire.GroupTotals(
                group=each.group,
                topic=each.topic,
                queue_count=each.queue_count,
                lag=each.lag,
                highest_lag=each.highest_lag,
                member_count=each.member_count,
            )
            for each in stats.top_groups
        ],
    )
    message.period.FromMilliseconds(round(stats.period * 1000))
    return message


def from_status(status: wire.ReportQueueStatsStatus.ValueType) -> str:
    """Read what became of a report; one of a later version is not known to be recorded."""
    return STATUSES.get(status, "failed")
