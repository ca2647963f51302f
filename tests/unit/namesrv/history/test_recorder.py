"""The recorder: numbers rows before queueing, drops and counts rows beyond its bounds, survives a failing disk."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.model import GroupKey, QueueConfig, Reason
from pointsman_namesrv.history import recorder as recording
from pointsman_namesrv.history.history_files import HistoryFiles
from pointsman_namesrv.history.recorder import Recorder
from pointsman_namesrv.history.row import weight
from pointsman_namesrv.history.topic_rows import ROW_ENTRIES
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.slices import THREAD_PAUSE_SECONDS
from tests.kit.history.rows import files_in, rows_in
from tests.kit.name_server.events import QUEUES, broker_event, facts, topics_event
from tests.kit.waiting import until


@pytest.fixture(autouse=True)
def _rounds_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "SYNC_SECONDS", 0.01)


def recorder(clock: ManualClock, folder: Path, *, queue_rows: int = 100, queue_bytes: int = 2**30) -> Recorder:
    return Recorder(
        HistoryFiles(folder, node="n:1", boot_id="b"),
        node="n:1",
        boot_id="b",
        clock=clock,
        metrics=Metrics(),
        queue_rows=queue_rows,
        queue_bytes=queue_bytes,
    )


def sample(recorder: Recorder, name: str, **labels: str) -> float | None:
    return recorder._metrics.registry.get_sample_value(f"pointsman_namesrv_history_{name}", labels)


def write_all(recorder: Recorder) -> None:
    recorder.start()
    assert recorder.stop(timeout=20)


def test_rows_beyond_the_bound_are_dropped_counted_and_leave_a_gap(clock: ManualClock, tmp_path: Path) -> None:
    full = recorder(clock, tmp_path, queue_rows=3)
    full.record([broker_event()] * 5)
    assert full.dropped == 2
    assert full.problems() == ["2 rows of the history were dropped since the start"]
    assert sample(full, "rows_dropped_total", cause="queue_full") == 2

    write_all(full)

    assert [row["seq"] for row in rows_in(tmp_path)] == [1, 2, 3]
    full.record([broker_event()])
    assert full.recent.of("a")[-1].seq == 6


def test_the_writer_pauses_between_rows_of_topics(clock: ManualClock, tmp_path: Path) -> None:
    rows = 100
    writing = recorder(clock, tmp_path, queue_rows=rows)
    writing.record([topics_event(rows * ROW_ENTRIES)])
    began = time.monotonic()
    writing.start()
    until(lambda: len(rows_in(tmp_path)) == rows)
    assert time.monotonic() - began > rows * THREAD_PAUSE_SECONDS
    assert writing.stop(timeout=20)


def test_waiting_rows_are_bounded_in_memory_too(clock: ManualClock, tmp_path: Path) -> None:
    full = recorder(clock, tmp_path, queue_rows=10_000, queue_bytes=3 * weight(topics_event(500)))
    full.record([topics_event(500)] * 5)

    assert full.dropped == 2
    assert sample(full, "queue_rows") == 3


def test_it_reports_pressure_while_over_half_full(clock: ManualClock, tmp_path: Path) -> None:
    writing = recorder(clock, tmp_path, queue_rows=4)
    writing.record([broker_event()] * 2)
    assert not writing.is_pressed
    writing.record([broker_event()])
    assert writing.is_pressed

    write_all(writing)
    assert not writing.is_pressed


def test_a_dropped_record_of_many_rows_is_many_rows_dropped(clock: ManualClock, tmp_path: Path) -> None:
    full = recorder(clock, tmp_path, queue_rows=3)
    full.record([broker_event(), topics_event(1_500), broker_event()])
    write_all(full)

    assert full.dropped == 3
    assert [row["seq"] for row in rows_in(tmp_path)] == [1, 5]


def test_rows_that_are_about_no_broker_find_room_in_a_full_queue(clock: ManualClock, tmp_path: Path) -> None:
    full = recorder(clock, tmp_path, queue_rows=1)
    full.record([broker_event(), broker_event(), Event(kind=EventKind.NAMESRV_STOPPED)])
    write_all(full)

    assert [row["event"] for row in rows_in(tmp_path)] == ["REGISTERED", "NAMESRV_STOPPED"]


def test_a_row_has_every_field_of_its_event(clock: ManualClock, tmp_path: Path) -> None:
    writing = recorder(clock, tmp_path)
    clock.now += 61.0004
    writing.record([broker_event()])
    write_all(writing)

    assert rows_in(tmp_path) == [
        {
            "schema_version": 2,
            "event_at": "2026-01-01T00:01:01.000Z",
            "uptime_ms": 61000,
            "event": "REGISTERED",
            "reason": None,
            "node": "n:1",
            "boot_id": "b",
            "seq": 1,
            "cluster": "c1",
            "broker_name": "a",
            "broker_id": 0,
            "broker_addr": "h:1",
            "zone": "z1",
            "host": "h1",
            "incarnation": "r1",
            "generation": "18446744073709551615",
            "broker_version": "5.3",
            "data_version": "1.2.3",
            "interval_ms": 1234,
            "state": "UP",
            "since_ms": 12500,
            "planned": False,
            "detail": {"topics": 3},
        }
    ]


class TopicsOfAnotherThread(Mapping[str, QueueConfig]):
    """A topic set that its own thread may pass on, but not walk over."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._owner = threading.get_ident()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, topic: str) -> QueueConfig:
        return QUEUES

    def __iter__(self) -> Iterator[str]:
        assert threading.get_ident() != self._owner, "the loop's thread must not walk over topics"
        return (f"t{n}" for n in range(self._count))


