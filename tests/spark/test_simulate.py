"""Other thresholds over recorded days: the penalty second by second, and the result."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pointsman_report.io import Warehouse
from pointsman_report.parameters import (
    FlapParameters,
    HealthParameters,
    IncidentParameters,
    Parameters,
    RankingParameters,
)
from pointsman_report.questions.simulation import Simulation, simulate
from pointsman_report.schemas import TABLES
from tests.spark.histories import MIDNIGHT, moment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FIRST, LAST = MIDNIGHT.date(), MIDNIGHT.date() + timedelta(days=1)
GIVEN = Parameters()
POINTS = {"EXPIRED": 1_000.0, "LATE_HEARTBEAT": 100.0, "RECOVERED": 300.0}
COMPUTED_WITH = {
    FIRST: replace(GIVEN, health=HealthParameters(slo=0.9)),
    LAST: Parameters(FlapParameters(ceiling=9_000)),
}
BROKERS = [f"b{n}" for n in range(12)]


@pytest.fixture(scope="module")
def charges() -> dict[str, list[tuple[int, str]]]:
    """Seconds and causes, some of them on the day before, or three days before."""
    rng = random.Random(8)
    recorded = {}
    for name in BROKERS:
        bursts = [rng.randint(-20_000, 170_000) for _ in range(rng.randint(1, 4))]
        times = [start + rng.randint(0, 4_000) for start in bursts for _ in range(rng.randint(1, 9))]
        recorded[name] = sorted((at, rng.choice(list(POINTS))) for at in times if at < 172_800)
    for name in BROKERS[:3]:
        recorded[name] = [(-3 * 86_400 + 60 * n, "EXPIRED") for n in range(14)] + recorded[name]
    return recorded


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, charges: Any) -> Warehouse:
    held = Warehouse(spark, str(tmp_path_factory.mktemp("simulate") / "warehouse"))

    def stage(table: str, rows: list[dict[str, Any]]) -> None:
        schema = TABLES[table].schema
        held.stage(
            table, spark.createDataFrame([tuple(row.get(n) for n in schema.fieldNames()) for row in rows], schema)
        )

    def of(name: str, day: date) -> dict[str, Any]:
        return {"dt": day, "cluster": "c", "broker_name": name, "broker_id": 0}

    charged = []
    for name, own in charges.items():
        for at, cause in own:
            when = moment(at)
            charged.append(of(name, when.date()) | {"charged_at": when, "cause": cause, "points": POINTS[cause]})
    stage("flap_charges", charged)
    days = [FIRST, LAST]
    seen = [
        of(name, day) | {"down_count": n, "incident_downs": 1, "percent_state_change": 2.5 * n}
        for n, name in enumerate(BROKERS)
        for day in days
    ]
    stage("flapping", seen)
    stage("flap_ranking", [of(name, day) | {"p_value": 10.0**-n} for n, name in enumerate(BROKERS) for day in days])
    computed = [(day, 1, 1, "", json.dumps(made_by.as_dict()), True) for day, made_by in COMPUTED_WITH.items()]
    stage("computed_days", [dict(zip(TABLES["computed_days"].schema.names, row, strict=True)) for row in computed])
    held.publish(first_day=FIRST - timedelta(days=3), last_day=LAST)
    return held


def asked(warehouse: Warehouse, **sections: Any) -> Simulation:
    return simulate(warehouse, FIRST, LAST, given=GIVEN, others=replace(GIVEN, **sections))


def second_by_second(own: list[tuple[int, str]], parameters: FlapParameters) -> tuple[int, int]:
    """How long the flag was up on the two days, and how often it went up."""
    decay = 2 ** (-1 / (parameters.half_life_minutes * 60))
    penalty, flagged, seconds, times = 0.0, False, 0, 0
    points = POINTS | {"EXPIRED": parameters.points_outage}
    charged: dict[int, list[str]] = {}
    for at, cause in own:
        charged.setdefault(at, []).append(cause)
    for second in range(min(charged), 172_800):
        for cause in charged.get(second, ()):
            penalty = min(parameters.ceiling, penalty + points[cause])
        if penalty > parameters.suppress_above and not flagged:
            flagged, times = True, times + (second >= 0)
        if penalty < parameters.reuse_below:
            flagged = False
        seconds += flagged and second >= 0
        penalty *= decay
    return seconds, times


@pytest.mark.parametrize(
    "other",
    [
        FlapParameters(suppress_above=2_000, reuse_below=500, half_life_minutes=30, points_outage=900),
        FlapParameters(half_life_minutes=1_440),
    ],
    ids=["lower", "slower"],
)
def test_other_thresholds_flag_the_same_as_a_count_second_by_second(
    warehouse: Warehouse, charges: Any, other: FlapParameters
) -> None:
    answer = asked(warehouse, flapping=other)
    recorded = {broker["broker_name"]: broker for broker in answer.brokers}

    expected = {
        name: (second_by_second(own, GIVEN.flapping), second_by_second(own, other)) for name, own in charges.items()
    }
    differing = {name for name, (one, two) in expected.items() if one != two}
    assert len(differing) > 5
    assert set(recorded) == differing
    for name in differing:
        for side, (seconds, times) in zip(("given", "others"), expected[name], strict=True):
            assert recorded[name][side]["penalty_seconds"] == pytest.approx(seconds, abs=2 * len(charges[name])), name
            assert recorded[name][side]["penalty_times"] == times, name
    flagged = {one.method: one for one in answer.flagged}["penalty"]
    sides = [{name for name, own in expected.items() if own[side][0] > 0} for side in (0, 1)]
    assert (flagged.given, flagged.others) == (len(sides[0]), len(sides[1]))
    assert (flagged.newly, flagged.no_longer) == (len(sides[1] - sides[0]), len(sides[0] - sides[1]))


def test_counts_percentages_and_the_slow_track_have_their_own_thresholds(warehouse: Warehouse) -> None:
    answer = asked(warehouse, ranking=RankingParameters(count_at_least=8, percent_high=26, false_discovery_rate=1e-6))
    sums = {one.method: (one.given, one.others, one.newly, one.no_longer) for one in answer.flagged}

    assert sums["count"] == (7, 3, 0, 4), "outages of incidents do not count"
    assert sums["percent"] == (4, 1, 0, 3)
    assert sums["slow"] == (10, 5, 0, 5)
    assert (answer.known_brokers, answer.exit_code) == (12, 0)


def test_a_result_names_what_was_changed_and_what_cannot_be_simulated(warehouse: Warehouse) -> None:
    flapping = replace(GIVEN.flapping, suppress_above=2_000.0, same_sign_seconds=60.0)
    answer = asked(warehouse, flapping=flapping, incidents=IncidentParameters(brokers=5))
    as_json = json.loads(json.dumps(answer.as_dict()))

    assert as_json["parameters"] == {"flapping.suppress_above": {"given": 3_000.0, "others": 2_000.0}}
    assert as_json["not_simulated"] == ["flapping.same_sign_seconds", "incidents.brokers"]
    text = answer.text(GIVEN.report.zone)
    assert "flapping.suppress_above = 2000.0 instead of 3000.0" in text
    assert "recompute the days instead: flapping.same_sign_seconds, incidents.brokers" in text
    assert all(f"c/{broker['broker_name']}/0" in text for broker in answer.brokers)


def test_a_result_names_days_with_little_evidence_for_the_given_parameters(warehouse: Warehouse) -> None:
    after = LAST + timedelta(days=1)
    answer = simulate(
        warehouse, FIRST, after, given=GIVEN, others=replace(GIVEN, flapping=FlapParameters(ceiling=8_000))
    )

    assert (answer.not_computed, answer.computed_otherwise) == ((after,), (LAST,))
    assert answer.as_dict()["not_computed"] == [after.isoformat()]
    assert answer.as_dict()["computed_with_other_parameters"] == [LAST.isoformat()]
    text = answer.text(GIVEN.report.zone)
    assert f"days not computed, without charges: {after}\n" in text
    assert f"days computed with parameters other than the given ones: {LAST}\n" in text


def test_days_that_were_never_computed_give_no_data_and_exit_1(spark: SparkSession, tmp_path: Path) -> None:
    answer = asked(Warehouse(spark, str(tmp_path)))

    assert answer.exit_code == 1
    assert answer.text(GIVEN.report.zone).startswith("no data")
