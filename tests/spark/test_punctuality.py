"""Heartbeat punctuality: histograms of several observers, added up and read off, against plain Python."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pointsman_namesrv.core import liveness as namesrv_liveness
from pointsman_report.io.local_rows import local_rows
from pointsman_report.schemas.liveness_tables import OBSERVER_CLOCKS
from pointsman_report.transforms.heartbeat_histograms import EDGES_MS, beats, heartbeat_histogram, heartbeat_punctuality
from tests.spark.histories import MIDNIGHT, NameServer, Row, broker, moment
from tests.spark.typed import registration_events, rows_of, shuffled

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Histogram = tuple[float, float, dict[str, int]]
"""Shortest, longest, and how many up to each edge."""


def quantile(histograms: list[Histogram], share: float) -> float:
    """Walk the sum of the histograms, bucket by bucket."""
    counts = Counter[float]()
    for _, _, buckets in histograms:
        for edge, count in buckets.items():
            counts[math.inf if edge == "inf" else int(edge)] += count
    shortest, longest = min(h[0] for h in histograms), max(h[1] for h in histograms)
    edges = (0.0, *map(float, namesrv_liveness.EDGES_MS[:-1]), math.inf)
    lower_of = {upper: lower for lower, upper in pairwise(edges)}
    rank, seen = share * sum(counts.values()), 0
    for upper, count in sorted(counts.items()):
        if seen + count >= rank:
            lower = lower_of[upper]
            value = lower + ((longest if upper == math.inf else upper) - lower) * ((rank - seen) / count)
            return min(max(value, shortest), longest)
        seen += count
    raise AssertionError("unreachable")


def random_days(seed: int, *, brokers: int) -> tuple[list[Row], dict[str, list[Histogram]]]:
    """The rows of two name servers for each broker, and the same as numbers."""
    rng = random.Random(seed)
    servers = [NameServer(node=f"ns{n}:9876") for n in (1, 2)]
    expected: dict[str, list[Histogram]] = defaultdict(list)
    for n in range(brokers):
        spread = rng.choice((0.01, 0.3, 2.0))
        for server in servers:
            for tick in range(rng.randint(1, 4)):
                beaten = namesrv_liveness.Punctuality(since=0.0)
                for _ in range(rng.choice((1, 3, 20))):
                    beat = (
                        30.0 * math.exp(rng.gauss(0.0, spread))
                        if rng.random() < 0.9
                        else rng.choice(namesrv_liveness.EDGES)
                    )
                    beaten.add(beat, is_late=False)
                server.say("HEARTBEATS", moment(600 * tick), broker(f"b{n}"), detail=beaten.detail(now=600.0))
                detail: dict[str, Any] = beaten.detail(now=600.0)
                expected[f"b{n}"].append((detail["min_ms"], detail["max_ms"], detail["buckets"]))
    return servers[0].rows + servers[1].rows, expected


def beats_of(events: DataFrame, **offset_seconds: float | None) -> DataFrame:
    clocks = [(MIDNIGHT.date(), f"{node}:9876", by, 9, 0.0) for node, by in offset_seconds.items()]
    return beats(events, local_rows(events.sparkSession, clocks, OBSERVER_CLOCKS.schema))


def test_the_edges_are_those_of_the_name_server() -> None:
    assert (*map(str, EDGES_MS), "inf") == namesrv_liveness.EDGES_MS


def test_quantiles_are_those_of_a_plain_calculation(spark: SparkSession) -> None:
    rows, expected = random_days(7, brokers=60)
    measured = rows_of(heartbeat_punctuality(beats_of(registration_events(spark, rows))))

    assert len(measured) == len(expected) == 60
    for row in measured:
        histograms = expected[row["broker_name"]]
        assert row["beats"] == sum(sum(buckets.values()) for *_, buckets in histograms)
        assert row["min_ms"] == min(h[0] for h in histograms)
        assert row["max_ms"] == max(h[1] for h in histograms)
        for name, share in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)):
            assert row[name] == pytest.approx(quantile(histograms, share)), row


def test_a_clusters_histogram_is_the_sum_of_its_brokers(spark: SparkSession) -> None:
    rows, expected = random_days(8, brokers=20)
    counted = Counter[int | None]()
    for histograms in expected.values():
        for *_, buckets in histograms:
            for edge, count in buckets.items():
                counted[None if edge == "inf" else int(edge)] += count
    measured = rows_of(heartbeat_histogram(beats_of(registration_events(spark, rows))))

    assert {row["up_to_ms"]: row["beats"] for row in measured} == counted


def test_order_of_the_rows_changes_nothing(spark: SparkSession) -> None:
    rows, _ = random_days(9, brokers=5)
    events = registration_events(spark, rows)

    def in_order(seed: int) -> list[Row]:
        table = heartbeat_punctuality(beats_of(shuffled(events, seed=seed)))
        return sorted(rows_of(table), key=lambda row: str(row["broker_name"]))

    assert in_order(1) == in_order(2)


def one(spark: SparkSession, *servers: NameServer, **offset_seconds: float | None) -> Row:
    """The only broker's day; ``offset_seconds``: how far these name servers' clocks are ahead."""
    events = registration_events(spark, [row for server in servers for row in server.rows])
    (row,) = rows_of(heartbeat_punctuality(beats_of(events, **offset_seconds)))
    return row


def test_a_late_heartbeat_counts_once_for_any_number_of_observers(spark: SparkSession) -> None:
    first, second = NameServer(node="ns1:9876"), NameServer(node="ns2:9876")
    for server, times in ((first, (1, 2, 3)), (second, (1, 3))):
        for at in times:
            server.say("LATE_HEARTBEAT", moment(at), broker("a"), interval_ms=50_000)
    row = one(spark, first, second)

    assert (row["late"], row["beats"], row["p50_ms"]) == (3, 0, None)


def test_a_broker_is_shown_with_the_interval_that_it_promised_last(spark: SparkSession) -> None:
    server = NameServer()
    for at, interval in ((1, 30_000), (900, 10_000), (950, "soon"), (960, -1)):
        server.say("CHECKPOINT", moment(at), broker("a"), detail={"heartbeat_interval_ms": interval})
    server.say("CHECKPOINT", moment(1_000), broker("silent"), detail={"heartbeat_interval_ms": 30_000})
    server.say("LATE_HEARTBEAT", moment(1_000), broker("a"), interval_ms=50_000)

    assert one(spark, server)["heartbeat_interval_ms"] == 10_000


def with_clocks(node: str, *ahead_ms: object) -> NameServer:
    """A name server with one row for each of these offsets of the clock of broker ``a``'s agent."""
    server = NameServer(node=node)
    for n, each in enumerate(ahead_ms):
        detail = {"min_ms": 30_000, "max_ms": 30_000, "buckets": {"32000": 20, "45255": 1}, "clock_ahead_ms": each}
        server.say("HEARTBEATS", moment(600 * n), broker("a"), detail=detail)
    return server


