"""The job finds the faults that the generator of histories labels, and no others."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from tests.bench.histories import SHOULD_BE_FLAGGED, FaultRates, Fleet, write
from tests.bench.histories.faults import How
from tests.bench.histories.fleet import brokers_of
from tests.bench.histories.truth import Truth
from tests.spark.tables import DayRunner

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_tables_contain_the_labelled_faults_and_no_others(run_days: DayRunner, tmp_path: Path) -> None:
    none_else = FaultRates(
        outages_a_broker_day=0,
        overloads_a_broker_day=0,
        zone_cuts_a_day=0,
        deploys_a_cluster_week=0,
        maintenances_a_cluster_week=0,
        dead_share=0,
    )
    fleet = Fleet(brokers=24, clusters=1, days=2, seed=2, flapping_share=0.5, heartbeats=False, faults=none_else)
    made = write(fleet, tmp_path)
    run_days.compute(tmp_path / "warehouse", made.histories, fleet.first_day, fleet.last_day)
    rows = run_days.rows(tmp_path / "warehouse", "broker_intervals", fleet.first_day, fleet.last_day)

    downs = {(row["broker_name"], row["broker_id"], row["start_at"]) for row in rows if row["state"] == "down"}
    happened, must_be_seen = outages_of(fleet)
    assert {label.label for label in made.labels} == SHOULD_BE_FLAGGED
    assert len(must_be_seen) > 100
    assert {outage for outage in must_be_seen if not any(is_reported_by(down, outage) for down in downs)} == set()
    assert {down for down in downs if not any(is_reported_by(down, outage) for outage in happened)} == set()
    assert {down[:2] for down in downs} == {(label.broker_name, label.broker_id) for label in made.labels}


Outage = tuple[str, int, datetime]


def outages_of(fleet: Fleet) -> tuple[set[Outage], set[Outage]]:
    """The true events, and those that every node must have noticed before their end."""
    brokers = brokers_of(fleet)
    noticed = {How.CRASH: 16.0, How.SILENCE: 126.0}
    found = [
        ((*brokers[it.broker].identity[1:3], fleet.moment(it.at)), it)
        for facts in Truth(fleet, brokers).days()
        for it, _ in facts
    ]
    of_fleet = {outage for outage, _ in found}
    long = {outage for outage, it in found if it.until - it.at > noticed[it.how] and it.at < fleet.seconds - 126}
    return of_fleet, long


def is_reported_by(down: Outage, outage: Outage) -> bool:
    """Whether an outage in the tables can be the one that happened: it is noticed within two minutes and a sweep."""
    return down[:2] == outage[:2] and 0 <= (down[2] - outage[2]).total_seconds() < 127
