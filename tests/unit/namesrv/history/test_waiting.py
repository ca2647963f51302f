"""Rows that wait for the disk: in order, bounded in rows and bytes, counted until they are on the disk."""

from __future__ import annotations

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.core.events import Event
from pointsman_namesrv.history import waiting
from pointsman_namesrv.history.row import Record, row_count, weight
from pointsman_namesrv.history.waiting import RESERVED_ROWS, WaitingRecords
from tests.kit.name_server.events import broker_event, topics_event

ROOM = 2**40


def record(event: Event | None = None, seq: int = 1) -> Record:
    event = event or broker_event()
    return Record(event, ManualClock().utc_now(), 0, seq, row_count(event))


def test_rows_are_counted_and_not_records() -> None:
    records = WaitingRecords(max_rows=4, max_bytes=ROOM)

    assert records.put(record())
    assert records.put(record(topics_event(1_001)))
    assert not records.put(record())
    assert records.rows == 4


def test_memory_is_a_separate_bound() -> None:
    each = weight(broker_event())
    records = WaitingRecords(max_rows=1_000, max_bytes=3 * each)

    assert [records.put(record()) for _ in range(5)] == [True, True, True, False, False]
    assert records.bytes == 3 * each


def test_where_nothing_waits_a_record_larger_than_the_bounds_finds_room() -> None:
    records = WaitingRecords(max_rows=1, max_bytes=1)

    assert records.put(record(topics_event(2_000)))
    assert not records.put(record())


def test_reserved_records_have_a_separate_limit_which_is_finite_too() -> None:
    records = WaitingRecords(max_rows=1, max_bytes=1)
    kept = sum(records.put(record(), reserved=True) for _ in range(RESERVED_ROWS + 5))

    assert kept == RESERVED_ROWS + 1


def test_a_batch_in_writing_still_counts_and_returns_to_its_place() -> None:
    records = WaitingRecords(max_rows=3, max_bytes=ROOM)
    for seq in (1, 2, 3):
        records.put(record(seq=seq))
    batch = records.take()

    assert not records.put(record(seq=4))
    records.give_back(batch)
    assert [entry.record.seq for entry in records.take()] == [1, 2, 3]
    records.done(batch)
    assert (records.rows, records.bytes) == (0, 0)
    assert records.put(record(seq=5))


@pytest.mark.parametrize("bound", ["BATCH_ROWS", "BATCH_BYTES"])
def test_a_batch_is_bounded_by_one_sync(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, bound, 2 if bound == "BATCH_ROWS" else 2 * weight(broker_event()))
    records = WaitingRecords(max_rows=10, max_bytes=ROOM)
    for seq in range(1, 6):
        records.put(record(seq=seq))

    assert [[entry.record.seq for entry in records.take()] for _ in range(4)] == [[1, 2], [3, 4], [5], []]
