"""Comparison of two days: changes for the better or worse, the biggest first, and what counts as worse.

That tables are read the same with and without Spark is tested in tests/spark/test_compare.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from zoneinfo import ZoneInfo

import pytest

from pointsman_report.questions.day_comparison import MAX_ENTRIES, Changes, Comparison, compare
from pointsman_report.report_errors import ReportError
from tests.spark.compared_days import (
    ONE,
    OTHER,
    QUIET,
    TABLES_OF_DAYS,
    Facts,
    at_risk,
    broker,
    cluster,
    hot,
    stated_days,
)

UTC = ZoneInfo("UTC")


@pytest.fixture(scope="module")
def worse() -> Comparison:
    return compare(stated_days(TABLES_OF_DAYS), ONE, OTHER)


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


def test_what_got_worse_makes_the_exit_code_1(worse: Comparison) -> None:
    same = compare(stated_days(TABLES_OF_DAYS), OTHER, QUIET)

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
    assert list(document["changes"]["clusters"]) == ["better", "gone", "new", "otherwise", "worse"]
    assert document["changes"]["brokers"]["better"]["rows"][0]["before"]["class"] == "chronic"


def test_a_day_that_was_not_computed_is_named_with_the_command_to_run() -> None:
    past = stated_days(TABLES_OF_DAYS)
    with pytest.raises(ReportError, match=r"2026-02-01 and 2026-02-03 were not computed: .* --from 2026-02-01 --to"):
        compare(past, date(2026, 2, 3), date(2026, 2, 1))
    with pytest.raises(ReportError, match="2026-02-01 was not computed"):
        compare(past, date(2026, 2, 1), ONE)


def changes(table: str, before: Sequence[Facts], after: Sequence[Facts], **others: Sequence[Facts]) -> Changes:
    """The changes of days with rows of one table; ``others``: of the second day."""
    one = {table: before, "computed_days": [{}]}
    return compare(stated_days({ONE: one, OTHER: one | {table: after, **others}}), ONE, OTHER).changes


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (0.0000999, 0.0, set()),
        (0.0001, 0.0, {"worse"}),
        (0.0, 0.0001, {"better"}),
        (0.0, 0.0000999, set()),
        (None, 0.5, set()),
        (0.5, None, set()),
    ],
)
def test_the_availability_counts_from_its_threshold_and_if_both_days_have_one(
    before: float | None, after: float | None, expected: set[str]
) -> None:
    sides = [[{"cluster": "c1", "availability": value, "outages": 1}] for value in (before, after)]

    assert set(changes("cluster_health", *sides)["clusters"]) == expected


def test_other_outages_or_incidents_of_a_cluster_are_neither_better_nor_worse() -> None:
    def found(before: int | None, after: int | None, *incidents: Facts) -> set[str]:
        sides = [[cluster("c1", 1.0, outages=count)] for count in (before, after)]
        return set(changes("cluster_health", *sides, incidents=incidents)["clusters"])

    assert (found(1, 2), found(1, 1), found(None, 2), found(1, None)) == ({"otherwise"}, set(), set(), set())
    assert found(None, 2, {"cluster": "c1"}) == {"otherwise"}
    assert found(1, 1, {"cluster": "another"}) == set()
    sides = [[cluster("c1", availability, outages=count)] for availability, count in ((1.0, 1), (0.9, 2))]
    assert set(changes("cluster_health", *sides)["clusters"]) == {"worse"}


def test_clusters_are_listed_by_the_difference_of_their_downtime_and_then_by_name() -> None:
    found = changes(
        "cluster_health",
        [cluster(name, 1.0, down_seconds=seconds) for name, seconds in (("a", 50.0), ("b", 0.0), ("c", None))],
        [cluster(name, 0.9, down_seconds=seconds) for name, seconds in (("a", 0.0), ("b", 60.0), ("c", 50.0))],
    )

    assert [row["cluster"] for row in found["clusters"]["worse"]["rows"]] == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("degraded", "unwatched", {"worse"}),
        ("flapping", "chronic", {"worse"}),
        ("chronic", "of a later release", {"better"}),
        ("healthy", "degraded", {"worse"}),
        ("healthy", "new", set()),
        ("retired", "of a later release", set()),
        (None, "chronic", set()),
        ("chronic", None, set()),
    ],
)
def test_classes_that_need_no_attention_are_equal_and_an_unknown_class_changes_nothing(
    before: str | None, after: str | None, expected: set[str]
) -> None:
    sides = [[broker("b", **{"class": name})] for name in (before, after)]

    assert set(changes("flapping", *sides)["brokers"]) == expected


def test_brokers_are_listed_by_the_worst_class_and_then_by_the_penalty_unknown_ones_last() -> None:
    after = [
        broker("a", penalty_max=None, **{"class": "dead"}),
        broker("b", penalty_max=1.0, **{"class": "dead"}),
        broker("c", penalty_max=2.0, **{"class": "dead"}),
        broker("d", penalty_max=2.0, **{"class": "chronic"}),
        broker("e", penalty_max=None, **{"class": None}),
        broker("b", penalty_max=1.0, broker_id=10, **{"class": "dead"}),
        broker("b", penalty_max=1.0, broker_id=9, **{"class": "dead"}),
    ]
    found = changes("flapping", [], after)["brokers"]["new"]["rows"]

    names = [(row["broker_name"], row["broker_id"]) for row in found]
    assert names == [("e", 0), ("d", 0), ("c", 0), ("b", 0), ("b", 9), ("b", 10), ("a", 0)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (5.0, 64.9, set()),
        (5.0, 65.0, {"worse"}),
        (65.0, 5.0, {"better"}),
        (64.9, 5.0, set()),
        (None, 900.0, set()),
    ],
)
def test_a_topic_at_risk_is_worse_from_a_minute_more(before: float | None, after: float, expected: set[str]) -> None:
    sides = [[at_risk("orders", 0.0) | {"unwritable_seconds": value}] for value in (before, after)]

    assert set(changes("topics_at_risk", *sides)["topics_at_risk"]) == expected


def test_topics_at_risk_are_listed_by_the_longest_time_of_either_day() -> None:
    before = [at_risk("c", 10.0), at_risk("b", 900.0), at_risk("a", 0.0), at_risk("d", 0.0)]
    after = [at_risk("c", 800.0), at_risk("b", 990.0), at_risk("a", 800.0), at_risk("d", 800.0)]
    after[3]["no_master_seconds"] = 1.0
    found = changes("topics_at_risk", before, after)["topics_at_risk"]["worse"]["rows"]

    assert [row["topic"] for row in found] == ["b", "d", "a", "c"]


def test_findings_about_queues_are_listed_by_how_far_they_are_above_their_limit() -> None:
    after = [
        hot("no limit") | {"limit": 0.0},
        hot("twice") | {"value": 6.0},
        hot("thrice") | {"value": 9.0},
        hot("no value") | {"value": None},
        hot("thrice") | {"topic": None, "value": 9.0},
        hot("thrice") | {"queue_id": 2, "value": 12.0, "says": "b"},
        hot("thrice") | {"queue_id": 3, "value": 12.0, "says": "a"},
    ]
    found = changes("hot_queues", [hot("another")], after)["queues"]

    topics = [row["topic"] for row in found["new"]["rows"]]
    assert topics == ["thrice", "thrice", None, "thrice", "twice", "no limit", "no value"]
    assert [row["after"]["says"] for row in found["new"]["rows"][:2]] == ["a", "b"]
    assert set(changes("hot_queues", after[:1], [after[0] | {"queue_id": 7}])["queues"]) == set()


def test_a_name_server_is_worse_by_one_count_although_others_are_better() -> None:
    def found(before: Facts, after: Facts) -> set[str]:
        return set(changes("namesrv_days", [{"node": "ns1"} | before], [{"node": "ns1"} | after])["name_servers"])

    assert found({"pauses": 9}, {"vanished": 1}) == {"worse"}
    assert found({"pauses": 9}, {"pauses": None, "rejected": 5}) == {"better"}
    assert found({"starts": 1}, {"starts": 2}) == found({}, {"rejected": 1}) == {"otherwise"}
    assert found({"rows_missing": None}, {"rows_missing": 0}) == set()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (2_000.0, 3_000.0, {"later"}),
        (1_999.0, 2_998.5, set()),
        (2_001.0, 3_001.0, set()),
        (3_000.0, 2_000.0, {"earlier"}),
        (3_001.0, 2_001.0, set()),
        (None, 90_000.0, set()),
        (90_000.0, None, set()),
    ],
)
def test_heartbeats_are_later_by_half_and_by_a_second(
    before: float | None, after: float | None, expected: set[str]
) -> None:
    sides = [[broker("b", p99_ms=value)] for value in (before, after)]

    assert set(changes("heartbeat_punctuality", *sides)["heartbeats"]) == expected


def test_heartbeats_are_listed_by_how_much_they_changed() -> None:
    sides = [[broker(name, p99_ms=value) for name in "cab"] for value in (1_000.0, 5_000.0)]
    sides[1][2]["p99_ms"] = 6_000.0
    found = changes("heartbeat_punctuality", *sides)["heartbeats"]["later"]["rows"]

    assert [row["broker_name"] for row in found] == ["b", "a", "c"]


def test_heartbeats_of_brokers_that_only_one_day_has_are_not_compared() -> None:
    assert changes("heartbeat_punctuality", [broker("a", p99_ms=1.0)], [broker("b", p99_ms=9e9)])["heartbeats"] == {}
