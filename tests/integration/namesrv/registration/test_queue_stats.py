"""ReportQueueStats over a real channel: recorded once, fenced, refused by field, and nowhere else to be seen."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from grpc_status import rpc_status

from pointsman.v1 import admin_service_pb2
from pointsman.v1 import registration_service_pb2 as messages
from pointsman.wire.error_details import read_status
from pointsman_namesrv.app import NameServerApp
from pointsman_report.cli import main
from tests.kit.history.rows import rows_in
from tests.kit.name_server import wire
from tests.kit.name_server.peer import Peer, serving

RECORDED = messages.REPORT_QUEUE_STATS_STATUS_RECORDED
STALE = messages.REPORT_QUEUE_STATS_STATUS_STALE_GENERATION
UNKNOWN = messages.REPORT_QUEUE_STATS_STATUS_UNKNOWN_BROKER

STATS = messages.QueueStats(
    queue_count=2,
    unmeasured_queue_count=1,
    topic_count=1,
    depth=12,
    put_rate=2.5,
    lag=7,
    top_put_rates=[messages.QueuePuts(topic="orders", queue_id=1, put_rate=2.5, depth=12)],
    top_lags=[messages.QueueLag(group="g", topic="orders", queue_id=1, lag=7, put_rate=2.5)],
    top_topics=[
        messages.TopicTotals(
            topic="orders",
            queue_count=2,
            idle_queue_count=1,
            put_rate=2.5,
            highest_put_rate=2.5,
            depth=12,
            highest_depth=12,
        )
    ],
    top_groups=[messages.GroupTotals(group="g", topic="orders", queue_count=2, lag=7, highest_lag=7, member_count=3)],
)
STATS.period.FromSeconds(600)


def report(generation: int, stats: messages.QueueStats = STATS, **who: object) -> messages.ReportQueueStatsRequest:
    identity = wire.identity(**who)  # type: ignore[arg-type]  # whatever the test names
    return messages.ReportQueueStatsRequest(identity=identity, generation=generation, stats=stats)


def counted(server: NameServerApp, result: str) -> float | None:
    return server.metrics.registry.get_sample_value("pointsman_namesrv_queue_stats_reports_total", {"result": result})


async def test_a_report_is_one_row_of_the_history_that_matches_the_public_schema(tmp_path: Path) -> None:
    async with serving(history=tmp_path) as (server, peer):
        generation = await peer.register("orders")
        assert (await peer.registration.ReportQueueStats(report(generation))).status == RECORDED
        assert counted(server, "RECORDED") == 1
    (row,) = [row for row in rows_in(tmp_path) if row["event"] == "QUEUE_STATS"]

    assert (row["cluster"], row["broker_name"], row["broker_id"], row["reason"]) == ("c1", "a", 0, None)
    assert row["generation"] == str(generation)
    detail = row["detail"]
    totals = ("period_ms", "queue_count", "unmeasured_queue_count", "topic_count", "depth", "put_rate", "lag")
    assert [detail[name] for name in totals] == [600_000, 2, 1, 1, 12, 2.5, 7]
    for name in ("top_put_rates", "top_lags", "top_topics", "top_groups"):
        (message,) = getattr(STATS, name)
        assert detail[name] == [{field.name: getattr(message, field.name) for field, _ in message.ListFields()}]
    (file,) = tmp_path.rglob("*.jsonl.gz")  # noqa: ASYNC240  # the server is stopped
    assert main(["validate", str(file)]) == 0


async def test_a_report_under_another_generation_or_of_an_unknown_broker_is_rejected_and_not_recorded(
    server: NameServerApp, peer: Peer
) -> None:
    first = await peer.register()
    second = await peer.register()
    stale = await peer.registration.ReportQueueStats(report(first))
    elsewhere = await peer.registration.ReportQueueStats(report(second, addr="10.0.0.2:1"))
    unknown = await peer.registration.ReportQueueStats(report(second, name="b"))

    assert [(answer.status, answer.holder_addr) for answer in (stale, elsewhere, unknown)] == [
        (STALE, "10.0.0.1:10911"),
        (STALE, "10.0.0.1:10911"),
        (UNKNOWN, ""),
    ]
    assert counted(server, "STALE_GENERATION") == 2
    assert counted(server, "UNKNOWN_BROKER") == 1
    assert counted(server, "RECORDED") is None


async def test_a_report_does_not_evict_explaining_events_from_the_recent_ones(peer: Peer) -> None:
    generation = await peer.register()
    for _ in range(60):
        await peer.registration.ReportQueueStats(report(generation))
    asked = admin_service_pb2.ListBrokerEventsRequest(cluster="c1", broker_name="a")
    recent = await peer.admin.ListBrokerEvents(asked)

    assert [event.event for event in recent.events] == ["REGISTERED"]


PUTS = [messages.QueuePuts(topic="t", queue_id=n) for n in range(21)]
LAGS = [messages.QueueLag(group="g", topic="t", queue_id=n) for n in range(21)]


@pytest.mark.parametrize(
    ("stats", "field", "problem"),
    [
        (messages.QueueStats(top_put_rates=PUTS), "stats.top_put_rates", "may hold at most 20 entries, not 21"),
        (messages.QueueStats(top_lags=LAGS), "stats.top_lags", "may hold at most 20 entries, not 21"),
        (
            messages.QueueStats(top_topics=[messages.TopicTotals(topic="t")] * 100_000),
            "stats.top_topics",
            "may hold at most 20 entries, not 100000",
        ),
        (
            messages.QueueStats(top_groups=[messages.GroupTotals(group="g", topic="t")] * 21),
            "stats.top_groups",
            "may hold at most 20 entries, not 21",
        ),
        (messages.QueueStats(put_rate=float("nan")), "stats.put_rate", "must be finite and not negative, not nan"),
        (messages.QueueStats(depth=2**64 - 1), "stats.depth", f"must be from 0 to {2**63 - 1}, not {2**64 - 1}"),
        (
            messages.QueueStats(top_put_rates=[messages.QueuePuts(topic="a\nb")]),
            "stats.top_put_rates[0].topic",
            "may hold only letters, digits and %|_-.+: 'a\\nb'",
        ),
        (
            messages.QueueStats(top_lags=[messages.QueueLag(group="x" * 263, topic="t")]),
            "stats.top_lags[0].group",
            f"has 263 characters, at most 262 are allowed: '{'x' * 76}...",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_invalid_report_is_refused_by_field_and_not_recorded(
    server: NameServerApp, peer: Peer, stats: messages.QueueStats, field: str, problem: str
) -> None:
    generation = await peer.register()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await peer.registration.ReportQueueStats(report(generation, stats))

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    violations = read_status(rpc_status.from_call(refused.value)).violations
    assert [(violation.field, violation.description) for violation in violations] == [(field, problem)]
    assert counted(server, "RECORDED") is None
