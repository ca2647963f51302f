"""Queue statistics: each report once, summed by broker, topic and group, against plain Python."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pointsman.group_topics import DLQ_PREFIX, RETRY_PREFIX
from pointsman_report.schemas.health_tables import GROUP_LAG, QUEUE_STATS, TOPIC_LOAD
from pointsman_report.transforms.hot_queues import OF_A_GROUP
from pointsman_report.transforms.queue_reports import group_lag, queue_reports, queue_stats, topic_load
from tests.spark.histories import NameServer, Row, broker, moment
from tests.spark.typed import registration_events, rows_of, shuffled

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SLOT = 1_200
PERIOD = 600


def report(**fields: Any) -> Row:
    """An agent's report; by default of a broker without queues."""
    empty = dict.fromkeys(("queue_count", "unmeasured_queue_count", "topic_count", "depth", "put_rate", "lag"), 0)
    lists: dict[str, list[Row]] = {name: [] for name in ("top_put_rates", "top_lags", "top_topics", "top_groups")}
    return {"period_ms": PERIOD * 1000} | empty | lists | fields


def of_topic(topic: str, *, queues: int, rate: float, highest: float, idle: int = 0) -> Row:
    return {
        "topic": topic,
        "queue_count": queues,
        "idle_queue_count": idle,
        "put_rate": rate,
        "highest_put_rate": highest,
        "depth": 0,
        "highest_depth": 0,
    }


def of_group(group: str, topic: str, *, queues: int, lag: int, highest: int, members: int) -> Row:
    return {
        "group": group,
        "topic": topic,
        "queue_count": queues,
        "lag": lag,
        "highest_lag": highest,
        "member_count": members,
    }


def random_report(rng: random.Random) -> Row:
    topics = rng.sample(("orders", "bills", "mails"), rng.randint(0, 3))
    groups = rng.sample((("g1", "orders"), ("g1", "bills"), ("g2", "orders")), rng.randint(0, 3))
    return report(
        period_ms=rng.choice((600_000, 599_870, 60_000)),
        queue_count=rng.randint(0, 9),
        topic_count=len(topics),
        depth=rng.randint(0, 99),
        put_rate=round(rng.random() * 50, 6),
        lag=rng.randint(0, 999),
        top_topics=[
            of_topic(
                topic, queues=rng.randint(1, 8), rate=rng.random() * 9, highest=rng.random() * 4, idle=rng.randint(0, 2)
            )
            for topic in topics
        ],
        top_groups=[
            of_group(
                *name,
                queues=rng.randint(1, 8),
                lag=rng.randint(0, 500),
                highest=rng.randint(0, 99),
                members=rng.randint(0, 5),
            )
            for name in groups
        ],
    )


Reported = dict[tuple[str, int], list[tuple[float, Row]]]
"""By broker name and id: time and values."""


def random_day(seed: int, *, brokers: int) -> tuple[list[Row], Reported]:
    """Reports of masters and slaves, each received by some of three name servers whose clocks differ."""
    rng = random.Random(seed)
    servers = [NameServer(node=f"ns{n}:9876") for n in range(3)]
    reported: Reported = {}
    for n in range(brokers):
        for broker_id in (0, 1)[: rng.randint(1, 2)]:
            at, own = rng.uniform(100, 700), []
            for _ in range(rng.randint(1, 12)):
                detail = random_report(rng)
                heard = sorted(rng.sample(range(3), rng.randint(1, 3)))
                times = [round(at + 2 * server, 3) for server in heard]
                for server, when in zip(heard, times, strict=True):
                    servers[server].say(
                        "QUEUE_STATS", moment(when), broker(f"b{n}", broker_id=broker_id), detail=detail
                    )
                own.append((times[0], detail))
                at += rng.choice((PERIOD, PERIOD, PERIOD + 60, 3 * PERIOD))
            reported[f"b{n}", broker_id] = own
    return [row for server in servers for row in server.rows], reported


def leading(reported: Reported) -> dict[str, list[tuple[float, Row]]]:
    """The reports that count for each broker name: in each slot those of the replica with the lowest id."""
    by_name: dict[str, list[tuple[float, Row]]] = defaultdict(list)
    for (name, broker_id), own in reported.items():
        for at, detail in own:
            rivals = [
                other for (rival, other), theirs in reported.items() for when, _ in theirs
                if rival == name and when // SLOT == at // SLOT
            ]  # fmt: skip
            if broker_id == min(rivals):
                by_name[name].append((at, detail))
    return {name: sorted(own, key=lambda each: each[0]) for name, own in by_name.items()}


