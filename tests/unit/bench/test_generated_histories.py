"""The generator for the bench figures: equal seeds give equal bytes, rows match the format, faults are present."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pointsman_report.row_validation import problems_of
from tests.bench.histories import FaultRates, Fleet, Kind, Written, read_labels, write
from tests.kit.history.rows import files_in, rows_in

EVERYTHING = FaultRates(
    outages_a_broker_day=1.0,
    flapping_every_minute=1,
    overloads_a_broker_day=0.1,
    zone_cuts_a_day=1,
    deploys_a_cluster_week=4,
    maintenances_a_cluster_week=4,
    dead_share=0.05,
)
FLEET = Fleet(brokers=30, clusters=2, nodes=2, days=2, seed=1, flapping_share=0.2, topics_a_broker=2, faults=EVERYTHING)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write(FLEET, tmp_path_factory.mktemp("fleet"))


@pytest.fixture(scope="module")
def nodes(written: Written) -> list[list[dict[str, Any]]]:
    """The rows of each node."""
    return [rows_in(history) for history in written.histories]


def content(history: Path) -> dict[str, bytes]:
    return {name: (history / "raw" / name).read_bytes() for name in files_in(history)}


def small(seed: int, **more: Any) -> Fleet:
    return Fleet(brokers=10, days=1, seed=seed, flapping_share=0.3, heartbeats=False, **more)


def test_the_same_seed_gives_the_same_bytes_in_one_process_or_in_two(tmp_path: Path) -> None:
    first = write(small(3), tmp_path / "first")
    again = write(small(3), tmp_path / "again", processes=2)
    other = write(small(4), tmp_path / "other")

    assert [content(history) for history in first.histories] == [content(history) for history in again.histories]
    assert first.labels_file.read_bytes() == again.labels_file.read_bytes()
    assert content(first.histories[0]) != content(other.histories[0])


def test_every_row_is_of_the_published_format(tmp_path: Path, full: bool) -> None:
    made = write(
        Fleet(brokers=4 if full else 2, nodes=1, days=1, seed=5, flapping_share=0.5, queue_stats=True), tmp_path
    )

    files = [history / "raw" / name for history in made.histories for name in files_in(history)]
    lines = [problem for file in files for problem in problems_of(file)]
    assert len(lines) == made.rows
    assert [problem for problem in lines if problem] == []


def test_a_node_numbers_its_rows_without_a_gap_and_in_order_of_time(
    written: Written, nodes: list[list[dict[str, Any]]]
) -> None:
    for history, rows in zip(written.histories, nodes, strict=True):
        times = [row["event_at"] for row in rows]
        assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
        assert times == sorted(times)
        assert {name[:13] for name in files_in(history)} == {"dt=2026-03-02", "dt=2026-03-03"}


def test_each_kind_of_fault_leaves_the_rows_that_name_servers_write_for_it(
    written: Written, nodes: list[list[dict[str, Any]]]
) -> None:
    recorded = Counter((row["event"], row["reason"]) for row in nodes[0])

    assert {
        ("EXPIRED", "STREAM_BROKEN"),
        ("EXPIRED", "SILENCE"),
        ("PROBE_FAILED", "PROBE"),
        ("RECOVERED", "PROBE"),
        ("RECOVERED", "HEARTBEAT"),
        ("UNREGISTERED", "SHUTDOWN"),
        ("MAINTENANCE_ON", "ADMIN"),
        ("LATE_HEARTBEAT", None),
        ("RESTARTED", None),
        ("HEARTBEATS", None),
        ("CHECKPOINT", "DAY"),
        ("NAMESRV_ALIVE", None),
    } <= set(recorded)
    assert {label.label for label in written.labels} == set(Kind)
    assert read_labels(written.labels_file) == written.labels


def test_two_nodes_see_an_outage_each_at_its_own_moment(nodes: list[list[dict[str, Any]]]) -> None:
    one, two = (
        {(row["broker_name"], row["broker_id"], row["event_at"]) for row in rows if row["event"] == "EXPIRED"}
        for rows in nodes
    )
    assert len(one) > 100
    # Within a millisecond by chance alone.
    assert len(one & two) < len(one) / 100


def test_a_broker_leaves_only_while_registered_and_registers_only_while_absent(
    nodes: list[list[dict[str, Any]]],
) -> None:
    for rows in nodes:
        held: set[tuple[str, int]] = set()
        for row in rows:
            broker = (row["broker_name"], row["broker_id"])
            if row["event"] == "REGISTERED":
                assert broker not in held
                held.add(broker)
            elif row["event"] in {"EXPIRED", "UNREGISTERED"}:
                held.remove(broker)
            elif row["broker_id"] is not None:
                assert broker in held
