"""A topic's route at a moment, from a warehouse and from raw history."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession

from pointsman.history.past_route import NO_DATA, NOT_READ, ROUTE, UNKNOWN_TOPIC, RouteResult
from pointsman_report.io import History, SparkPast, Warehouse
from pointsman_report.jobs import pipeline
from pointsman_report.jobs.compact_warehouse import compact
from pointsman_report.jobs.history_reading import Work
from pointsman_report.parameters import Parameters
from pointsman_report.questions.topic_questions import route_at
from tests.spark import route_history
from tests.spark.histories import NameServer, broker, moment, write_history
from tests.spark.route_history import LAST, NIGHT, TOPIC

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture(scope="module")
def files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkPast:
    return route_history.files(spark, tmp_path_factory.mktemp("route"))


@pytest.fixture(scope="module")
def then(files: SparkPast) -> RouteResult:
    """A second after the first name server lost b, and before the second did."""
    return route_at(files, TOPIC, moment(NIGHT + 1), cluster=None)


def test_each_broker_name_that_had_the_topic_is_in_the_result_and_no_other(then: RouteResult) -> None:
    assert then.outcome == ROUTE
    assert [broker.group for broker in then.brokers] == [("c1", "a"), ("c1", "b")]


def test_the_slave_of_a_master_that_unregistered_serves_the_queues_read_only(then: RouteResult) -> None:
    (view,) = then.brokers[0].views

    assert view.seen.queues == (4, 8, 4)
    assert [(one.broker_id, one.state) for one in view.seen.replicas] == [(0, "GONE"), (1, "UP")]


def test_name_servers_that_disagreed_are_named_with_what_they_saw(then: RouteResult) -> None:
    lost = then.brokers[1]

    assert not lost.agreed
    assert {view.nodes: view.seen.queues for view in lost.views} == {("ns1:9876",): None, ("ns2:9876",): (4, 8, 6)}
    assert then.exit_code == 1


def test_a_person_reads_it_in_the_zone_of_the_report(then: RouteResult) -> None:
    text = then.text(BERLIN)

    assert "2026-03-02 04:00:01 CET (2026-03-02T03:00:01.000Z)" in text
    assert "c1/b: the name servers disagreed" in text
    assert "not routed, removed as planned, since 02 Mar 03:51:40" in text
    assert "4 read and 8 write queues, r-, according to ns1:9876, ns2:9876" in text


def test_a_program_reads_it_in_utc(then: RouteResult) -> None:
    document = then.as_dict()

    assert document["at"] == "2026-03-02T03:00:01.000Z"
    assert document["brokers"][0]["views"][0]["queues"] == {"read_queues": 4, "write_queues": 8, "perm": 4}
    assert document["brokers"][1]["views"][0]["replicas"][0]["since"] == "2026-03-02T03:00:00.000Z"


def test_an_unknown_topic_and_a_time_without_data_are_distinguished(files: SparkPast) -> None:
    nothing = route_at(files, "no such topic", moment(NIGHT), cluster=None)
    without_data = route_at(files, TOPIC, moment(3_600 * 19, day=-1), cluster=None)
    elsewhere = route_at(files, TOPIC, moment(NIGHT), cluster="c2")

    assert (nothing.outcome, nothing.exit_code) == (UNKNOWN_TOPIC, 1)
    assert (without_data.outcome, without_data.exit_code) == (NO_DATA, 1)
    assert elsewhere.outcome == UNKNOWN_TOPIC
    assert NO_DATA in without_data.text(BERLIN)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkPast:
    return route_history.tables(spark, tmp_path_factory.mktemp("tables"))


def test_a_moment_that_was_not_read_is_distinguished_from_one_without_data(files: SparkPast, tables: SparkPast) -> None:
    ended = route_at(files, TOPIC, moment(NIGHT + 7_200), cluster=None)
    much_later = route_at(tables, TOPIC, moment(0, day=5), cluster=None)

    assert (ended.outcome, ended.exit_code, ended.last_row_at) == (NOT_READ, 1, moment(NIGHT + 3_700))
    assert f"{NOT_READ}: the history ends at 2026-03-02 05:01:40 CET\n" in ended.text(BERLIN) + "\n"
    assert (much_later.outcome, much_later.last_row_at) == (NOT_READ, None)
    assert "the warehouse has no rows of that day and the day before; use --history" in much_later.text(BERLIN)


def test_a_warehouse_gives_the_same_result_as_the_files(tables: SparkPast, then: RouteResult) -> None:
    assert route_at(tables, TOPIC, moment(NIGHT + 1), cluster="c1").as_dict() == then.as_dict() | {"cluster": "c1"}


@pytest.mark.slow
def test_rows_that_compact_dropped_do_not_count_as_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = NameServer().start(moment(60))
    server.say("REGISTERED", moment(70), broker("a"), data_version="0.0.1")
    for n in range(200):
        server.say("LATE_HEARTBEAT" if n in {20, 50, 150} else "HEARTBEATS", moment(600 + n), broker("a"))
    server.say("NAMESRV_ALIVE", moment(NIGHT))
    lost = {server.rows[23]["seq"], server.rows[153]["seq"]}
    write_history(tmp_path / "history", [row for row in server.rows if row["seq"] not in lost])
    history, warehouse = History(spark, [str(tmp_path / "history")]), Warehouse(spark, str(tmp_path / "warehouse"))
    monkeypatch.setattr(pipeline, "STAGES", ())
    pipeline.compute(Work(history, warehouse, LAST, LAST, Parameters(), lambda _: None))

    def missing(at: float) -> list[int]:
        asked = SparkPast(warehouse=Warehouse(spark, str(tmp_path / "warehouse")))
        return [node.rows_missing for node in route_at(asked, TOPIC, moment(at), cluster=None).nodes]

    before = missing(NIGHT), missing(700)
    dropped = compact(
        spark, str(tmp_path / "warehouse"), before=date(2026, 4, 15), log=lambda _: None, keep_heartbeats_days=8
    ).rows_dropped

    assert dropped == 197
    assert (missing(NIGHT), missing(700)) == before == ([2], [1])
