"""The long memory, its forecasts and weekly patterns, against plain Python; and night by night as in one pass."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from pointsman_report.io import History, Warehouse
from pointsman_report.jobs.history_reading import Work
from pointsman_report.jobs.pipeline import run_stages
from pointsman_report.jobs.stages import MEMORY
from pointsman_report.parameters import MemoryParameters, Parameters
from pointsman_report.report.sections.long_memory import memory, weekly_patterns
from pointsman_report.report.span import Span
from pointsman_report.schemas import TABLES
from pointsman_report.schemas.table_types import DOUBLE, LONG, struct
from pointsman_report.transforms import weekly_patterns as weekly
from pointsman_report.transforms.negative_binomial import quantiles
from pointsman_report.transforms.weekly_patterns import p_value
from tests.spark.tables import DayRunner

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FIRST = date(2026, 1, 1)
DAYS = 75
HALF_LIFE, RANK_HALF_LIFE, PRIOR, ABSENT = 20.0, 50.0, 10.0, 8
PARAMETERS = Parameters(
    memory=MemoryParameters(
        half_life_days=HALF_LIFE, rank_half_life_days=RANK_HALF_LIFE, prior_days=PRIOR, absent_days=ABSENT
    )
)
Broker = tuple[str, str, int]
TABLES_OF_MEMORY = ("broker_memory", "forecast_checks", "weekly_patterns")


def day(number: int) -> date:
    return FIRST + timedelta(days=number)


@dataclass
class Fleet:
    """Seconds of up and down time of each broker and day, and the seconds of the day at which its outages began."""

    watched: dict[tuple[Broker, int], tuple[float, float]] = field(default_factory=dict)
    outages: dict[tuple[Broker, int], list[int]] = field(default_factory=lambda: defaultdict(list))

    def availability(self) -> list[dict[str, Any]]:
        return [
            named(broker, number)
            | {"up_seconds": up, "down_seconds": down, "outages": len(self.outages[broker, number])}
            for (broker, number), (up, down) in self.watched.items()
        ]

    def intervals(self) -> list[dict[str, Any]]:
        """Outages of a second, one by plan each day, and one that continues another."""
        found = []
        for (broker, number), seconds in list(self.outages.items()):
            midnight = datetime.combine(day(number), time())
            rows = [(at, False, False) for at in seconds] + [(4_000, True, False), (5_000, False, True)]
            found += [
                named(broker, number)
                | {
                    "state": "down",
                    "start_at": midnight + timedelta(seconds=at),
                    "end_at": midnight + timedelta(seconds=at + 1),
                    "planned": planned,
                    "continues": continues,
                }
                for at, planned, continues in rows
            ]
        return found


def named(broker: Broker, number: int) -> dict[str, Any]:
    return dict(zip(("cluster", "broker_name", "broker_id"), broker, strict=True)) | {"dt": day(number)}


def fleet(seed: int) -> Fleet:
    """Two clusters. One broker is away for 8 days, one for 9, one ends early, one comes late, one fails on Sundays."""
    rng, made = random.Random(seed), Fleet()
    away = {"back": range(20, 28), "gone": range(20, 29), "ended": range(40, DAYS), "late": range(35)}
    for cluster, names in (("busy", ("calm", "ill", "back", "sunday")), ("quiet", ("a", "gone", "ended", "late"))):
        for name in names:
            broker = (cluster, name, 0)
            for number in range(DAYS):
                if number in away.get(name, ()):
                    continue
                up, down = rng.choice((86_400.0, 50_000.0)), rng.choice((0.0, 1_000.0))
                made.watched[broker, number] = (up, down)
                many = rng.choice((0, 0, 0, 1, 7)) if name == "ill" else int(rng.random() < 0.1)
                seconds = [rng.randrange(86_400) for _ in range(many)]
                if name == "sunday":
                    seconds = [11_000, 13_000] if day(number).weekday() == 6 else []
                made.outages[broker, number] = seconds
    return made


class Nights:
    """Computes the stages of the memory alone, over the tables of a fleet."""

    def __init__(self, run: DayRunner, folder: Path) -> None:
        self._run = DayRunner(run.spark, PARAMETERS)
        self.folder = folder

    def compute(self, made: Fleet, first: int, last: int) -> None:
        warehouse = Warehouse(self._run.spark, str(self.folder))
        for table, rows in (("availability", made.availability()), ("broker_intervals", made.intervals())):
            of_days = [row for row in rows if day(first) <= row["dt"] <= day(last)]
            schema = TABLES[table].schema
            values = [tuple(row.get(name) for name in schema.names) for row in of_days]
            warehouse.stage(table, self._run.spark.createDataFrame(values, schema))
        work = Work(History(self._run.spark, []), warehouse, day(first), day(last), PARAMETERS, lambda _: None)
        run_stages((MEMORY,), work)
        warehouse.publish(first_day=day(first), last_day=day(last))

    def rows(self, table: str) -> list[dict[str, Any]]:
        return self._run.rows(self.folder, table, FIRST, day(DAYS))


@pytest.fixture(scope="module")
def made() -> Fleet:
    return fleet(7)


@pytest.fixture(scope="module")
def one_pass(run_days: DayRunner, made: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Nights:
    nights = Nights(run_days, tmp_path_factory.mktemp("memory") / "warehouse")
    nights.compute(made, 0, DAYS - 1)
    return nights


def remembered(made: Fleet, broker: Broker, number: int) -> dict[str, Any] | None:
    """What is known of a broker at the end of a day, from all its days; None if it is not remembered."""
    seen = sorted(n for (of, n), times in made.watched.items() if of == broker and n <= number and sum(times) > 0)
    if not seen or number - seen[-1] > ABSENT:
        return None
    breaks = [later for earlier, later in pairwise(seen) if later - earlier - 1 > ABSENT]
    stay = [n for n in seen if n >= max(breaks, default=0)]

    def decayed(value: dict[int, float], half_life: float) -> float:
        return math.fsum(amount * 0.5 ** ((number - n) / half_life) for n, amount in value.items())

    watched = {n: sum(made.watched[broker, n]) / 86_400 for n in stay}
    outages = {n: len(made.outages[broker, n]) for n in stay}
    return {
        "since_on": day(stay[0]),
        "seen_on": day(stay[-1]),
        "monitored_days": len(stay),
        "outages": sum(outages.values()),
        "remembered_days": decayed(watched, HALF_LIFE),
        "remembered_outages": decayed(dict(outages), HALF_LIFE),
        "recurrence": decayed({n: math.sqrt(count) for n, count in outages.items()}, RANK_HALF_LIFE),
    }


def smallest(mean: float, size: float, share: float) -> int:
    """The smallest n with that share of the negative binomial distribution, by the library's gamma function."""
    total, n = 0.0, -1
    while total < share:
        n += 1
        logarithm = math.lgamma(n + size) - math.lgamma(size) - math.lgamma(n + 1)
        total += math.exp(logarithm + size * math.log(size / (size + mean)) + n * math.log(mean / (size + mean)))
    return n


