"""The bench of incidents: its faults match their labels, its rows are reproducible, and its scores are right."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

from tests.bench.incidents.faults import SETTLED_SECONDS, Act, Fault, Kind, Plan, What, faults_of
from tests.bench.incidents.rows import broker_number, write_rows
from tests.bench.incidents.scores import Faults, Group, Outage, all_scores

SMALL = Plan(clusters=2, each=3)
PARTITION = Fault(Kind.PARTITION, 0, (1, 2, 3), 100.0, 500.0, ())
ROLLING = Fault(Kind.ROLLING_RESTART, 0, (4, 5, 6), 1_000.0, 1_200.0, ())
FAULTS = Faults([PARTITION, ROLLING])


def test_there_are_faults_of_each_kind_and_a_broker_takes_part_in_one_at_a_time() -> None:
    faults = faults_of(SMALL)

    assert faults == faults_of(SMALL)
    assert {kind: sum(fault.kind is kind for fault in faults) for kind in Kind} == dict.fromkeys(Kind, 3)
    for broker in range(SMALL.brokers):
        own = [fault for fault in faults if broker in fault.brokers]
        assert all(after.began - before.ended > SETTLED_SECONDS for before, after in itertools.pairwise(own))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    lines = (line for file in sorted(folder.rglob("*.jsonl*")) for line in _lines(file))
    return [json.loads(line) for line in lines]


def _lines(file: Path) -> list[str]:
    if file.suffix == ".gz":
        return gzip.decompress(file.read_bytes()).decode().splitlines()
    return file.read_text(encoding="utf-8").splitlines()


def test_rows_are_those_of_the_real_core_for_what_was_injected(tmp_path: Path) -> None:
    plan = Plan(clusters=1, without_incarnation=0.0)
    acts = (
        Act(1_000, 3, What.BROKER_DIES),
        Act(1_030, 3, What.BROKER_STARTS, "8.0"),
        Act(2_000, 4, What.AGENT_KILLED),
        Act(2_060, 4, What.AGENT_STARTS),
    )
    fault = Fault(Kind.FLAPPER, 0, (3, 4), 1_000.0, 2_060.0, acts)
    one, two = write_rows(plan, [fault], tmp_path)
    rows = [row for row in rows_of(one) if row["broker_name"] and row["event"] not in {"REGISTERED", "CHECKPOINT"}]

    def what(broker: int) -> list[str]:
        return [row["event"] for row in rows if broker_number(row["broker_name"], row["broker_id"]) == broker]

    assert what(3) == ["PROBE_FAILED", "REREGISTERED"]
    assert what(4) == ["SUSPECTED", "EXPIRED"]
    back = next(row for row in rows if row["event"] == "REREGISTERED")
    assert (back["incarnation"], back["broker_version"], back["host"]) == ("3-2", "8.0", "host-001")
    assert len(rows_of(two)) == len(rows_of(one))


def test_causes_and_groups_are_scored_against_the_faults() -> None:
    outages = [
        *(Outage(broker, 150.0, "network", planned=False) for broker in (1, 2)),
        Outage(3, 150.0, "unknown", planned=False),
        Outage(4, 1_000.0, "rolling_restart", planned=False),
        Outage(5, 1_050.0, "network", planned=False),
        Outage(6, 1_100.0, "planned", planned=True),
        Outage(9, 1_100.0, "network", planned=False),
    ]
    incidents = [Group(((1, 150.0), (2, 150.0), (3, 150.0))), Group(((4, 1_000.0), (5, 1_050.0)))]
    scores = all_scores(outages, incidents, [Group(((4, 1_000.0), (5, 1_050.0), (9, 1_100.0)))], FAULTS)

    network, rolling = scores["cause network"], scores["cause rolling_restart"]
    assert (network.reported, network.right, network.injected, network.found) == (4, 2, 3, 2)
    assert (rolling.reported, rolling.right, rolling.injected, rolling.found) == (1, 1, 2, 1)
    assert (scores["incidents"].precision, scores["incidents"].recall) == (0.5, 1.0)
    assert (scores["rolling restarts"].precision, scores["rolling restarts"].recall) == (1.0, 1.0)
    assert network.mistaken_for["nothing as network"] == 1