def test_an_agents_clock_is_that_of_the_heartbeat_with_the_shortest_delay(spark: SparkSession) -> None:
    first, second = with_clocks("ns1:9876", -9_000, -5_003, None), with_clocks("ns2:9876", None, -5_002, -70_000)

    assert one(spark, first, second)["clock_ahead_ms"] == -5_002.0


def test_the_clock_of_a_name_server_does_not_count_against_an_agent(spark: SparkSession) -> None:
    first, second, third = (
        with_clocks(f"ns{n}:9876", offset_ms) for n, offset_ms in ((1, 59_999), (2, -60_002), (3, -3))
    )
    row = one(spark, first, second, third, ns1=-60.0, ns2=60.0, ns3=None)

    assert row["clock_ahead_ms"] == -1.0


def test_a_clock_that_is_missing_or_not_a_number_is_none(spark: SparkSession) -> None:
    row = one(spark, with_clocks("ns1:9876", None, "soon", [1], 10**30, 1.5))

    assert (row["clock_ahead_ms"], row["beats"]) == (None, 105)


def test_single_heartbeats_count_only_without_a_histogram(spark: SparkSession) -> None:
    server = NameServer()
    for at, interval in enumerate((29_000, 30_000, 31_000, 2_000_000, None, -5)):
        server.say("HEARTBEAT", moment(at), broker("a"), interval_ms=interval)
    alone = one(spark, server)
    server.say("HEARTBEATS", moment(600), broker("a"), detail={"min_ms": 1, "max_ms": 9, "buckets": {"250": 2}})
    beside = one(spark, server)

    assert (alone["beats"], alone["min_ms"], alone["max_ms"]) == (4, 29_000.0, 2_000_000.0)
    assert (beside["beats"], beside["min_ms"], beside["max_ms"]) == (2, 1.0, 9.0)