def expected_tables(
    made: Fleet,
) -> tuple[dict[tuple[date, Broker], dict[str, Any]], dict[tuple[date, str], dict[str, Any]]]:
    """Memory and checks of all days."""
    brokers = sorted({broker for broker, _ in made.watched})
    rows = {(n, broker): row for n in range(DAYS) for broker in brokers if (row := remembered(made, broker, n))}
    checks: dict[tuple[int, str], dict[str, Any]] = {}
    for n in range(DAYS):
        for cluster in ("busy", "quiet"):
            own = {broker: row for (of, broker), row in rows.items() if of == n and broker[0] == cluster}
            rate = (sum(row["remembered_outages"] for row in own.values()) + 1) / sum(
                row["remembered_days"] for row in own.values()
            )
            ended = []
            for broker, row in own.items():
                shape = row["remembered_outages"] + PRIOR * rate
                own_rate = shape / (row["remembered_days"] + PRIOR)
                row |= {"cluster_rate_per_day": rate, "rate_per_day": own_rate, "ratio": own_rate / rate}
                row |= {"expected": own_rate * 30, "shape": shape}
                before = rows.get((n - 30, broker))
                if before and row["monitored_days"] - before["monitored_days"] == 30:
                    ended.append((before, row["outages"] - before["outages"]))
            if ended:
                checks[n, cluster] = {
                    "forecasts": len(ended),
                    "held": sum(before["low"] <= count <= before["high"] for before, count in ended),
                    "expected": sum(before["expected"] for before, _ in ended),
                    "outages": sum(count for _, count in ended),
                    "squared_error": sum((count - before["expected"]) ** 2 for before, count in ended),
                }
            known = [checks[m, cluster] for m in range(max(0, n - 89), n + 1) if (m, cluster) in checks]
            mean = sum(check["expected"] for check in known)
            dispersion = max(1.0, sum(check["squared_error"] for check in known) / mean) if known else 1.0
            for row in own.values():
                size = row.pop("shape")
                size = min(size, row["expected"] / (dispersion - 1)) if dispersion > 1 else size
                row["dispersion"] = dispersion
                row |= {"low": smallest(row["expected"], size, 0.05), "high": smallest(row["expected"], size, 0.95)}
    return (
        {(day(n), broker): row for (n, broker), row in rows.items()},
        {(day(n), cluster): row for (n, cluster), row in checks.items()},
    )


