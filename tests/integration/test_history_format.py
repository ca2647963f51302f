"""The rows of the name server match the public schema and what the Spark jobs read."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1.broker_pb2 import PROBE_STATUS_FAILING
from pointsman.v1.registration_service_pb2 import HeartbeatRequest
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman_namesrv.core.administration import BrokerDataChange
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.liveness import Punctuality
from pointsman_namesrv.core.model import DataVersion, GroupKey, Reason
from pointsman_namesrv.history.history_files import HistoryFiles
from pointsman_namesrv.history.recorder import Recorder
from pointsman_namesrv.node_metrics import Metrics
from pointsman_report.cli import main
from pointsman_report.row_validation import known_events
from tests.kit.history.rows import rows_in
from tests.kit.name_server import wire
from tests.kit.name_server.events import QUEUES, broker_event, facts, topics_event
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.queue_stats import MEASURED, NOTHING_MEASURED, with_detail


async def test_every_row_that_a_name_server_writes_matches_the_public_schema(
    clock: ManualClock, tmp_path: Path
) -> None:
    async with running_name_server(clock=clock, history=tmp_path) as server:
        async with grpc.aio.insecure_channel(server.addr) as channel:
            stub = RegistrationServiceStub(channel)
            await stub.RegisterBroker(wire.registration(wire.topic("orders"), zone="z1", incarnation="r1"))
            generation = (await stub.RegisterBroker(wire.registration(incarnation="r2"))).generation
            await clock.advance(50)
            for probe in (0, PROBE_STATUS_FAILING, 0):
                beat = wire.beat(generation, probe=probe)  # type: ignore[arg-type]  # 0 is UNSPECIFIED
                await stub.Heartbeat(HeartbeatRequest(beat=beat))
        clock.jump_wall_clock(timedelta(days=1))
        await clock.advance(300)
    files = sorted(map(str, tmp_path.rglob("*.jsonl.gz")))  # noqa: ASYNC240  # nothing else runs

    assert len(files) == 2
    assert main(["validate", *files]) == 0


NODES_OWN = {kind for kind in EventKind if kind.startswith("NAMESRV_")} | {EventKind.KV_CHANGED}
OF_A_NAME = {
    EventKind.PERM_CHANGED,
    EventKind.MAINTENANCE_ON,
    EventKind.MAINTENANCE_OFF,
}
OF_A_CLUSTER = {EventKind.GUARD_ON, EventKind.GUARD_OFF, EventKind.TOPIC_DELETED}


def events_of(kind: EventKind) -> list[Event]:
    """Every shape that an event of a kind may have."""
    if kind is EventKind.TOPICS:
        removed = tuple(f"r{n}" for n in range(600))
        return [topics_event(0), topics_event(1_200), topics_event({"t": QUEUES}, removed=removed, base=DataVersion(1))]
    if kind is EventKind.HEARTBEATS:
        beats = Punctuality(since=0.0)
        for interval in (0.001, 30.0, 31.5, 5_000.0):
            beats.add(interval, is_late=False)
        without_clock = beats.detail(now=60.0)
        beats.add_clock(-5)
        return [Event(kind=kind, broker=facts(), detail=detail) for detail in (without_clock, beats.detail(now=60.0))]
    if kind is EventKind.QUEUE_STATS:
        return [Event(kind=kind, broker=facts(), detail=stats.detail()) for stats in (NOTHING_MEASURED, MEASURED)]
    if kind is EventKind.BROKER_DATA_CHANGED:
        one = BrokerDataChange(
            "offsets of group g in topic t", "c1", ("a",), "t", "g", "pointsmanctl x", {"after": [1]}
        )
        several = BrokerDataChange("dead letters", "", ("b", "a"), "", "", "", {"before": {"n": None}, "after": 0.5})
        return [change.event(by="jo") for change in (one, several)]
    if kind in NODES_OWN:
        return [Event(kind=kind, detail={"by": "jo"})]
    if kind in OF_A_NAME | OF_A_CLUSTER:
        groups = [GroupKey("c1", ""), *([GroupKey("c1", "a")] if kind in OF_A_NAME else [])]
        return [Event(kind=kind, reason=Reason.ADMIN, group=group, detail={"by": "jo"}) for group in groups]
    return [broker_event(kind, detail={"i": 1, "n": 1} if kind is EventKind.CHECKPOINT else {})]


@pytest.fixture
def written(clock: ManualClock, tmp_path: Path) -> Path:
    """A history of every kind and every reason, as the recorder writes it."""
    recorder = Recorder(
        HistoryFiles(tmp_path, node="n:1", boot_id="b"),
        node="n:1",
        boot_id="b",
        clock=clock,
        metrics=Metrics(),
        queue_rows=10_000,
    )
    recorder.record([event for kind in EventKind for event in events_of(kind)])
    recorder.record([broker_event(EventKind.UNREGISTERED, reason=reason) for reason in Reason])
    recorder.start()
    assert recorder.stop(timeout=20)
    return tmp_path


def test_every_kind_of_event_and_every_reason_that_the_recorder_writes_matches_the_public_schema(written: Path) -> None:
    (file,) = written.rglob("*.jsonl.gz")

    assert main(["validate", str(file)]) == 0
    rows = rows_in(written)
    assert {row["event"] for row in rows} == set(EventKind)
    assert {row["reason"] for row in rows} >= set(Reason)
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))


def test_the_format_names_every_event_of_the_server() -> None:
    assert set(EventKind) <= known_events()


TOPICS = {"part": 1, "parts": 1, "full": True, "topics": {"t": [4, 8, 6, 0]}, "removed": []}
BEATS = {"count": 1, "min_ms": 1, "max_ms": 1, "buckets": {"250": 1}}


@pytest.mark.parametrize(
    ("event", "detail", "phrases"),
    [
        pytest.param("TOPICS", {"part": 1}, ("detail.parts: missing", "parts: missing"), id="without-parts"),
        pytest.param("TOPICS", TOPICS | {"full": False}, ("base: missing",), id="a-delta-without-its-base"),
        pytest.param("TOPICS", TOPICS | {"removed": ["x"]}, ("detail.removed",), id="a-full-set-that-removes"),
        pytest.param("TOPICS", TOPICS | {"topics": {"t": [4, 8]}}, ("detail.topics.t",), id="half-a-queue-table"),
        pytest.param("QUEUE_STATS", {"depth": 1}, ("top_lags: missing",), id="without-lags"),
        pytest.param("QUEUE_STATS", with_detail(depth=-1), ("detail.depth",), id="fewer-than-no-messages"),
        pytest.param("QUEUE_STATS", with_detail(put_rate="much"), ("detail.put_rate",), id="a-rate-that-is-none"),
        pytest.param("QUEUE_STATS", with_detail(top_lags=[{"group": "g"}]), ("lag: missing",), id="half-a-lag"),
        pytest.param("HEARTBEATS", {"count": 1}, ("buckets: missing",), id="without-buckets"),
        pytest.param("HEARTBEATS", BEATS | {"clock_ahead_ms": "5"}, ("detail.clock_ahead_ms",), id="a-clock-in-words"),
        pytest.param("HEARTBEATS", BEATS | {"buckets": {"soon": 1}}, ("detail.buckets",), id="an-edge-that-is-none"),
    ],
)
def test_a_detail_that_a_reader_could_not_use_is_named(
    event: str, detail: dict[str, Any], phrases: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"schema_version": 1, "event_at": "2026-01-01T00:00:00Z", "node": "n", "boot_id": "b", "seq": 1}
    row |= {"event": event, "cluster": "c1", "broker_name": "a", "broker_id": 0, "detail": detail}
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(row) + "\n", encoding="utf-8")

    assert main(["validate", str(file)]) == 1
    output = capsys.readouterr().out
    assert any(words in output for words in phrases), output