ABSURD: tuple[Any, ...] = (
    None,
    "[]",
    "{",
    {},
    {"min_ms": 1, "max_ms": 2},
    {"min_ms": 1, "max_ms": 2, "buckets": "many"},
    {"min_ms": 1, "max_ms": 2, "buckets": {"250": "7"}},
    {"min_ms": 1, "max_ms": 2, "buckets": {"250": -7, "354": 0, "x": 3, "-500": 3, "": 1, "9" * 30: 4}},
    {"min_ms": 1, "max_ms": 2, "buckets": {"250": 10**12}},
    {"min_ms": 1, "max_ms": 2, "buckets": {"250": 10**40}},
    {"min_ms": 1, "max_ms": 2, "buckets": {"250": 1.5}},
    {"min_ms": "NaN", "max_ms": "-Infinity", "buckets": {"250": 0}},
    '{"min_ms": NaN, "max_ms": 1e999, "buckets": [1]}',
    '{"min_ms": 1, "max_ms": 2, "buckets": {"250": null}}',
)


def test_an_absurd_histogram_counts_for_nothing(spark: SparkSession) -> None:
    server = NameServer()
    good = {"min_ms": 29_000, "max_ms": 31_000, "buckets": {"32000": 10}}
    for n, detail in enumerate(ABSURD):
        server.say("HEARTBEATS", moment(0), broker(f"b{n}"), detail=good)
        server.say("HEARTBEATS", moment(1), broker(f"b{n}"), detail=detail)
    expected = {"beats": 10, "min_ms": 29_000.0, "p50_ms": 29_000.0, "max_ms": 31_000.0, "late": 0}
    rows = rows_of(heartbeat_punctuality(beats_of(registration_events(spark, server.rows))))

    assert len(rows) == len(ABSURD)
    for row in rows:
        assert {name: row[name] for name in expected} == expected, ABSURD[int(row["broker_name"][1:])]


def test_a_histogram_without_usable_extremes_keeps_its_counts(spark: SparkSession) -> None:
    server = NameServer()
    detail = {"min_ms": "NaN", "max_ms": -1, "buckets": {"32000": 10, "inf": 10}}
    server.say("HEARTBEATS", moment(0), broker("a"), detail=detail)
    row = one(spark, server)

    assert (row["beats"], row["min_ms"], row["max_ms"], row["p50_ms"]) == (20, None, None, 32_000.0)
    assert row["p99_ms"] == EDGES_MS[-1]


def test_edges_of_another_writer_begin_where_its_edge_below_ends(spark: SparkSession) -> None:
    server = NameServer()
    detail = {"min_ms": 0, "max_ms": 60_000, "buckets": {"10001": 50, "60000": 50}}
    server.say("HEARTBEATS", moment(0), broker("a"), detail=detail)
    row = one(spark, server)

    assert row["p50_ms"] == 10_001
    assert row["p95_ms"] == pytest.approx(10_001 + 0.9 * (60_000 - 10_001))