def test_memory_and_checks_are_those_of_sums_over_all_days(made: Fleet, one_pass: Nights) -> None:
    remember, checks = expected_tables(made)

    found = {(row["dt"], broker_of(row)): row for row in one_pass.rows("broker_memory")}
    assert found.keys() == remember.keys()
    for key, row in remember.items():
        assert numbers(found[key], row) == pytest.approx(numbers(row, row), rel=1e-5), key
    compared = {(row["dt"], row["cluster"]): row for row in one_pass.rows("forecast_checks")}
    assert compared.keys() == checks.keys()
    for place, row in checks.items():
        assert numbers(compared[place], row) == pytest.approx(numbers(row, row), rel=1e-5), place
    assert any(row["dispersion"] > 2 for row in remember.values())
    assert {row["held"] < row["forecasts"] for row in checks.values()} == {True, False}


def numbers(row: dict[str, Any], names: Iterable[str]) -> dict[str, float]:
    return {name: row[name].toordinal() if isinstance(row[name], date) else row[name] for name in names}


def broker_of(row: dict[str, Any]) -> Broker:
    return row["cluster"], row["broker_name"], row["broker_id"]


def test_a_broker_away_for_longer_than_that_begins_again(one_pass: Nights) -> None:
    rows = {(row["broker_name"], row["dt"]): row for row in one_pass.rows("broker_memory")}

    assert rows["back", day(27)]["seen_on"] == day(19)
    assert rows["back", day(28)]["since_on"] == FIRST
    assert ("gone", day(27)) in rows
    assert ("gone", day(28)) not in rows
    assert rows["gone", day(29)]["since_on"] == day(29)
    assert max(dt for name, dt in rows if name == "ended") == day(39 + ABSENT)


def p_values(weeks: int, outage_hours: int, hours: int) -> Fraction:
    """By counting the ways to draw the outage hours."""
    ways = Fraction(0)
    for hit in range(weeks, 5):
        ways += math.comb(4, hit) * math.comb(hours - 4, outage_hours - hit) if outage_hours >= hit else 0
    return ways / math.comb(hours, outage_hours)


