"""A restarted name server knows its past: the same answers before and after a kill, plus the restart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pointsman.v1.broker_pb2 import PROBE_EVIDENCE_STRONG, PROBE_STATUS_FAILING, BrokerHealth
from pointsman.v1.registration_service_pb2 import HeartbeatRequest
from tests.kit.ctl.command import ctl
from tests.kit.name_server import wire
from tests.kit.name_server.peer import Peer, peer_of
from tests.kit.name_server.process import RealNameServer, real_name_server
from tests.kit.waiting import read_until

pytestmark = pytest.mark.e2e

GONE = wire.identity("gone", addr="10.0.0.1:10911")
OUT = wire.identity("out", addr="10.0.0.2:10911")
RESTARTS = ("NAMESRV_STARTED", "NAMESRV_STOPPED")
REFUSES = BrokerHealth(status=PROBE_STATUS_FAILING, evidence=PROBE_EVIDENCE_STRONG, detail="LOADING", ever_passed=True)


def keeping_a_snapshot(folder: Path, **more: object) -> dict[str, object]:
    return {"snapshot.directory": folder / "state", "snapshot.interval_seconds": 0.1} | more


async def asked(server: RealNameServer, *command: str) -> Any:
    """The document of one name server."""
    printed = await ctl("--namesrv", server.addr, "--output", "json", *command)
    (node,) = printed.document["nodes"]
    return node


async def read_back(server: RealNameServer, broker: str) -> Any:
    """What ``why`` answers once the history was read."""
    return await read_until(lambda: asked(server, "why", broker), lambda node: node["earlierRuns"] == "READ")


def events_of(node: Any) -> list[list[object]]:
    """The events of a broker, as each run of the name server names them."""
    fields = ("eventAt", "event", "reason", "seq", "state", "planned", "brokerAddr", "generation", "detail")
    brokers = (event for event in node["events"] if event["event"] not in RESTARTS)
    return [[event[name] for name in fields] for event in brokers]


def restarts_of(node: Any) -> list[str]:
    return [event["event"] for event in node["events"] if event["event"] in RESTARTS]


def lines_of(printed: str) -> list[str]:
    """The lines of ``why`` without restarts, lasting durations and the server's name."""
    lines = printed.splitlines()
    restarts = {i + n for i, line in enumerate(lines) if "NAMESRV_" in line for n in (0, 1)}
    kept = (line for i, line in enumerate(lines) if i not in restarts)
    return [re.sub(r"for [0-9hms. ]+(?=[,;]|$)|[0-9.hms]+ ago", "...", " ".join(line.split())) for line in kept]


async def outages(peer: Peer) -> None:
    """One broker is lost and another refuses to serve."""
    await peer.register("orders", who=GONE, heartbeat=1, expiry=3)
    generation = await peer.register("orders", who=OUT, heartbeat=30, expiry=120)
    beat = wire.beat(generation, who=OUT)
    beat.health.CopyFrom(REFUSES)
    await peer.registration.Heartbeat(HeartbeatRequest(beat=beat))


async def until_lost(server: RealNameServer) -> None:
    await read_until(
        lambda: asked(server, "why", "gone"), lambda node: [e for e in node["events"] if e["event"] == "EXPIRED"]
    )


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM"])
async def test_why_gives_the_same_answer_after_a_restart_in_the_middle_of_an_outage(tmp_path: Path, how: str) -> None:
    async with real_name_server(tmp_path, settings=keeping_a_snapshot(tmp_path)) as server:
        async with peer_of(server.addr) as peer:
            await outages(peer)
            await until_lost(server)
            before = [await asked(server, "why", name) for name in ("gone", "out")]
            text = [(await ctl("--namesrv", server.addr, "why", name)).out for name in ("gone", "out")]
            penalties = await asked(server, "flapping")
        await read_until(lambda: rows_on_disk(server), lambda kinds: "EXPIRED" in kinds)
        await (server.kill() if how == "SIGKILL" else server.stop())
        await server.start()
        after = [await read_back(server, name) for name in ("gone", "out")]
        for name, was, now in zip(("gone", "out"), before, after, strict=True):
            assert was["earlierRuns"] == "READ", "there was none"
            assert events_of(now) == events_of(was)
            stopped = ["NAMESRV_STOPPED"] if how == "SIGTERM" else []
            assert restarts_of(now) == [*stopped, "NAMESRV_STARTED"]
            assert now["outages"] == was["outages"], name
        again = [(await ctl("--namesrv", server.addr, "why", name)).out for name in ("gone", "out")]
        assert lines_of(again[0])[1:] == lines_of(text[0])[1:]
        assert [b["stateForSeconds"] > 1.0 for b in after[1]["brokers"]] == [True]
        assert [b["rule"] for b in after[1]["brokers"]] == [b["rule"] for b in before[1]["brokers"]]
        scores = await asked(server, "flapping")
        for was, now in zip(penalties["scores"], scores["scores"], strict=True):
            assert now["penalty"] == pytest.approx(was["penalty"], rel=0.02)
            assert {**now, "penalty": 0, "lastEventAgoSeconds": 0} == {**was, "penalty": 0, "lastEventAgoSeconds": 0}


async def rows_on_disk(server: RealNameServer) -> list[str]:
    return [row["event"] for row in server.events()]


async def test_a_broker_that_was_lost_after_the_last_snapshot_is_not_routed_after_a_kill(tmp_path: Path) -> None:
    settings = keeping_a_snapshot(tmp_path, **{"snapshot.interval_seconds": 3_600})
    async with real_name_server(tmp_path, settings=settings) as server:
        async with peer_of(server.addr) as peer:
            await peer.register("orders", who=GONE, heartbeat=1, expiry=3)
        await server.stop()  # writes the snapshot
        await server.start()
        await until_lost(server)
        await read_until(lambda: rows_on_disk(server), lambda kinds: "EXPIRED" in kinds)
        await server.kill()
        await server.start()
        node = await read_back(server, "gone")
        assert node["brokers"] == []
        assert (node["events"][-2]["event"], node["events"][-2]["state"]) == ("EXPIRED", "GONE")
        (logged,) = server.said("snapshot and history differed; the history is younger")
        assert logged["broker"] == "c1/gone/0"
        *_, checkpoint = await read_until(lambda: checkpoints(server), lambda rows: len(rows) == 2)
        assert (checkpoint["state"], checkpoint["detail"]["gone_reason"]) == ("GONE", "SILENCE")


async def checkpoints(server: RealNameServer) -> list[dict[str, Any]]:
    """The rows about brokers with which each run began."""
    return sorted(server.events("CHECKPOINT"), key=lambda row: str(row["event_at"]))
