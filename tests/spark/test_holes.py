"""Rows that are missing, at random and in blocks: unknown time is never up, and no recorded outage becomes up.

The histories are worlds of one to four name servers that contradict each other. They are compared with a calculation in
plain Python, of what is left and of all rows.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pointsman_report.jobs import pipeline
from pointsman_report.jobs.stages import FLAPS, LIVENESS
from tests.spark import plain
from tests.spark.histories import NameServer, Row, broker, moment, write_history
from tests.spark.storybook import FIRST, LAST, SECOND, Stories, story
from tests.spark.tables import DayRunner
from tests.spark.test_lost_rows import intervals_of
from tests.spark.worlds import DAYS, OWN_RUN, worlds

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FEW, MANY, SEEDS = 60, 250, (20261127, 1, 2, 3)
"""In a full run 1,000 worlds, in four parts."""
ALIVE = timedelta(hours=2)
END = moment(0, day=DAYS)


def with_holes(rows: list[Row], rng: random.Random) -> list[Row]:
    """Rows of one run without some of them; what shows when it was running stays."""
    share, blocks = rng.choice((0.0, 0.1, 0.3)), list[range]()
    for _ in range(rng.choice((0, 1, 1, 2))):
        first = rng.randrange(len(rows))
        blocks.append(range(first, first + rng.randint(2, max(2, len(rows) * 2 // 3))))
    last = max(row["seq"] for row in rows)
    return [
        row
        for n, row in enumerate(rows)
        if row["event"] in OWN_RUN
        or row["seq"] == last
        or not (rng.random() < share or any(n in block for block in blocks))
    ]


@dataclass(frozen=True)
class Holed:
    """Worlds with all their rows, and with what is left of them."""

    whole: list[Row]
    left: list[Row]


def holed(count: int, *, seed: int) -> Holed:
    whole = worlds(count, seed=seed, losses=False, observers=4, alive=ALIVE)
    runs = groupby(whole, key=lambda row: (row["node"], row["boot_id"]))
    left = [row for run, own in runs for row in with_holes(list(own), random.Random(f"{seed}/{run}"))]
    return Holed(whole, left)


def without_interval(rows: list[Row]) -> list[Row]:
    """The same rows of writers whose silence means nothing: missing rows may explain it."""
    return [row | {"detail": {}} if row["event"] == "NAMESRV_STARTED" else row for row in rows]


Span = tuple[datetime, datetime]


def times(intervals: list[plain.Interval], state: str) -> list[Span]:
    """The times of a state, joined."""
    found: list[Span] = []
    for one in sorted(intervals, key=lambda one: one.start_at):
        if one.state == state and found and one.start_at <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], one.end_at))
        elif one.state == state:
            found.append((one.start_at, one.end_at))
    return found


def outside(spans: list[Span], others: list[Span]) -> list[Span]:
    """The spans that are not within one of the others."""
    return [(begin, end) for begin, end in spans if not any(at <= begin and end <= to for at, to in others)]


@pytest.mark.parametrize("seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[1:])])
def test_no_missing_row_makes_a_broker_up(spark: SparkSession, full: bool, seed: int) -> None:
    worlds = holed(MANY if full else FEW, seed=seed)
    expected = {which: own for which, own in plain.intervals(worlds.left, until=END).items() if own}
    truth = plain.intervals(without_interval(worlds.whole), until=END)

    found: dict[plain.Instance, list[plain.Interval]] = defaultdict(list)
    for which, interval in intervals_of(spark, worlds.left, FIRST, LAST):
        found[which].append(interval)

    assert len(worlds.left) < 0.8 * len(worlds.whole)
    for which, own in found.items():
        assert outside(times(own, "up"), times(truth.get(which, []), "up")) == [], which
    assert 0.3 < known(found) / known(truth) < 0.95
    assert set(found) == set(expected)
    for which, own in expected.items():
        assert sorted(found[which], key=in_order) == sorted(own, key=in_order), which


HALF = 43_185
"""Rows of the second name server are missing from 11:59:45 on the second day to midnight."""


@story
def loses_half_a_day(one: NameServer, two: NameServer, b: Row) -> None:
    """The other one records an outage of b in it; c stays as it was."""
    c = b | {"broker_name": "c"}
    for server in (one, two):
        for about in (b, c):
            server.say("REGISTERED", moment(10), about)
        server.say("NAMESRV_ALIVE", moment(HALF, day=1))
        record = server.say if server is one else server.lose
        record("EXPIRED", moment(50_000, day=1), b, reason="SILENCE", interval_ms=121_000)
        record("REGISTERED", moment(50_180, day=1), b)
        record("NAMESRV_ALIVE", moment(-30, day=2))
        for number, about in enumerate((b, c), 1):
            server.say("CHECKPOINT", moment(1, day=2), about, reason="DAY", detail={"i": number, "n": 2})
        server.stop(moment(5_000, day=2))


def test_an_outage_in_half_a_day_without_rows_of_another_name_server_is_never_up(stories: Stories) -> None:
    name, outage = "loses_half_a_day", (moment(50_000, day=1), moment(50_180, day=1))
    intervals = stories.intervals(name)

    ups = [(row["start_at"], row["end_at"]) for row in intervals if row["state"] == "up" and row["broker_name"] == "b"]
    assert ups == [(moment(10), outage[0]), (outage[1], moment(5_000, day=2))]
    assert [(row["start_at"], row["end_at"]) for row in intervals if row["broker_name"] == "c"] == [
        (moment(10), moment(5_000, day=2))
    ]


def test_missing_rows_are_listed_on_the_day_of_the_last_row_before_them(stories: Stories) -> None:
    name = "loses_half_a_day"
    days = stories.of_node("observer_windows", name, node=2)
    length = moment(1, day=2) - moment(HALF, day=1)

    assert [row["rows_missing"] for row in days] == [0, 3, 0]
    assert [[gap["to_seq"] - gap["from_seq"] for gap in row["gaps"]] for row in days] == [[], [2], [2]]
    assert [gap["before_at"] - gap["after_at"] for row in days for gap in row["gaps"]] == [length, length]
    watched = [row["watched_seconds"] for row in stories.of_node("namesrv_days", name, node=2)]
    assert watched == [86_400.0, float(HALF), 4_999.0]


@story
def is_left_out_of_one_before_the_end_of_another(one: NameServer, two: NameServer, b: Row) -> None:
    """Rows are missing before a checkpoint, which has another broker alone, and the first rows of the next one."""
    two.rows.clear()
    one.say("REGISTERED", moment(10), b)
    one.say("EXPIRED", moment(100), b, reason="SILENCE", interval_ms=2_000)
    one.lose("NAMESRV_ALIVE", moment(500))
    one.say("CHECKPOINT", moment(600), broker("x1"), reason="DROPPED", detail={"i": 1, "n": 1})
    one.lose("CHECKPOINT", moment(900), broker("x1"), reason="DROPPED", detail={"i": 1, "n": 2})
    one.say("CHECKPOINT", moment(900), broker("x2"), reason="DROPPED", detail={"i": 2, "n": 2})
    one.stop(moment(5_000))


def test_the_end_of_another_checkpoint_does_not_make_one_incomplete(stories: Stories) -> None:
    downs = [r for r in stories.downs("is_left_out_of_one_before_the_end_of_another") if r["broker_name"] == "b"]

    assert [(row["start_at"], row["end_at"]) for row in downs] == [
        (moment(100), moment(100)),
        (moment(600), moment(600)),
    ]


@story
def is_silent_for_hours(one: NameServer, two: NameServer, b: Row) -> None:
    """It states that it writes a row each minute; no row is missing. The other has no such rhythm."""
    for server in (one, two):
        server.rows.clear()
    one.say("NAMESRV_STARTED", moment(0), detail={"alive_seconds": 60.0})
    two.say("NAMESRV_STARTED", moment(0))
    for server, about in ((one, b), (two, b | {"broker_name": "c"})):
        server.say("NAMESRV_READY", moment(0))
        server.say("REGISTERED", moment(10), about)
        server.say("NAMESRV_ALIVE", moment(180))
        server.say("NAMESRV_ALIVE", moment(360))
        server.say("HEARTBEATS", moment(20_000), about)
        server.say("NAMESRV_ALIVE", moment(80_000))
        server.say("CHECKPOINT", moment(1, day=1), about, reason="DAY", detail={"i": 1, "n": 1})
        server.stop(moment(100, day=1))


def test_a_name_server_that_wrote_a_row_each_minute_knows_nothing_of_a_time_without_rows(stories: Stories) -> None:
    name = "is_silent_for_hours"
    silences = [row for row in stories.of_node("blind_periods", name) if row["why"] == "SILENT"]

    assert [(row["from_at"], row["to_at"]) for row in silences] == [
        (moment(360), moment(20_000)),
        (moment(20_000), moment(80_000)),
        (moment(80_000), moment(0, day=1)),
        (moment(80_000), moment(1, day=1)),
    ]
    known = {row["broker_name"]: row["up_seconds"] for row in stories.rows("availability", name, day=FIRST)}
    assert known == {"b": 350.0, "c": 86_390.0}


@pytest.mark.slow
def test_a_hole_that_only_the_next_day_shows_leads_to_another_computation_of_the_day(
    run_days: DayRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of a name server is away over midnight: when the first night runs, it seems to have ended at noon."""
    one, two = (NameServer(node=f"ns{n}:9876").start() for n in (1, 2))
    loses_half_a_day(one, two, broker("b", cluster="c1"))
    monkeypatch.setattr(pipeline, "STAGES", (LIVENESS, FLAPS))
    rows = [*one.rows, *two.rows]
    early = [row for row in rows if row["node"] == "ns1:9876" or row["event_at"][:10] < f"{LAST}"]
    once, nights = tmp_path / "once", tmp_path / "nights"
    run_days.compute(once, [write_history(tmp_path / "h", rows)], FIRST, LAST)
    for day, known in ((FIRST, early), (SECOND, early), (LAST, rows)):
        history = write_history(tmp_path / f"h{day}", known)
        run_days.compute(nights, [history], day, day, accept_late=True)

    for table in ("observer_windows", "broker_intervals", "availability", "namesrv_days", "broker_state"):
        assert run_days.rows(nights, table, FIRST, LAST) == run_days.rows(once, table, FIRST, LAST), table


def known(intervals: dict[plain.Instance, list[plain.Interval]]) -> float:
    """Seconds in which a state is known, of all brokers."""
    return sum((one.end_at - one.start_at).total_seconds() for own in intervals.values() for one in own)


def in_order(one: plain.Interval) -> tuple[datetime, datetime, str, str]:
    return one.start_at, one.end_at, one.state, str(one)