@pytest.fixture(scope="module")
def day(spark: SparkSession) -> tuple[DataFrame, Reported]:
    rows, reported = random_day(11, brokers=25)
    return queue_reports(shuffled(registration_events(spark, rows), seed=3)).cache(), reported


def test_a_brokers_day_is_that_of_a_plain_calculation(day: tuple[DataFrame, Reported]) -> None:
    reports, reported = day
    rows = {(row["broker_name"], row["broker_id"]): row for row in rows_of(queue_stats(reports))}

    assert set(rows) == set(reported)
    for name, own in reported.items():
        row, (_, last) = rows[name], own[-1]
        seconds = sum(detail["period_ms"] for _, detail in own) / 1000
        puts = sum(detail["put_rate"] * detail["period_ms"] / 1000 for _, detail in own)
        assert (row["samples"], row["measured_seconds"]) == (len(own), seconds)
        assert (row["queues"], row["topics"]) == (last["queue_count"], last["topic_count"])
        assert (row["depth"], row["lag"]) == (last["depth"], last["lag"])
        assert row["put_rate"] == pytest.approx(puts / seconds, abs=1e-6)
        assert row["put_rate_max"] == max(detail["put_rate"] for _, detail in own)
        assert row["lag_max"] == max(detail["lag"] for _, detail in own)


def test_a_topics_day_is_that_of_a_plain_calculation(day: tuple[DataFrame, Reported]) -> None:
    reports, reported = day
    expected: dict[str, list[Row]] = defaultdict(list)
    for own in leading(reported).values():
        seconds = sum(detail["period_ms"] for _, detail in own) / 1000
        for topic in ("orders", "bills", "mails"):
            named = [(d["period_ms"] / 1000, t) for _, d in own for t in d["top_topics"] if t["topic"] == topic]
            if named:
                expected[topic].append(
                    {
                        "queues": named[-1][1]["queue_count"],
                        "idle": min(t["idle_queue_count"] for _, t in named),
                        "rate": sum(t["put_rate"] * length for length, t in named) / seconds,
                        "highest": sum(t["highest_put_rate"] * length for length, t in named) / seconds,
                    }
                )
    rows = {row["topic"]: row for row in rows_of(topic_load(reports))}

    assert set(rows) == set(expected)
    for topic, brokers in expected.items():
        row = rows[topic]
        rate, highest = sum(each["rate"] for each in brokers), max(each["highest"] for each in brokers)
        queues = sum(each["queues"] for each in brokers)
        assert (row["brokers"], row["queues"]) == (len(brokers), queues)
        assert row["idle_queues"] == sum(each["idle"] for each in brokers)
        assert row["put_rate"] == pytest.approx(rate, abs=1e-4)
        assert row["highest_put_rate"] == pytest.approx(highest, abs=1e-5)
        assert row["skew"] == pytest.approx(highest / (rate / queues), rel=1e-4)


