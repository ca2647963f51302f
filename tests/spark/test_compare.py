"""Comparison of two days: changes for the better or worse, the biggest first, and what counts as worse."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession

from pointsman_report.io import Warehouse
from pointsman_report.questions.day_comparison import MAX_ENTRIES, Comparison, compare
from pointsman_report.report_errors import ReportError
from pointsman_report.schemas import TABLES
from tests.spark.histories import MIDNIGHT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ONE = MIDNIGHT.date()
OTHER, QUIET = ONE + timedelta(days=1), ONE + timedelta(days=2)
UTC = ZoneInfo("UTC")

Facts = dict[str, Any]


def broker(name: str, **facts: Any) -> Facts:
    return {"cluster": "c1", "broker_name": name, "broker_id": 0} | facts


def cluster(name: str, availability: float, **facts: Any) -> Facts:
    down = (1 - availability) * 86_400
    return {"cluster": name, "availability": availability, "down_seconds": down, "outages": 1, "brokers": 3} | facts


def hot(topic: str, kind: str = "key_skew") -> Facts:
    document = {"says": f"{topic} is uneven", "cure": "shard it", "value": 5.0, "limit": 3.0}
    return {"cluster": "c1", "kind": kind, "topic": topic, "broker_name": "a", "queue_id": 1} | document


def at_risk(topic: str, unwritable: float) -> Facts:
    seconds = {"unwritable_seconds": unwritable, "no_master_seconds": 0.0, "one_broker_seconds": 5.0}
    return {"cluster": "c1", "topic": topic, "brokers": 2, "worst": "one_broker"} | seconds


BEFORE: dict[str, list[Facts]] = {
    "cluster_health": [cluster("c1", 0.9999), cluster("c2", 0.99), cluster("same", 0.99999), cluster("closed", 1.0)],
    "incidents": [{"incident_id": f"i{n}", "cluster": "same", "brokers": 3} for n in range(2)],
    "flapping": [
        *(broker(f"b{n:02}", **{"class": "healthy"}) for n in range(25)),
        broker("repaired", **{"class": "chronic"}),
        broker("young", **{"class": "new"}),
        broker("left", **{"class": "healthy"}),
    ],
    "heartbeat_punctuality": [broker("a", p99_ms=30_000.0), broker("b", p99_ms=50_000.0), broker("c", p99_ms=300.0)],
    "topics_at_risk": [at_risk("orders", 10.0), at_risk("bills", 900.0), at_risk("mails", 0.0)],
    "topic_churn": [
        {"cluster": "c1", "topic": "orders", "created": 1, "removed": 0, "queue_changes": 2, "perm_changes": 0}
    ],
    "hot_queues": [hot("orders"), hot("bills")],
    "namesrv_days": [{"node": "ns1", "starts": 1, "vanished": 0}, {"node": "ns2", "rows_missing": 7, "vanished": 0}],
}  # fmt: skip
AFTER: dict[str, list[Facts]] = {
    "cluster_health": [cluster("c1", 0.98), cluster("c2", 0.995), cluster("same", 0.999985), cluster("opened", 1.0)],
    "incidents": [{"incident_id": "i3", "cluster": "same", "brokers": 3}],
    "flapping": [
        *(broker(f"b{n:02}", penalty_max=float(n), **{"class": "dead" if n == 3 else "degraded"}) for n in range(25)),
        broker("repaired", **{"class": "healthy"}),
        broker("young", **{"class": "healthy"}),
        broker("came", **{"class": "new"}),
    ],
    "heartbeat_punctuality": [broker("a", p99_ms=70_000.0), broker("b", p99_ms=30_000.0), broker("c", p99_ms=900.0)],
    "topics_at_risk": [at_risk("orders", 100.0), at_risk("bills", 800.0), at_risk("new", 3.0)],
    "topic_churn": [],
    "hot_queues": [hot("orders"), hot("mails", kind="too_many_queues")],
    "namesrv_days": [{"node": "ns1", "starts": 2, "vanished": 1}, {"node": "ns2", "rows_missing": 0, "vanished": 0}],
}


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    made = Warehouse(spark, str(tmp_path_factory.mktemp("compare")))
    days = ((ONE, BEFORE), (OTHER, AFTER), (QUIET, AFTER))
    for table in (*BEFORE, "computed_days"):
        schema = TABLES[table].schema
        rows = [facts | {"dt": day} for day, tables in days for facts in tables.get(table, [{}])]
        made.stage(
            table, spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema)
        )
    made.publish(first_day=ONE, last_day=QUIET)
    return made


@pytest.fixture(scope="module")
def worse(warehouse: Warehouse) -> Comparison:
    return compare(warehouse, ONE, OTHER)


def named(comparison: Comparison, subject: str, by: str) -> dict[str, list[str]]:
    return {kind: [row[by] for row in found["rows"]] for kind, found in comparison.changes[subject].items()}


def test_clusters_are_worse_or_better_by_more_than_a_hundredth_of_a_percent(worse: Comparison) -> None:
    assert named(worse, "clusters", "cluster") == {
        "worse": ["c1"],
        "better": ["c2"],
        "new": ["opened"],
        "gone": ["closed"],
        "otherwise": ["same"],
    }
    (same,) = worse.changes["clusters"]["otherwise"]["rows"]
    assert (same["incidents_before"], same["incidents_after"]) == (2, 1)


def test_brokers_change_for_the_worse_by_class_and_the_worst_are_listed_first(worse: Comparison) -> None:
    names = named(worse, "brokers", "broker_name")

    assert names["worse"][:3] == ["b03", "b24", "b23"]
    assert (worse.changes["brokers"]["worse"]["in_all"], len(names["worse"])) == (25, MAX_ENTRIES)
    assert (names["better"], names["new"], names["gone"]) == (["repaired"], ["came"], ["left"])


def test_topics_queues_name_servers_and_heartbeats_are_listed_if_they_differ(worse: Comparison) -> None:
    assert named(worse, "topics_at_risk", "topic") == {
        "new": ["new"], "gone": ["mails"], "worse": ["orders"], "better": ["bills"]
    }  # fmt: skip
    assert named(worse, "queues", "topic") == {"new": ["mails"], "gone": ["bills"]}
    assert named(worse, "name_servers", "node") == {"worse": ["ns1"], "better": ["ns2"]}
    assert named(worse, "heartbeats", "broker_name") == {"later": ["a"], "earlier": ["b"]}
    assert worse.churn["before"] == {"created": 1, "removed": 0, "queue_changes": 2, "perm_changes": 0}
    assert set(worse.churn["after"].values()) == {0}


def test_what_got_worse_makes_the_exit_code_1(worse: Comparison, warehouse: Warehouse) -> None:
    same = compare(warehouse, OTHER, QUIET)

    assert worse.got_worse == {"clusters": 1, "brokers": 25, "topics_at_risk": 2, "queues": 1, "name_servers": 1}
    assert worse.exit_code == 1
    assert (same.got_worse, same.exit_code) == ({}, 0)
    assert not any(same.changes.values())
    assert "no change for the worse" in same.text(UTC)


def test_later_heartbeats_alone_are_listed_and_are_not_worse(worse: Comparison) -> None:
    only = Comparison(
        ONE, OTHER, {name: {} for name in worse.changes} | {"heartbeats": worse.changes["heartbeats"]}, worse.churn
    )

    assert only.exit_code == 0
    assert "later: 1" in only.text(UTC)


def test_a_person_reads_numbers_of_both_days_in_short_lines(worse: Comparison) -> None:
    lines = worse.text(UTC).splitlines()

    assert lines[0] == f"{OTHER} compared with {ONE} (UTC days)"
    assert lines[1] == ("worse: 1 cluster, 25 brokers, 2 topics at risk, 1 finding about queues, 1 name server")
    (c1,) = [line for line in lines if line.startswith("  c1") and "98.000 %" in line]
    assert "99.990 % \N{RIGHTWARDS ARROW} 98.000 %" in c1
    assert "Brokers, worse: 25" in lines
    assert "  and 5 more" in lines
    assert "  c1       mails is uneven -> shard it" in lines
    assert max(map(len, lines)) < 160


def test_a_program_gets_all_of_it_as_json(worse: Comparison) -> None:
    document = json.loads(json.dumps(worse.as_dict()))

    assert (document["one"], document["other"]) == (ONE.isoformat(), OTHER.isoformat())
    assert document["changes"]["brokers"]["better"]["rows"][0]["before"]["class"] == "chronic"


def test_a_day_that_was_not_computed_is_named_with_the_command_to_run(warehouse: Warehouse) -> None:
    with pytest.raises(ReportError, match=r"2026-02-01 and 2026-02-03 were not computed: .* --from 2026-02-01 --to"):
        compare(warehouse, date(2026, 2, 3), date(2026, 2, 1))
    with pytest.raises(ReportError, match="2026-02-01 was not computed"):
        compare(warehouse, date(2026, 2, 1), ONE)