def test_a_hundred_thousand_topics_are_spread_in_the_writers_thread_and_numbered_without_a_gap(
    clock: ManualClock, tmp_path: Path
) -> None:
    topics = TopicsOfAnotherThread(100_000)
    with pytest.raises(AssertionError):
        iter(topics)
    writing = recorder(clock, tmp_path, queue_rows=1_000)
    writing.record([broker_event(), topics_event(topics), broker_event(EventKind.EXPIRED)])
    write_all(writing)
    rows = rows_in(tmp_path)

    assert [row["seq"] for row in rows] == list(range(1, 203))
    assert [row["event"] for row in rows] == ["REGISTERED", *["TOPICS"] * 200, "EXPIRED"]
    assert [row["detail"]["part"] for row in rows[1:-1]] == list(range(1, 201))
    assert sum(len(row["detail"]["topics"]) for row in rows[1:-1]) == 100_000
    assert writing.dropped == 0


def test_routine_events_are_logged_at_debug_only_and_never_with_their_topics(
    clock: ManualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    routine = [
        topics_event({"orders": QUEUES}),
        *(Event(kind=kind, broker=facts()) for kind in ("CHECKPOINT", "HEARTBEAT", "HEARTBEATS")),  # type: ignore[arg-type]
    ]
    with caplog.at_level(logging.DEBUG, logger="pointsman_namesrv.history"):
        guard = Event(kind=EventKind.GUARD_ON, reason=Reason.SHARE, group=GroupKey("c1", ""))
        recorder(clock, tmp_path).record([*routine, guard, Event(kind=EventKind.NAMESRV_READY)])
    logged = {record.getMessage(): (record.levelname, record.facts) for record in caplog.records}  # type: ignore[attr-defined]

    assert {message: level for message, (level, _) in logged.items()} == {
        "TOPICS": "DEBUG",
        "CHECKPOINT": "DEBUG",
        "HEARTBEAT": "DEBUG",
        "HEARTBEATS": "DEBUG",
        "GUARD_ON": "WARNING",
        "NAMESRV_READY": "INFO",
    }
    assert "orders" not in str(logged["TOPICS"])
    assert (logged["TOPICS"][1]["topics"], logged["GUARD_ON"][1]["cluster"]) == (1, "c1")


def test_a_guard_that_is_on_for_too_long_is_an_error_in_the_log(
    clock: ManualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder(clock, tmp_path).record([Event(kind=EventKind.GUARD_ON, reason=Reason.LIMIT, group=GroupKey("c1", ""))])
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_what_is_needed_now_is_on_the_disk_before_the_next_round(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock, tmp_path: Path
) -> None:
    monkeypatch.setattr(recording, "SYNC_SECONDS", 600.0)
    writing = recorder(clock, tmp_path)
    writing.record([broker_event()])
    assert not writing.write_now(), "it has not been started"
    writing.start()
    for rows in (2, 3):
        writing.record([broker_event()])
        assert writing.write_now()
        assert len(rows_in(tmp_path)) == rows
    assert writing.write_now(), "nothing waits"
    assert writing.stop(timeout=20)


def test_written_bytes_are_counted_and_each_sync_measured(clock: ManualClock, tmp_path: Path) -> None:
    writing = recorder(clock, tmp_path)
    writing.record([broker_event()] * 3)
    writing.start()
    until(lambda: sample(writing, "rows_total") == 3)
    (file,) = tmp_path.rglob("*.jsonl")

    assert sample(writing, "bytes_total") == file.stat().st_size
    assert sample(writing, "fsync_duration_seconds_count") == 1
    assert (writing.problems(), sample(writing, "queue_rows"), sample(writing, "queue_bytes")) == ([], 0, 0)
    assert writing.stop(timeout=20)


def test_a_folder_that_disappears_and_returns_costs_no_row_and_is_reported_while_missing(
    clock: ManualClock, tmp_path: Path
) -> None:
    writing = recorder(clock, tmp_path)
    writing.record([broker_event()])
    (tmp_path / "raw").write_text("in the way")
    with pytest.raises(FileExistsError):
        writing.start()
    (tmp_path / "raw").unlink()
    writing.start()
    until(lambda: sample(writing, "rows_total") == 1)
    shutil.move(tmp_path / "raw", tmp_path / "before")
    (tmp_path / "raw").write_text("in the way")
    clock.now += 3_600
    writing.record([broker_event()] * 2)
    until(writing.problems)

    (complaint,) = writing.problems()
    assert complaint.startswith("the history cannot be written: ")
    assert sample(writing, "failing") == 1
    writing.record([broker_event()])
    (tmp_path / "raw").unlink()
    until(lambda: not writing.problems())

    assert sample(writing, "failing") == 0
    assert writing.stop(timeout=20)
    assert writing.dropped == 0
    assert [row["seq"] for row in rows_in(tmp_path)] == [2, 3, 4]


def test_a_disk_that_fails_until_the_stop_loses_all_waiting_rows_and_the_loss_is_logged(
    clock: ManualClock, tmp_path: Path
) -> None:
    writing = recorder(clock, tmp_path, queue_rows=5)
    writing.start()
    shutil.rmtree(tmp_path / "raw")
    (tmp_path / "raw").write_text("in the way")
    writing.record([broker_event()] * 3)
    until(writing.problems)
    writing.record([broker_event()] * 4)

    assert writing.dropped == 2
    assert writing.problems()[1] == "2 rows of the history were dropped since the start"
    assert writing.stop(timeout=20)
    assert writing.dropped == 7
    assert sample(writing, "rows_dropped_total", cause="disk") == 7


def test_only_the_row_that_is_not_json_is_dropped(clock: ManualClock, tmp_path: Path) -> None:
    writing = recorder(clock, tmp_path)
    writing.record([broker_event(), broker_event(detail={"bad": object()}), broker_event()])
    write_all(writing)

    assert [row["seq"] for row in rows_in(tmp_path)] == [1, 3]
    assert (writing.dropped, sample(writing, "rows_dropped_total", cause="invalid")) == (1, 1)


def test_a_clock_that_runs_into_the_next_day_closes_the_file_between_two_rows_of_a_batch(
    clock: ManualClock, tmp_path: Path
) -> None:
    writing = recorder(clock, tmp_path)
    writing.record([broker_event()])
    clock.now += 86_400
    writing.record([broker_event()])
    write_all(writing)

    assert files_in(tmp_path) == ["dt=2026-01-01/n_1-b-1.jsonl.gz", "dt=2026-01-02/n_1-b-2.jsonl.gz"]


def test_without_files_nothing_is_written_and_the_recent_events_are_kept(clock: ManualClock) -> None:
    metrics = Metrics()
    silent = Recorder(None, node="n", boot_id="b", clock=clock, metrics=metrics, queue_rows=1)
    silent.start()
    silent.record([broker_event()] * 3)

    assert (len(silent.recent.of("a")), silent.dropped, silent.problems()) == (3, 0, [])
    assert silent.stop(timeout=20)