def test_a_groups_day_is_that_of_a_plain_calculation(day: tuple[DataFrame, Reported]) -> None:
    reports, reported = day
    rows = {(row["consumer_group"], row["topic"]): row for row in rows_of(group_lag(reports))}
    counted = leading(reported)

    assert set(rows) == {("g1", "orders"), ("g1", "bills"), ("g2", "orders")}
    for name, row in rows.items():
        named = {
            b: [(at, g) for at, d in own for g in d["top_groups"] if (g["group"], g["topic"]) == name]
            for b, own in counted.items()
        }
        named = {b: own for b, own in named.items() if own}
        at_end = [
            g for b in named for g in counted[b][-1][1]["top_groups"] if (g["group"], g["topic"]) == name
        ]  # fmt: skip
        slots: dict[tuple[str, float], int] = defaultdict(int)
        for b, own in named.items():
            for at, group in own:
                slots[b, at // SLOT] = max(slots[b, at // SLOT], group["lag"])
        sums = [sum(lag for (_, of), lag in slots.items() if of == slot) for slot in {of for _, of in slots}]
        first, last = sum(own[0][1]["lag"] for own in named.values()), sum(g["lag"] for g in at_end)
        assert (row["lag_first"], row["lag_last"], row["lag_max"]) == (first, last, max(*sums, first, last))
        assert row["queues"] == sum(own[-1][1]["queue_count"] for own in named.values())
        assert row["members"] == max(own[-1][1]["member_count"] for own in named.values())
        assert row["highest_lag"] == max(g["highest_lag"] for g in at_end)


def test_equal_reports_of_an_idle_broker_count_as_two(spark: SparkSession) -> None:
    servers = [NameServer(node=f"ns{n}:9876") for n in range(2)]
    for at in (0, 600, 1_200):
        for server in servers:
            server.say("QUEUE_STATS", moment(at + len(server.node)), broker("a"), detail=report(queue_count=4))
    servers[0].say("QUEUE_STATS", moment(1_800), broker("a"), detail=report(queue_count=4))
    events = registration_events(spark, [row for server in servers for row in server.rows])
    (row,) = rows_of(queue_stats(queue_reports(events)))

    assert (row["samples"], row["measured_seconds"], row["queues"]) == (4, 2_400.0, 4)


HUGE = 2**63 - 1
ABSURD: tuple[Any, ...] = (
    None,
    "[]",
    "{",
    {},
    {"period_ms": "ten minutes", "queue_count": [], "depth": -1, "put_rate": "NaN", "lag": 10**40},
    {"period_ms": 0, "put_rate": 1e300, "top_topics": {}, "top_groups": [1, 2], "top_lags": "?", "top_put_rates": None},
    {"period_ms": -5, "put_rate": -3.0, "top_topics": [None, {}], "top_groups": [{"group": "g"}], "top_lags": [{}]},
    report(
        period_ms=HUGE,
        put_rate="Infinity",
        depth=HUGE,
        lag=HUGE,
        top_topics=[of_topic("t", queues=HUGE, rate=1e7, highest=1e308, idle=HUGE)] * 2,
        top_groups=[of_group("g", "t", queues=HUGE, lag=HUGE, highest=HUGE, members=HUGE)],
        top_lags=[{"group": "g", "topic": "t", "queue_id": "x", "lag": HUGE, "put_rate": 0}],
        top_put_rates=[{"topic": "t", "queue_id": HUGE, "put_rate": 1e7, "depth": HUGE}],
    ),
)


def absurd_reports() -> list[Row]:
    """Each reported by separate brokers, several times: no sum of them may overflow."""
    server = NameServer()
    for n, detail in enumerate(ABSURD):
        for name in (f"x{n}", f"y{n}"):
            for at in range(20):
                server.say("QUEUE_STATS", moment(600 * at), broker(name), detail=detail)
    return server.rows


def test_absurd_reports_are_null_and_no_failure(spark: SparkSession) -> None:
    reports = queue_reports(registration_events(spark, absurd_reports()))
    brokers = {row["broker_name"]: row for row in rows_of(queue_stats(reports))}
    topics = rows_of(topic_load(reports))
    groups = rows_of(group_lag(reports))

    nothing = ("queues", "topics", "depth", "put_rate", "put_rate_max", "lag", "lag_max")
    for n in range(1, 7):
        assert {name: brokers[f"x{n}"][name] for name in nothing} == dict.fromkeys(nothing), ABSURD[n]
        assert (brokers[f"x{n}"]["samples"], brokers[f"x{n}"]["measured_seconds"]) == (20, 0.0)
    assert (brokers["x7"]["depth"], brokers["x7"]["lag"], brokers["x7"]["put_rate"]) == (HUGE, HUGE, None)
    (topic,) = topics
    assert (topic["topic"], topic["queues"], topic["idle_queues"], topic["skew"]) == ("t", None, None, None)
    (group,) = groups
    assert (group["lag_last"], group["queues"], group["highest_lag"]) == (None, None, HUGE)


def test_the_tables_are_as_declared(day: tuple[DataFrame, Reported]) -> None:
    reports, _ = day
    declared = ((queue_stats, QUEUE_STATS), (topic_load, TOPIC_LOAD), (group_lag, GROUP_LAG))
    for transform, table in declared:
        assert transform(reports).dtypes == [(f.name, f.dataType.simpleString()) for f in table.schema.fields]


def test_a_groups_own_topics_are_named_as_everywhere() -> None:
    assert OF_A_GROUP == (RETRY_PREFIX, DLQ_PREFIX)
