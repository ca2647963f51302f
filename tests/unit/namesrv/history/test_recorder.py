"""The recorder: numbers before it queues, drops and counts what does not fit, and keeps the last events at hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from namesrv.core.events import BrokerFacts, Event, EventKind
from namesrv.core.model import BrokerIdentity, DataVersion
from namesrv.history.files import HistoryFiles
from namesrv.history.recent import RecentEvents
from namesrv.history.recorder import Recorder
from namesrv.history.row import Record
from namesrv.metrics import Metrics
from tests.fakes.manual_clock import ManualClock


def event(name: str = "a", cluster: str = "c1") -> Event:
    identity = BrokerIdentity(cluster, name, 0, "h:1")
    facts = BrokerFacts(identity, 2**64 - 1, "r1", "z1", "h1", "5.3", DataVersion(1, 2, 3))
    return Event(kind=EventKind.REGISTERED, broker=facts, interval=1.2345, detail={"topics": 3})


def recorder(clock: ManualClock, folder: Path, *, queue_rows: int = 100) -> Recorder:
    files = HistoryFiles(folder, node="n:1", boot_id="b")
    return Recorder(files, node="n:1", boot_id="b", clock=clock, metrics=Metrics(), queue_rows=queue_rows)


def test_what_does_not_fit_is_dropped_counted_and_leaves_a_gap(clock: ManualClock, tmp_path: Path) -> None:
    full = recorder(clock, tmp_path, queue_rows=3)
    full.record([event()] * 5)
    assert full.dropped == 2
    full.start()
    assert full.stop(timeout=10)
    (file,) = tmp_path.rglob("*.jsonl.gz")
    rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert [row["seq"] for row in rows] == [1, 2, 3]
    full.record([event()])
    assert full.recent.of("a")[-1].seq == 6


def test_rows_of_the_servers_own_life_find_room_in_a_full_queue(clock: ManualClock, tmp_path: Path) -> None:
    full = recorder(clock, tmp_path, queue_rows=1)
    full.record([event(), event(), Event(kind=EventKind.NAMESRV_STOPPED)])
    full.start()
    assert full.stop(timeout=10)
    (file,) = tmp_path.rglob("*.jsonl.gz")
    rows = [json.loads(line)["event"] for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert rows == ["REGISTERED", "NAMESRV_STOPPED"]


def test_a_row_says_everything_of_its_event(clock: ManualClock, tmp_path: Path) -> None:
    writing = recorder(clock, tmp_path)
    clock.now += 61.0004
    writing.record([event()])
    writing.start()
    assert writing.stop(timeout=10)
    (file,) = tmp_path.rglob("*.jsonl.gz")
    assert json.loads(gzip.decompress(file.read_bytes())) == {
        "schema_version": 1,
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
        "detail": {"topics": 3},
    }


def test_recent_events_are_bounded_by_broker_and_by_name(clock: ManualClock) -> None:
    recent = RecentEvents(per_broker=2, brokers=2)
    for seq, name in enumerate(["a", "b", "a", "a", "c"], 1):
        recent.add(Record(event(name), clock.utc_now(), 0, seq))
    assert [record.seq for record in recent.of("a")] == [3, 4]
    assert recent.of("b") == []
    assert [record.seq for record in recent.of("c")] == [5]


def test_recent_events_of_one_name_in_two_clusters_are_told_apart(clock: ManualClock) -> None:
    recent = RecentEvents()
    for seq, cluster in enumerate(["c2", "c1", "c2"], 1):
        recent.add(Record(event(cluster=cluster), clock.utc_now(), 0, seq))
    assert [record.seq for record in recent.of("a")] == [1, 2, 3]
    assert [record.seq for record in recent.of("a", cluster="c1")] == [2]
