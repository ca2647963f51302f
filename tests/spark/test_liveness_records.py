"""Facts that brokers report, differences between clocks, and absurd numbers in rows about name servers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pointsman_report.schemas.liveness_tables import BLIND_PERIODS, BROKER_FACTS, MAINTENANCE_WINDOWS, OBSERVER_WINDOWS
from pointsman_report.transforms.broker_facts import broker_changes, broker_facts, ordered_facts
from pointsman_report.transforms.namesrv_days import namesrv_days, observer_clocks
from pointsman_report.transforms.observer_periods import blind_periods, maintenance_windows
from tests.spark.histories import MIDNIGHT, NameServer, Row, broker, moment
from tests.spark.tables import with_times_as_text
from tests.spark.typed import registration_events, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DAY, NEXT_DAY = MIDNIGHT.date(), MIDNIGHT.date() + timedelta(days=1)
DAYS = {"first_day": DAY, "last_day": NEXT_DAY}
ONE, TWO, THREE = "ns1:9876", "ns2:9876", "ns3:9876"


def micros(seconds: float, *, day: int = 0) -> int:
    return int(moment(seconds, day=day).timestamp() * 1_000_000)


def events_and_facts(spark: SparkSession, *servers: NameServer) -> tuple[DataFrame, DataFrame]:
    """The rows, and their facts without earlier ones."""
    events = registration_events(spark, [row for server in servers for row in server.rows])
    return events, ordered_facts(events, spark.createDataFrame([], BROKER_FACTS.schema))


def changes(spark: SparkSession, *servers: NameServer) -> list[tuple[Any, ...]]:
    events, facts = events_and_facts(spark, *servers)
    rows = rows_of(with_times_as_text(broker_changes(facts, events)))
    return sorted((row["changed_at#us"], row["what"], row["before"], row["after"]) for row in rows)


def facts(version: str | None, process: str | None, **others: Any) -> Row:
    return broker("b") | {"broker_version": version, "incarnation": process} | others


def test_a_change_that_three_name_servers_saw_is_one_change_at_the_earliest_time(spark: SparkSession) -> None:
    servers = [NameServer(node) for node in (ONE, TWO, THREE)]
    for late, server in enumerate(servers):
        server.say("REGISTERED", moment(10 + late), facts("1.0", "i1", host="h1"))
        server.say("EXPIRED", moment(100 + late), facts("1.0", "i1", host="h1"))
        server.say("REGISTERED", moment(200 + 20 * late), facts("1.1", "i2", host="h1"))
        server.say("ADDRESS_CHANGED", moment(210 + 20 * late), facts("1.1", "i2", host="h2", broker_addr="x:1"))
    # The second name server gets a row of the first process again, when the first already knows the next one.
    servers[1].say("REREGISTERED", moment(205), facts("1.0", "i1", host="h1"))
    servers[0].say("ADDRESS_CHANGED", moment(900), facts("1.1", "i2", host="h1"))

    assert changes(spark, *servers) == [
        (micros(200), "incarnation", "i1", "i2"),
        (micros(200), "version", "1.0", "1.1"),
        (micros(210), "address", "b:6379", "x:1"),
        (micros(210), "host", "h1", "h2"),
        (micros(900), "address", "x:1", "b:6379"),
        (micros(900), "host", "h2", "h1"),
    ]


def test_a_field_that_is_left_out_changes_nothing_and_the_first_facts_are_not_a_change(spark: SparkSession) -> None:
    server = NameServer(ONE)
    for second, version in enumerate(("", "1.0", None, "1.0", "", "2.0")):
        server.say("REREGISTERED", moment(second), facts(version, None))

    assert changes(spark, server) == [(micros(5), "version", "1.0", "2.0")]


def test_a_checkpoint_provides_facts_only_if_all_name_servers_agree(spark: SparkSession) -> None:
    one, two = NameServer(ONE), NameServer(TWO)
    one.say("REGISTERED", moment(10), facts("1.0", "i1"))
    # On the second day one name server does not know 1.1 yet; on the third both do.
    one.say("CHECKPOINT", moment(0, day=1), facts("1.1", "i2"), reason="DAY")
    two.say("CHECKPOINT", moment(0, day=1), facts("1.0", "i1"), reason="DAY")
    one.say("CHECKPOINT", moment(1, day=2), facts("1.2", "i3"), reason="DAY")
    two.say("CHECKPOINT", moment(0, day=2), facts("1.2", "i3"), reason="DAY")

    assert changes(spark, one, two) == [
        (micros(0, day=2), "incarnation", "i1", "i3"),
        (micros(0, day=2), "version", "1.0", "1.2"),
    ]


def test_another_position_in_the_group_is_one_change_of_role_for_any_number_of_observers(spark: SparkSession) -> None:
    one, two = NameServer(ONE), NameServer(TWO)
    for late, server in enumerate((one, two)):
        server.say("REGISTERED", moment(10), facts("1.0", "i1") | {"broker_id": 1})
        for second in (100, 300):
            moved = {"previous_broker_id": 1}
            server.say("ROLE_CHANGED", moment(second + late), facts("1.0", "i1"), detail=moved)

    assert changes(spark, one, two) == [(micros(100), "role", "1", "0"), (micros(300), "role", "1", "0")]


def test_facts_of_a_day_are_compared_with_those_of_the_day_before(spark: SparkSession) -> None:
    server = NameServer(ONE)
    server.say("REGISTERED", moment(10, day=1), facts("1.1", "i2"))
    events = registration_events(spark, server.rows)
    before = (DAY, "c1", "b", 0, "b:6379", "z1", None, "i1", "1.0", "web team", moment(5))
    after = ordered_facts(events, spark.createDataFrame([before], BROKER_FACTS.schema))

    (known,) = rows_of(broker_facts(after, first_day=NEXT_DAY, last_day=NEXT_DAY))
    assert (known["broker_version"], known["zone"], known["incarnation"]) == ("1.1", "z1", "i2")
    assert known["owner"] == "web team", "a registration that names none says nothing of it"
    assert {row["what"] for row in rows_of(broker_changes(after, events))} == {"version", "incarnation"}


def test_an_owner_is_a_fact_that_changes(spark: SparkSession) -> None:
    server = NameServer(ONE)
    server.say("REGISTERED", moment(10), facts("1.0", "i1"), detail={"topics": 1, "owner": "web team"})
    server.say("REREGISTERED", moment(20), facts("1.0", "i1"), detail={"topics": 1, "owner": ""})
    server.say("REREGISTERED", moment(30), facts("1.0", "i1"), detail={"topics": 1, "owner": "shop"})

    assert changes(spark, server) == [(micros(30), "owner", "web team", "shop")]


def test_clocks_are_compared_by_events_that_several_name_servers_saw(spark: SparkSession) -> None:
    one, two, three = (NameServer(node) for node in (ONE, TWO, THREE))
    for n in range(6):
        about = facts("1.0", f"i{n}", data_version="0.0.1")
        for server, ahead in ((one, 0.0), (two, 180.0), (three, -1.5)):
            server.say("REGISTERED", moment(1_000 * n + ahead + 10), about)
    # It registered often with the same facts: which of them belong together is unknown.
    for n in range(50):
        for server in (one, two):
            server.say("REGISTERED", moment(20_000 + n), facts("1.0", "same", data_version="0.0.1"))
    three.say("NAMESRV_ALIVE", moment(30_000), uptime_ms=30_090_000)

    rows = {row["node"]: row for row in rows_of(observer_clocks(events_of(spark, one, two, three)))}

    assert {node: (row["offset_seconds"], row["samples"]) for node, row in rows.items()} == {
        ONE: (0.0, 6),
        TWO: (180.0, 6),
        THREE: (-1.5, 6),
    }
    assert (rows[ONE]["stepped_seconds"], rows[THREE]["stepped_seconds"]) == (0.0, 90.0)


def test_four_shared_events_are_too_few_to_compare_clocks_and_an_absurd_uptime_breaks_nothing(
    spark: SparkSession,
) -> None:
    one, two = NameServer(ONE), NameServer(TWO)
    for n in range(4):
        for server in (one, two):
            server.say("UNREGISTERED", moment(n), facts("1.0", f"i{n}", data_version="0.0.1"), uptime_ms=2**63 - 1)

    rows = rows_of(observer_clocks(events_of(spark, one, two)))

    assert [(row["offset_seconds"], row["stepped_seconds"], row["samples"]) for row in rows] == [(None, None, 4)] * 2


def events_of(spark: SparkSession, *servers: NameServer) -> DataFrame:
    return registration_events(spark, [row for server in servers for row in server.rows])


def window(boot_id: str, begin: float, end: float) -> tuple[Any, ...]:
    """A life of the first name server that ended on the day."""
    return (DAY, ONE, boot_id, moment(begin), moment(end), False, moment(end), 9, 9, 0, [], None)


def test_two_machines_with_one_name_appear_as_runs_that_overlap(spark: SparkSession) -> None:
    lives = [window("b1", 0, 1_000), window("b2", 500, 2_000), window("b3", 2_000, 3_000)]
    windows = spark.createDataFrame(lives, OBSERVER_WINDOWS.schema)
    nothing = spark.createDataFrame([], BLIND_PERIODS.schema)

    (day,) = rows_of(namesrv_days(events_of(spark), windows, nothing))

    assert (day["lives"], day["overlapping_lives"], day["vanished"]) == (3, 2, 3)


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", -5, 1e300, None, [], {"a": 1}, True])
def test_an_absurd_length_makes_no_pause_and_no_endless_window(spark: SparkSession, seconds: object) -> None:
    server = NameServer(ONE)
    server.say("NAMESRV_PAUSED", moment(100), detail={"seconds": seconds})
    server.say("MAINTENANCE_ON", moment(100), {"cluster": "c1"}, detail={"seconds": seconds})
    server.say("MAINTENANCE_ON", moment(100), {"broker_name": "b"}, detail="{")
    windows = spark.createDataFrame([window("b1", 0, 1_000)], OBSERVER_WINDOWS.schema)
    events = events_of(spark, server)
    nothing = (spark.createDataFrame([], table.schema) for table in (BLIND_PERIODS, MAINTENANCE_WINDOWS))

    assert rows_of(blind_periods(events, windows, next(nothing), **DAYS)) == []
    announced = maintenance_windows(events, next(nothing), **DAYS)
    assert {row["until_at#us"] for row in rows_of(with_times_as_text(announced))} == {micros(100, day=1)}
