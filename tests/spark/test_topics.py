"""Random histories of topics: one pass, night by night and a plain-Python calculation must agree."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest

from tests.spark import plain_topics
from tests.spark.histories import MIDNIGHT, Row, moment
from tests.spark.plain_topics import Held, Span
from tests.spark.storybook import Tables
from tests.spark.tables import DayRunner
from tests.spark.topic_days import Stretch, topic_book
from tests.spark.topic_worlds import DAYS, incidents, stretches, worlds

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

WORLDS, SEED = 60, 20261121
FIRST, LAST = MIDNIGHT.date(), MIDNIGHT.date() + timedelta(days=DAYS - 1)
TABLES = ("topic_intervals", "topic_churn", "topics_at_risk", "blast_radius")


@dataclass(frozen=True)
class Worlds:
    """Random clusters, and the result of a plain calculation for them."""

    rows: list[Row]
    stretches: list[Stretch]
    incidents: list[dict[str, Any]]

    @cached_property
    def held(self) -> list[Held]:
        return plain_topics.cut_at_midnight(plain_topics.intervals(self.rows, self.stretches, days=DAYS))


@cache
def made() -> Worlds:
    rows = worlds(WORLDS, seed=SEED)
    states = stretches(rows, seed=SEED)
    return Worlds(rows, states, incidents(states, seed=SEED))


topic_book.add(made().rows, made().stretches, made().incidents)


@dataclass(frozen=True)
class Runs:
    """Results of the job and of a plain calculation for the worlds."""

    tables: Tables
    worlds: Worlds

    def of(self, table: str) -> list[dict[str, Any]]:
        """Rows of the worlds: the shared history has clusters of others too."""
        return [row for row in self.tables[table] if re.match(r"w\d+(-1)?$", row.get("cluster") or row["incident_id"])]


@pytest.fixture(scope="module")
def runs(topic_tables: Tables) -> Runs:
    return Runs(topic_tables, made())


@pytest.mark.slow
def test_night_by_night_gives_the_tables_of_one_pass(run_days: DayRunner, runs: Runs, tmp_path: Path) -> None:
    for n in range(DAYS):
        day = FIRST + timedelta(days=n)
        topic_book.compute(run_days.spark, tmp_path, day, day)

    for table in TABLES:
        assert runs.tables[table]
        assert run_days.rows(tmp_path, table, FIRST, LAST) == runs.tables[table], table


def test_topic_intervals_are_those_of_a_plain_replay(runs: Runs) -> None:
    measured = [
        (
            (row["cluster"], row["broker_name"], row["broker_id"]),
            row["topic"],
            (row["read_queues"], row["write_queues"], row["perm"]),
            row["from_at"],
            row["to_at"],
        )
        for row in runs.of("topic_intervals")
    ]

    assert len(measured) > 20 * WORLDS
    assert sorted(measured) == sorted(runs.worlds.held)


def test_an_interval_is_open_where_it_lasted_to_the_days_end(runs: Runs) -> None:
    rows = runs.of("topic_intervals")

    assert all(row["open"] == (row["to_at"] == _day(row["dt"])[1]) for row in rows)
    assert {row["open"] for row in rows} == {True, False}


def test_churn_equals_that_of_a_plain_comparison(runs: Runs) -> None:
    expected: dict[Any, Counter[str]] = defaultdict(Counter)
    by_day: dict[Any, list[Held]] = defaultdict(list)
    for one in runs.worlds.held:
        by_day[one[3].date(), one[0]].append(one)
    for (day, broker), own in by_day.items():
        known_from, until = min(one[3] for one in own), _day(day)[1]
        for _, topic, queues, since, to in own:
            changes = expected[day, broker[0], topic]
            before = next((one[2] for one in own if one[1] == topic and one[4] == since), None)
            kinds: list[str] = []
            if since > known_from:
                kinds += ["created"] * (before is None)
                kinds += ["queue_changes"] * (before is not None and before[:2] != queues[:2])
                kinds += ["perm_changes"] * (before is not None and before[2] != queues[2])
            kinds += ["removed"] * (to < until and not any(one[1] == topic and one[3] == to for one in own))
            changes.update(kinds)
    wanted = {key: dict(changes) for key, changes in expected.items() if changes}
    every = ("created", "removed", "queue_changes", "perm_changes")
    measured = {
        (row["dt"], row["cluster"], row["topic"]): {kind: row[kind] for kind in every if row[kind]}
        for row in runs.of("topic_churn")
    }

    assert measured == wanted
    assert {kind for changes in wanted.values() for kind in changes} == set(every)


def test_risks_are_those_of_a_plain_check_of_every_interval(runs: Runs) -> None:
    expected = {}
    for day in (FIRST + timedelta(days=n) for n in range(DAYS)):
        for cluster, topic in sorted({(one[0][0], one[1]) for one in runs.worlds.held if one[3].date() == day}):
            found = plain_topics.risks(runs.worlds.held, runs.worlds.stretches, cluster, topic, _day(day))
            if found:
                seconds = tuple(_seconds(found[kind]) for kind in ("one_broker", "no_master", "unwritable"))
                first = min(span[0] for spans in found.values() for span in spans)
                expected[day, cluster, topic] = (*seconds, first)
    measured = {
        (row["dt"], row["cluster"], row["topic"]): (
            row["one_broker_seconds"],
            row["no_master_seconds"],
            row["unwritable_seconds"],
            row["first_at"],
        )
        for row in runs.of("topics_at_risk")
    }

    assert all(any(risk[place] for risk in expected.values()) for place in range(3))
    assert measured == expected


def test_the_blast_of_an_incident_is_its_topics_and_their_unwritable_time(runs: Runs) -> None:
    measured = {row["incident_id"]: row for row in runs.of("blast_radius")}

    assert set(measured) == {incident["incident_id"] for incident in runs.worlds.incidents}
    assert any(row["topics_unwritable"] for row in measured.values())
    for incident in runs.worlds.incidents:
        lasted = _unwritable(runs, incident)
        row = measured[incident["incident_id"]]
        assert row["topics"] == sorted(lasted, key=lambda topic: (-lasted[topic], topic))
        assert row["topics_hit"] == len(lasted)
        assert row["topics_unwritable"] == sum(seconds > 0 for seconds in lasted.values())
        assert row["unwritable_seconds"] == sum(lasted.values())


def _unwritable(runs: Runs, incident: dict[str, Any]) -> dict[str, float]:
    """Seconds of each topic that the incident's brokers had when they went."""
    cluster, day = incident["cluster"], _day(incident["dt"])
    until = incident["back_at"] or day[1]
    went = {(cluster, name, broker_id): at for name, broker_id, at in incident["members"]}
    hit = {one[1] for one in runs.worlds.held if one[0] in went and one[3] <= went[one[0]] < one[4]}
    lasted = {}
    for topic in hit:
        spans = plain_topics.risks(runs.worlds.held, runs.worlds.stretches, cluster, topic, day)["unwritable"]
        clipped = [(max(at, incident["from_at"]), min(to, until)) for at, to in spans]
        lasted[topic] = _seconds([span for span in clipped if span[0] < span[1]])
    return lasted


def _day(day: date) -> Span:
    start: datetime = moment(0, day=(day - FIRST).days)
    return start, start + timedelta(days=1)


def _seconds(spans: list[Span]) -> float:
    return sum((to - at for at, to in spans), timedelta()).total_seconds()