def patterns_of(made: Fleet, number: int) -> dict[tuple[Broker, int, int], Fraction]:
    """The patterns of the four weeks that end with a day: the largest number of tests that pass together."""
    cells: dict[Broker, set[tuple[int, int]]] = defaultdict(set)
    for (broker, n), seconds in made.outages.items():
        if number - 27 <= n <= number:
            cells[broker] |= {(n, at // 3600) for at in seconds}
    tests: list[tuple[Fraction, tuple[Broker, int, int]]] = []
    for broker, own in cells.items():
        state = remembered(made, broker, number)
        if len(own) < 3:
            continue
        for weekday in range(7):
            for hour in range(24):
                weeks = sum(day(n).weekday() == weekday and at == hour for n, at in own)
                value = Fraction(1)
                if weeks >= 3 and state:
                    hours = 24 * min(28, (day(number) - state["since_on"]).days + 1)
                    value = p_values(weeks, len(own), hours)
                tests.append((value, (broker, weekday, hour)))
    tests.sort()
    passing = [n for n, (value, _) in enumerate(tests, 1) if value <= Fraction(5, 100) * n / len(tests)]
    return {slot: value for value, slot in tests[: max(passing, default=0)]}


def test_weekly_patterns_are_those_of_the_exact_test(made: Fleet, one_pass: Nights) -> None:
    found: dict[date, dict[tuple[Broker, int, int], float]] = defaultdict(dict)
    for row in one_pass.rows("weekly_patterns"):
        found[row["dt"]][broker_of(row), row["weekday"], row["hour"]] = row["p_value"]
    expected = {day(n): patterns_of(made, n) for n in range(DAYS)}

    assert dict(found) == {
        on: pytest.approx({k: float(v) for k, v in own.items()}) for on, own in expected.items() if own
    }
    # 1 January 2026 is a Thursday: the third Sunday is the 18th.
    assert min(found) == date(2026, 1, 18)
    assert {slot for own in found.values() for slot in own} == {(("busy", "sunday", 0), 6, 3)}
    row = one_pass.rows("weekly_patterns")[-1]
    assert (row["weeks"], row["outages"], row["outage_hours"]) == (4, 8, 4)


def test_outages_from_before_the_memory_began_make_no_pattern_more_likely(
    one_pass: Nights, spark: SparkSession
) -> None:
    """The first night of this release has the intervals of four weeks, and a memory of one day."""
    last = day(DAYS - 1)
    warehouse = Warehouse(spark, str(one_pass.folder))
    intervals = warehouse.read("broker_intervals", first_day=last - timedelta(days=27), last_day=last)
    remembered = warehouse.read("broker_memory", first_day=last, last_day=last)
    whole, fresh = (
        weekly.weekly_patterns(intervals, rows, first_day=last, last_day=last, parameters=PARAMETERS.memory).first()
        for rows in (remembered, remembered.withColumn("since_on", col("dt")))
    )

    assert whole is not None
    assert fresh is not None
    first_sunday = next(on for on in (last - timedelta(days=27 - n) for n in range(7)) if on.weekday() == 6)
    hours = 24 * ((last - first_sunday).days + 1)
    assert fresh["p_value"] == pytest.approx(1 / math.comb(hours, 4))
    assert whole["p_value"] < fresh["p_value"]
    assert (fresh["broker_name"], fresh["weekday"], fresh["hour"]) == ("sunday", 6, 3)


def test_the_page_has_the_worst_first_and_how_earlier_forecasts_did(one_pass: Nights, spark: SparkSession) -> None:
    last = day(DAYS - 1)
    warehouse, span = Warehouse(spark, str(one_pass.folder)), Span(last, last)
    found = memory(warehouse, span)
    rows = [row for row in one_pass.rows("broker_memory") if row["dt"] == last and row["outages"]]
    checks = [row for row in one_pass.rows("forecast_checks") if row["dt"] > last - timedelta(days=30)]

    rows.sort(key=lambda row: -row["recurrence"])
    assert [row.key for row in found.rows] == [broker_of(row) for row in rows]
    assert (found.in_all, found.days) == (len(rows), DAYS)
    assert found.forecasts == sum(row["forecasts"] for row in checks) > 0
    assert found.held == sum(row["held"] for row in checks)
    (pattern,) = weekly_patterns(warehouse, span).rows
    assert (pattern.label, pattern.slot) == ("busy/sunday/0", "Sunday 03:00")


def test_night_by_night_gives_the_rows_of_one_pass(
    made: Fleet, one_pass: Nights, run_days: DayRunner, tmp_path: Path
) -> None:
    nights = Nights(run_days, tmp_path / "warehouse")
    # The first forecast ends on day 30; one broker is no longer remembered on day 28, and returns on day 29.
    for first, last in ((0, 27), (28, 28), (29, 45), (46, 73), (74, 74)):
        nights.compute(made, first, last)

    for table in TABLES_OF_MEMORY:
        assert nights.rows(table) == one_pass.rows(table), table


@pytest.mark.slow
def test_days_computed_again_with_late_outages_are_as_if_they_had_been_known(
    made: Fleet, run_days: DayRunner, tmp_path: Path
) -> None:
    late = Fleet(dict(made.watched), made.outages | {(("busy", "calm", 0), 66): [1, 2, 3]})
    again, known = (Nights(run_days, tmp_path / name) for name in ("late", "known"))
    again.compute(made, 0, DAYS - 1)
    before = again.rows("broker_memory")
    again.compute(late, 66, DAYS - 1)
    known.compute(late, 0, DAYS - 1)

    assert again.rows("broker_memory") != before
    for table in TABLES_OF_MEMORY:
        assert again.rows(table) == known.rows(table), table


def test_quantiles_are_exact_up_to_a_thousand_and_close_above(spark: SparkSession) -> None:
    rng = random.Random(5)
    cases = [(mean, size) for mean in (1e-6, 0.05, 0.5, 3.0, 40.0, 600.0) for size in (0.01, 0.3, 2.0, 50.0, 1e4)]
    cases += [(rng.uniform(0, 60), rng.uniform(0.05, 30)) for _ in range(20)]
    rows = spark.createDataFrame([*cases, (1_500.0, 200.0), (900.0, 1e4)], struct(mean=DOUBLE, size=DOUBLE))
    found = rows.withColumn("q", quantiles(col("mean"), col("size"), low=0.05, high=0.95)).collect()

    for row in found[: len(cases)]:
        assert (row.q.low, row.q.high) == (smallest(row.mean, row.size, 0.05), smallest(row.mean, row.size, 0.95)), row
    for row in found[len(cases) :]:
        exact = [smallest(row.mean, row.size, share) for share in (0.05, 0.95)]
        assert [row.q.low, row.q.high] == pytest.approx(exact, rel=0.01), row
    (nothing,) = (
        spark.createDataFrame([(None, 1.0)], struct(mean=DOUBLE, size=DOUBLE))
        .select(quantiles(col("mean"), col("size"), low=0.05, high=0.95).alias("q"))
        .collect()
    )
    assert nothing.q is None


def test_the_probability_of_a_pattern_is_that_of_drawing_hours(spark: SparkSession) -> None:
    cases = [(k, n, hours) for k in (3, 4) for n in (3, 4, 5, 28, 300, 671, 672) for hours in (504, 672) if n <= hours]
    rows = spark.createDataFrame(cases, struct(k=LONG, n=LONG, hours=LONG))

    for row in rows.withColumn("p", p_value(col("k"), col("n"), col("hours"))).collect():
        assert row.p == pytest.approx(float(p_values(row.k, row.n, row.hours)), abs=1e-15), row
