"""An event's rows: topics spread over rows of 500, and rows about a broker name or a cluster."""

from __future__ import annotations

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.model import DataVersion, GroupKey, QueueConfig, Reason
from pointsman_namesrv.history.row import Record, row_count, to_rows, weight
from tests.kit.name_server.events import QUEUES, broker_event, topics_event


def rows_of(event: Event, *, seq: int = 1) -> list[dict[str, object]]:
    record = Record(event, ManualClock().utc_now(), 0, seq, row_count(event))
    return list(to_rows(record, node="n:1", boot_id="b"))


def details(event: Event) -> list[dict[str, object]]:
    return [row["detail"] for row in rows_of(event)]  # type: ignore[misc]  # a detail is an object


@pytest.mark.parametrize(
    ("topics", "rows"), [(0, 1), (1, 1), (500, 1), (501, 2), (1_000, 2), (1_001, 3), (100_000, 200)]
)
def test_topics_fill_as_many_rows_as_they_were_counted_for(topics: int, rows: int) -> None:
    event = topics_event(topics)

    found = rows_of(event, seq=7)

    assert len(found) == rows == row_count(event)
    assert [row["seq"] for row in found] == list(range(7, 7 + rows))


def test_every_topic_is_in_one_row_with_its_queues_and_each_row_has_its_part_number() -> None:
    found = details(topics_event(1_234))

    assert [(row["part"], row["parts"], row["full"]) for row in found] == [(1, 3, True), (2, 3, True), (3, 3, True)]
    entries = [entry for row in found for entry in row["topics"].items()]  # type: ignore[attr-defined]
    assert entries == [(f"t{n}", [4, 8, 6, 0]) for n in range(1_234)]
    assert all("base" not in row and row["removed"] == [] for row in found)


def test_a_delta_names_its_base_and_what_is_removed_comes_behind_what_is_new() -> None:
    removed = tuple(f"r{n}" for n in range(3))
    changed = {f"t{n}": QueueConfig(1, 2, 4, 1) for n in range(499)}

    first, second = details(topics_event(changed, removed=removed, base=DataVersion(1, 2, 3)))

    assert (first["full"], first["base"], second["base"]) == (False, "1.2.3", "1.2.3")
    assert (len(first["topics"]), first["removed"]) == (499, ["r0"])  # type: ignore[arg-type]
    assert (second["topics"], second["removed"]) == ({}, ["r1", "r2"])


def test_an_empty_full_set_is_one_row_marked_as_full() -> None:
    assert details(topics_event(0)) == [{"part": 1, "parts": 1, "full": True, "topics": {}, "removed": []}]


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        pytest.param(GroupKey("c1", "a"), ("c1", "a"), id="a-broker-name"),
        pytest.param(GroupKey("c1", ""), ("c1", None), id="a-cluster"),
        pytest.param(GroupKey("", ""), (None, None), id="neither"),
        pytest.param(None, (None, None), id="none"),
    ],
)
def test_a_row_about_a_name_or_a_cluster_names_it_and_no_replica(
    group: GroupKey | None, expected: tuple[str | None, str | None]
) -> None:
    (row,) = rows_of(Event(kind=EventKind.GUARD_ON, reason=Reason.SHARE, group=group))

    assert (row["cluster"], row["broker_name"]) == expected
    assert (row["broker_id"], row["broker_addr"], row["generation"]) == (None, None, None)


def test_the_memory_of_an_event_grows_with_its_topics_and_its_texts() -> None:
    small = weight(broker_event())

    full, delta = weight(topics_event(1_000)), weight(topics_event(1_000, base=DataVersion(1)))
    assert small + 100 * 1_000 < delta
    assert small < full < delta, "a full set is the core's own table"
    assert weight(broker_event(detail={"text": "x" * 5_000})) > small + 5_000
    assert weight(broker_event(detail={"buckets": {str(n): QUEUES for n in range(100)}})) > small + 100 * 100
    assert weight(broker_event(detail={"tops": [{"lag": n, "queue_id": n} for n in range(100)]})) > small + 300 * 100


def test_only_a_weight_that_is_not_1_is_in_a_row() -> None:
    event = topics_event({"light": QueueConfig(4, 8, 6, 0, 1), "heavy": QueueConfig(4, 8, 6, 0, 3)})

    (found,) = details(event)

    assert found["topics"] == {"light": [4, 8, 6, 0], "heavy": [4, 8, 6, 0, 3]}
