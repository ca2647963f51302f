"""Random histories: one pass, night by night and a plain-Python calculation must agree."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from pointsman_report.transforms import observer_windows
from tests.spark import plain
from tests.spark.histories import MIDNIGHT, Row, moment, write_history
from tests.spark.storybook import Stories, Tables, book
from tests.spark.tables import DayRunner
from tests.spark.worlds import DAYS, worlds

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FEW, MANY, SEED = 40, 150, 20261121
FIRST, LAST = MIDNIGHT.date(), MIDNIGHT.date() + timedelta(days=DAYS - 1)
TABLES = (
    "registration_events",
    "observer_windows",
    "blind_periods",
    "maintenance_windows",
    "broker_intervals",
    "partial_views",
    "availability",
    "broker_facts",
    "broker_changes",
    "observer_clocks",
    "namesrv_days",
    "flap_charges",
    "flapping",
    "flap_ranking",
    "broker_state",
    "heartbeat_punctuality",
    "cluster_health",
)


book.add_rows("plain", lambda: worlds(FEW, seed=SEED))


@dataclass(frozen=True)
class Measured:
    """Worlds and the results of the job."""

    count: int
    rows: list[Row]
    tables: Tables

    def of(self, table: str) -> list[dict[str, Any]]:
        """Rows of these worlds: the shared history has clusters of others too."""
        return [row for row in self.tables[table] if re.fullmatch(r"w\d+", row["cluster"])]


@pytest.fixture(scope="module")
def many() -> list[Row]:
    return worlds(MANY, seed=SEED)


@pytest.fixture(scope="module")
def one_pass(many: list[Row], run_days: DayRunner, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    folder = tmp_path_factory.mktemp("one_pass")
    run_days.compute(folder / "tables", [write_history(folder / "history", many, one_file_a_day=True)], FIRST, LAST)
    return Tables(run_days, folder / "tables")


@pytest.fixture(scope="module")
def nights(many: list[Row], run_days: DayRunner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nights")
    history = write_history(folder / "history", many, one_file_a_day=True)
    with pytest.MonkeyPatch.context() as patched:
        # However few numbers of a life are looked through together, the gaps between them are the same.
        patched.setattr(observer_windows, "BLOCK", 2)
        for n in range(DAYS):
            day = FIRST + timedelta(days=n)
            run_days.compute(folder / "tables", [history], day, day)
    return folder / "tables"


@pytest.fixture(scope="module")
def late(many: list[Row], run_days: DayRunner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half of the files came in before the last night only."""
    folder = tmp_path_factory.mktemp("late")
    halves = [
        write_history(folder / f"half-{n}", [row for row in many if _half(row) == n], one_file_a_day=True)
        for n in (0, 1)
    ]
    run_days.compute(folder / "tables", halves[:1], FIRST, LAST - timedelta(days=1))
    run_days.compute(folder / "tables", halves, LAST, LAST, accept_late=True)
    return folder / "tables"


@pytest.fixture(scope="module")
def measured(request: pytest.FixtureRequest, full: bool) -> Measured:
    """Worlds of the shared history; all of them in a full run."""
    if full:
        return Measured(MANY, request.getfixturevalue("many"), request.getfixturevalue("one_pass"))
    stories: Stories = request.getfixturevalue("stories")
    return Measured(FEW, worlds(FEW, seed=SEED), stories.tables)


def _half(row: Row) -> int:
    """Which half of the files a row lies in: each node's days are dealt out."""
    return crc32(f"{row['node']} {row['event_at'][:10]}".encode()) % 2


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_night_by_night_gives_the_tables_of_one_pass(
    run_days: DayRunner, one_pass: Tables, nights: Path, table: str
) -> None:
    assert one_pass[table]
    assert run_days.rows(nights, table, FIRST, LAST) == one_pass[table]


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_files_that_came_late_give_the_tables_of_files_in_time(
    run_days: DayRunner, one_pass: Tables, late: Path, table: str
) -> None:
    assert run_days.rows(late, table, FIRST, LAST) == one_pass[table]


def test_intervals_are_those_of_a_plain_calculation(measured: Measured) -> None:
    expected = plain.intervals(measured.rows, until=moment(0, day=DAYS))
    found: dict[plain.Instance, list[plain.Interval]] = defaultdict(list)
    for row in measured.of("broker_intervals"):
        if not row["open"] or row["dt"] == LAST:
            found[_broker(row)].append(_interval(row))

    assert sum(map(len, expected.values())) > 10 * measured.count
    assert set(found) == set(expected)
    for broker, intervals in expected.items():
        assert sorted(found[broker], key=_in_order) == sorted(intervals, key=_in_order), broker


def test_partial_views_are_those_of_a_plain_calculation(measured: Measured) -> None:
    expected = plain.views(measured.rows, until=moment(0, day=DAYS))
    found: dict[plain.Instance, list[plain.View]] = defaultdict(list)
    for row in measured.of("partial_views"):
        sides = tuple(row["seen_up_by"]), tuple(row["seen_down_by"])
        found[_broker(row)].append(plain.View(row["dt"], row["from_at"], row["to_at"], row["open"], *sides))

    assert sum(map(len, expected.values())) > measured.count
    assert set(found) == set(expected)
    for broker, views in expected.items():
        assert sorted(found[broker], key=lambda view: view.from_at) == views, broker


def test_penalties_are_those_of_a_plain_calculation(measured: Measured) -> None:
    merged = plain.intervals(measured.rows, until=moment(0, day=DAYS))
    expected = plain.charges(measured.rows, merged)
    found: dict[plain.Instance, list[tuple[Any, ...]]] = defaultdict(list)
    for row in measured.of("flap_charges"):
        found[_broker(row)].append((row["charged_at"], row["points"], row["penalty"]))

    assert set(found) == set(expected)
    for broker, charges in expected.items():
        wanted = [(charge.at, charge.points, pytest.approx(charge.penalty, abs=1e-4)) for charge in charges]
        assert sorted(found[broker]) == wanted, broker


def test_a_days_highest_penalty_counts_what_was_carried_over_midnight(measured: Measured) -> None:
    merged = plain.intervals(measured.rows, until=moment(0, day=DAYS))
    charges = plain.charges(measured.rows, merged)
    for row in measured.of("flapping"):
        own = charges.get(_broker(row), [])
        start = moment(0, day=(row["dt"] - FIRST).days)
        before = [charge for charge in own if charge.at < start]
        carried = (
            before[-1].penalty * 2 ** (-(start - before[-1].at).total_seconds() / plain.HALF_LIFE) if before else 0.0
        )
        today = [charge.penalty for charge in own if charge.at.date() == row["dt"]]
        assert row["penalty_max"] == pytest.approx(max([carried, *today]), abs=1e-4)


def test_the_down_count_is_the_outages_that_began_that_day(measured: Measured) -> None:
    merged = plain.intervals(measured.rows, until=moment(0, day=DAYS))
    for row in measured.of("flapping"):
        began = [
            interval
            for interval in merged[_broker(row)]
            if interval.state == "down" and not interval.planned and not interval.continues
            if interval.start_at.date() == row["dt"]
        ]
        assert row["down_count"] == len(began)


def _broker(row: dict[str, Any]) -> plain.Instance:
    return row["cluster"], row["broker_name"], row["broker_id"]


def _interval(row: dict[str, Any]) -> plain.Interval:
    names = ("state", "start_at", "end_at", "start_censored", "end_censored", "planned", "continues", "reason")
    return plain.Interval(**{name: row[name] for name in names})


def _in_order(interval: plain.Interval) -> tuple[Any, ...]:
    return interval.start_at, interval.end_at, interval.state, str(interval)
