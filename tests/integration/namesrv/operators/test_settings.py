"""Settings of operators: on the disk before they are acknowledged, present after a kill, also with disk errors."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc import StatusCode

from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1.broker_pb2 import BrokerIdentity
from pointsman.v1.registration_service_pb2 import (
    UNREGISTER_REASON_DRAIN,
)
from pointsman_namesrv.core import guard as guard_module
from pointsman_namesrv.settings import settings_keeper as keeper_module
from pointsman_namesrv.settings.settings_store import FILE_NAME, REFRESH_SECONDS, table_file
from tests.kit.name_server import wire
from tests.kit.name_server.gated_store import GatedStore
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import Peer, peer_of, serving
from tests.kit.name_server.process import RealNameServer, real_name_server
from tests.kit.refusal import refusal_of
from tests.kit.waiting import eventually

INTERVAL = 5.0
DEADLINE = 30.0
Settings = dict[tuple[str, ...], tuple[str, int | None]]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


async def register(peer: Peer, name: str = "a", *topics: str, **facts: Any) -> int:
    who = wire.identity(name, addr=f"{name}:10911")
    return await peer.register(*(wire.topic(topic, perm=7) for topic in topics or ("orders",)), who=who, **facts)


async def settings(peer: Peer, page_size: int = 0) -> Settings:
    """Kind and name: value and remaining seconds."""
    found: Settings = {}
    request = admin.ListSettingsRequest(page_size=page_size)
    while True:
        page = await peer.admin.ListSettings(request)
        for each in page.settings:
            remaining = round(each.remaining.ToNanoseconds() / 1e9) if each.HasField("remaining") else None
            found[each.kind, *each.name] = (each.value, remaining)
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


def on_disk(state: Path) -> dict[str, list[tuple[object, ...]]]:
    """The rows that a kill at this moment would leave."""
    left = after_a_kill(state, state.with_name("looked at"))
    file = table_file(left)
    try:
        return {name: list(rows) for name, rows in file.open().rows.items() if rows}
    finally:
        file.close()
        shutil.rmtree(left)


def after_a_kill(state: Path, left: Path | None = None) -> Path:
    """A copy of the folder, as a kill at this moment leaves it."""
    # Checkpoints continue: a file that is half written may have its name by the time it is copied.
    return Path(shutil.copytree(state, left or state.with_name("left"), ignore=shutil.ignore_patterns("*.tmp")))


async def until_saved(clock: ManualClock, condition: Callable[[], object]) -> None:
    """Let one interval after the other pass until something is on the disk."""
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await clock.advance(INTERVAL)
            await asyncio.sleep(0.005)  # for the thread that writes


def wipe(name: str = "a", *, writable: bool = False) -> admin.SetWritePermRequest:
    return admin.SetWritePermRequest(cluster="c1", broker_name=name, writable=writable)


def hold(cluster: str = "c1", **more: Any) -> admin.SetGuardRequest:
    return admin.SetGuardRequest(cluster=cluster, mode=admin.GUARD_MODE_HOLD, **more)


def absence(name: str, seconds: int = 600) -> admin.SetMaintenanceRequest:
    return admin.SetMaintenanceRequest(
        cluster="c1", broker_name=name, duration=Duration(seconds=seconds), note="disk", by="ann"
    )


def put(key: str, value: str = "v", namespace: str = "ns") -> admin.PutKvRequest:
    return admin.PutKvRequest(namespace=namespace, key=key, value=value)


# --- a restart ------------------------------------------------------------------------------------------------


async def test_all_settings_of_operators_are_there_after_a_kill_right_after_the_response(
    clock: ManualClock, state: Path
) -> None:
    async with serving(clock=clock, snapshot=state) as (_, peer):
        await register(peer, "a", "orders", "old")
        await register(peer, "b", incarnation="run-b")
        answers: list[Any] = [
            await peer.admin.PutKv(put("k")),
            await peer.admin.PutKv(put("orders", "a:4;b:4", "ORDER_TOPIC_CONFIG")),
            await peer.admin.SetWritePerm(wipe("b")),
            await peer.admin.DeleteTopic(admin.DeleteTopicRequest(topic="old", force=True)),
            await peer.admin.SetGuard(hold()),
            await peer.admin.SetMaintenance(absence("b")),
        ]
        assert [(answer.durable, answer.warning) for answer in answers] == [(True, "")] * 6
        before, left = await settings(peer), after_a_kill(state)
    clock.now += 100.0
    async with serving(clock=clock, snapshot=left) as (app, peer):
        after = await settings(peer, page_size=2)
        assert after == {**before, ("MAINTENANCE", "c1", "b"): ("disk", 500)}
        assert sorted(after) == [
            ("GUARD", "c1"),
            ("HIDDEN_TOPIC", "c1", "a", "old"),
            ("KV", "ORDER_TOPIC_CONFIG", "orders"),
            ("KV", "ns", "k"),
            ("MAINTENANCE", "c1", "b"),
            ("WIPED_PERMISSION", "c1", "b"),
        ]
        # And they have their effect.
        await register(peer, "a", "orders", "old")
        await register(peer, "b", incarnation="run-b")
        route = app.core.routes.route("orders")
        assert ([queues.perm for _, queues in route.queues], route.order_topic_conf) == ([7, 5], "a:4;b:4")
        assert app.core.topic_names() == ["orders"]


async def test_a_removed_setting_does_not_come_back(clock: ManualClock, state: Path) -> None:
    async with serving(clock=clock, snapshot=state) as (_, peer):
        await register(peer)
        for request in (put("k"), put("orders", "a:4", "ORDER_TOPIC_CONFIG")):
            await peer.admin.PutKv(request)
            await peer.admin.DeleteKv(admin.DeleteKvRequest(namespace=request.namespace, key=request.key))
        await peer.admin.SetWritePerm(wipe())
        await peer.admin.SetWritePerm(wipe(writable=True))
        await peer.admin.SetGuard(hold())
        await peer.admin.SetGuard(admin.SetGuardRequest(cluster="c1", mode=admin.GUARD_MODE_AUTO))
        await peer.admin.SetMaintenance(absence("a"))
        await peer.admin.SetMaintenance(admin.SetMaintenanceRequest(cluster="c1", broker_name="a"))
        left = after_a_kill(state)
    async with serving(clock=clock, snapshot=left) as (_, peer):
        assert await settings(peer) == {}


async def test_a_wipe_that_a_drain_ended_does_not_come_back(clock: ManualClock, state: Path) -> None:
    async with serving(clock=clock, snapshot=state) as (_, peer):
        generation = await register(peer)
        await peer.admin.SetWritePerm(wipe())
        gone = wire.unregistration(wire.identity("a", addr="a:10911"), generation, UNREGISTER_REASON_DRAIN)
        await peer.registration.UnregisterBroker(gone)
        left = after_a_kill(state)
    async with serving(clock=clock, snapshot=left) as (_, peer):
        assert await settings(peer) == {}


async def test_an_expired_setting_is_removed_from_the_disk_with_the_next_interval(
    clock: ManualClock, state: Path
) -> None:
    async with serving(clock=clock, snapshot=state) as (_, peer):
        await register(peer, "a", "orders", "old", incarnation="one")
        await peer.admin.SetWritePerm(wipe())
        await peer.admin.DeleteTopic(admin.DeleteTopicRequest(topic="old", force=True))
        await peer.admin.SetGuard(hold(duration=Duration(seconds=30)))
        await peer.admin.SetMaintenance(absence("a", 30))
        assert len(on_disk(state)) == 4
        await register(peer, "a", "orders", "old", incarnation="two", version=(0, 0, 2))
        await clock.advance(40.0)
        assert await settings(peer) == {}
        await until_saved(clock, lambda: not on_disk(state))


async def test_the_time_that_is_left_is_written_again_now_and_then(clock: ManualClock, state: Path) -> None:
    """So that a wall clock that is set back lengthens little."""
    async with serving(clock=clock, snapshot=state) as (_, peer):
        await register(peer)
        await peer.admin.SetMaintenance(absence("a"))
        ((_, _, _, _, first, _),) = on_disk(state)["maintenance_windows"]
        await clock.advance(REFRESH_SECONDS + INTERVAL + 1)

        def remaining() -> object:
            ((_, _, _, _, remaining, _),) = on_disk(state)["maintenance_windows"]
            return remaining

        assert first == 600.0
        await until_saved(clock, lambda: remaining() != first)
        assert isinstance(later := remaining(), float)
        assert later <= 600.0 - REFRESH_SECONDS


async def test_a_wall_clock_that_is_set_back_lengthens_nothing(clock: ManualClock, state: Path) -> None:
    async with serving(clock=clock, snapshot=state) as (_, peer):
        await register(peer)
        await peer.admin.SetMaintenance(absence("a"))
        left = after_a_kill(state)
    clock.now -= 1_000.0
    async with serving(clock=clock, snapshot=left) as (_, peer):
        assert await settings(peer) == {("MAINTENANCE", "c1", "a"): ("disk", 600)}


CALLS = 100
NAMES = [f"b{i}" for i in range(CALLS)]
SETS: list[tuple[str, Callable[[str], Any], Callable[[str], tuple[str, ...]]]] = [
    ("PutKv", put, lambda name: ("KV", "ns", name)),
    ("SetWritePerm", wipe, lambda name: ("WIPED_PERMISSION", "c1", name)),
    (
        "DeleteTopic",
        lambda name: admin.DeleteTopicRequest(topic=f"t-{name}", force=True),
        lambda name: ("HIDDEN_TOPIC", "c1", name, f"t-{name}"),
    ),
    ("SetGuard", lambda name: hold(f"c-{name}"), lambda name: ("GUARD", f"c-{name}")),
    ("SetMaintenance", absence, lambda name: ("MAINTENANCE", "c1", name)),
]
REMOVES: list[tuple[str, Callable[[str], Any], Callable[[str], tuple[str, ...]]]] = [
    ("DeleteKv", lambda name: admin.DeleteKvRequest(namespace="ns", key=name), SETS[0][2]),
    ("SetWritePerm", lambda name: wipe(name, writable=True), SETS[1][2]),
    (
        "SetGuard",
        lambda name: admin.SetGuardRequest(cluster=f"c-{name}", mode=admin.GUARD_MODE_AUTO),
        SETS[3][2],
    ),
    (
        "SetMaintenance",
        lambda name: admin.SetMaintenanceRequest(cluster="c1", broker_name=name),
        SETS[4][2],
    ),
]


@pytest.mark.e2e
async def test_of_100_acknowledged_calls_of_each_kind_a_sigkill_right_after_the_last_loses_none(
    tmp_path: Path, full: bool
) -> None:
    """With ``--full`` a kill for each kind; else one after all calls that set, and one after all that remove."""
    expected: set[tuple[str, ...]] = set()
    steps = [([kind], is_set) for kinds, is_set in ((SETS, True), (REMOVES, False)) for kind in kinds]
    for kinds, is_set in steps if full else [(SETS, True), (REMOVES, False)]:
        async with _process(tmp_path) as (process, peer):
            assert set(await settings(peer)) == expected
            await asyncio.gather(*(_register_two(peer, name) for name in NAMES))
            for name in NAMES:
                for method, request, _ in kinds:
                    await getattr(peer.admin, method)(request(name))
            await process.kill()
        for _, _, key in kinds:
            keys = {key(name) for name in NAMES}
            expected = expected | keys if is_set else expected - keys
    async with _process(tmp_path) as (_, peer):
        assert set(await settings(peer)) == expected
        assert {key[0] for key in expected} == {"HIDDEN_TOPIC"}


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
async def test_each_call_is_on_the_disk_between_its_request_and_its_response(tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    def syncs() -> int:
        return sum("settings.db" in line for line in trace.read_text().splitlines())

    async with _process(tmp_path) as (process, peer):
        await _register_two(peer, NAMES[0])
        command = (
            "strace",
            "-f",
            "-y",
            "-e",
            "trace=fsync,fdatasync",
            "-o",
            str(trace),
            "-p",
            str(process.pid),
        )
        tracer = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        assert tracer.stderr is not None
        if b"attached" not in (line := await tracer.stderr.readline()):
            await tracer.communicate()
            pytest.skip(f"strace may not trace here: {line.decode()}")
        try:
            for method, request, _ in (*SETS, *REMOVES):
                before = syncs()
                await getattr(peer.admin, method)(request(NAMES[0]))
                assert syncs() > before, method
        finally:
            tracer.terminate()
            await tracer.communicate()


@asynccontextmanager
async def _process(folder: Path) -> AsyncIterator[tuple[RealNameServer, Peer]]:
    settings = {"snapshot.directory": folder / "state", "snapshot.interval_seconds": 0.1}
    async with (
        real_name_server(folder, settings=settings) as process,
        peer_of(process.addr) as peer,
    ):
        yield process, peer


async def _register_two(peer: Peer, name: str) -> None:
    await register(peer, name, f"t-{name}")
    who = BrokerIdentity(cluster=f"c-{name}", broker_name="x", addr=f"x-{name}:1")
    await peer.register("orders", who=who)


# --- the order of things --------------------------------------------------------------------------------------


REQUESTS = [
    pytest.param("PutKv", put("k"), id="put"),
    pytest.param("DeleteKv", admin.DeleteKvRequest(namespace="ns", key="there"), id="delete-key"),
    pytest.param("SetWritePerm", wipe(), id="wipe"),
    pytest.param("DeleteTopic", admin.DeleteTopicRequest(topic="orders", force=True), id="delete-topic"),
    pytest.param("SetGuard", hold(), id="guard"),
    pytest.param("SetMaintenance", absence("a"), id="maintenance"),
]


@pytest.mark.parametrize(("method", "request_"), REQUESTS)
async def test_a_change_is_one_write_that_ends_before_it_is_made_and_acknowledged(
    clock: ManualClock, state: Path, gated: list[GatedStore], method: str, request_: Any
) -> None:
    async with serving(clock=clock, snapshot=state) as (_, peer):
        (store,) = gated
        await register(peer)
        await peer.admin.PutKv(put("there"))
        before = await settings(peer)
        store.writes.clear()
        store.gate.clear()
        call = asyncio.ensure_future(getattr(peer.admin, method)(request_))
        await eventually(lambda: store.writes)
        # The loop is free, and nothing is changed yet.
        assert await settings(peer) == before
        assert not call.done()
        store.gate.set()
        assert (await call).durable
        assert await settings(peer) != before
        # Repeated, it is on the disk already.
        if method not in {"DeleteKv", "DeleteTopic"}:
            assert (await getattr(peer.admin, method)(request_)).durable
        assert len(store.writes) == 1


@pytest.mark.parametrize(("method", "request_"), REQUESTS)
async def test_a_disk_that_refuses_fails_a_change_or_warns_of_its_loss(
    clock: ManualClock, state: Path, gated: list[GatedStore], method: str, request_: Any
) -> None:
    async with serving(clock=clock, snapshot=state) as (app, peer):
        (store,) = gated
        await register(peer)
        await peer.admin.PutKv(put("there"))
        before = await settings(peer)
        store.refuses = OSError(errno.EIO, "Input/output error", "settings.db")
        if method in {"SetGuard", "SetMaintenance"}:
            answer = await getattr(peer.admin, method)(request_)
            assert not answer.durable
            assert answer.warning.endswith("[Errno 5] Input/output error: 'settings.db'")
            assert await settings(peer) != before
        else:
            refused = await refusal_of(getattr(peer.admin, method)(request_))
            assert (refused.status, refused.details.code) == (StatusCode.FAILED_PRECONDITION, "SETTING_NOT_SAVED")
            assert "[Errno 5] Input/output error: 'settings.db'" in refused.message
            assert await settings(peer) == before
        (complaint,) = (await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest())).complaints
        assert "cannot be saved" in complaint
        # Once the disk accepts rows again, changes made without it are saved, too.
        store.refuses = None
        await until_saved(clock, lambda: not app.parts.settings.problems())
        now, left = await settings(peer), after_a_kill(state)
    async with serving(clock=clock, snapshot=left) as (_, peer):
        assert await settings(peer) == now


async def test_a_change_that_is_refused_after_it_was_saved_is_removed_from_the_disk(
    clock: ManualClock, state: Path, gated: list[GatedStore]
) -> None:
    async with serving(clock=clock, snapshot=state) as (_, peer):
        (store,) = gated
        generation = await register(peer)
        store.gate.clear()
        call = asyncio.ensure_future(refusal_of(peer.admin.SetWritePerm(wipe())))
        await eventually(lambda: store.writes)
        who = wire.identity("a", addr="a:10911")
        await peer.registration.UnregisterBroker(wire.unregistration(who, generation))
        store.gate.set()
        assert (await call).details.code == "BROKER_UNKNOWN"
        assert len(store.writes) == 2
        assert on_disk(state) == {}


async def test_changes_at_the_same_time_are_made_one_after_the_other_and_each_is_checked(
    clock: ManualClock, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pointsman_namesrv.core.kv.MAX_ENTRIES", 10)
    async with serving(clock=clock, snapshot=state) as (app, peer):
        calls = [peer.admin.PutKv(put(f"k{number}")) for number in range(30)]
        done = await asyncio.gather(*calls, return_exceptions=True)
        refused = [error for error in done if isinstance(error, grpc.aio.AioRpcError)]
        assert (len(refused), {error.code() for error in refused}) == (20, {StatusCode.RESOURCE_EXHAUSTED})
        assert len(on_disk(state)["kv"]) == len(app.core.kv) == 10


async def test_more_changes_than_may_wait_are_refused(
    clock: ManualClock, state: Path, gated: list[GatedStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "MAX_WAITING", 3)
    async with serving(clock=clock, snapshot=state) as (_, peer):
        (store,) = gated
        store.gate.clear()
        calls = [asyncio.ensure_future(peer.admin.PutKv(put(f"k{number}"))) for number in range(4)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        (refused,) = [call for call in calls if call.done()]
        assert (await refusal_of(refused)).details.facts["limit"] == "waiting_admin_changes"
        store.gate.set()
        await asyncio.gather(*(call for call in calls if call is not refused))


async def test_a_disk_that_hangs_is_not_waited_for_and_a_late_write_is_undone(
    clock: ManualClock, state: Path, gated: list[GatedStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "SAVE_SECONDS", 0.05)
    async with serving(clock=clock, snapshot=state) as (_, peer):
        (store,) = gated
        await register(peer)
        store.gate.clear()
        for _ in range(2):  # the second one does not wait for the first
            refused = await refusal_of(peer.admin.PutKv(put("k")))
            assert "the disk has not responded for 0.05 s" in refused.message
        answer = await peer.admin.SetGuard(hold())
        assert (answer.durable, answer.guard.active) == (False, True)
        store.gate.set()
        await eventually(lambda: "kv" in on_disk(state))
        await until_saved(clock, lambda: on_disk(state).keys() == {"guards"})
        assert list(await settings(peer)) == [("GUARD", "c1")]


async def test_a_caller_that_cancels_does_not_make_disk_and_server_differ(
    clock: ManualClock, state: Path, gated: list[GatedStore]
) -> None:
    async with serving(clock=clock, snapshot=state) as (app, peer):
        (store,) = gated
        store.gate.clear()
        begun = peer.admin.PutKv(put("begun"))
        await eventually(lambda: store.writes)
        waiting = peer.admin.PutKv(put("waiting"))
        await eventually(lambda: len(app.parts.settings._changes) == 2)
        for call in (begun, waiting):
            call.cancel()
        cancelled = {"method": "PutKv", "code": "CANCELLED"}
        await eventually(lambda: app.metrics.registry.get_sample_value("pointsman_namesrv_rpcs_total", cancelled) == 2)
        store.gate.set()
        await eventually(lambda: len(app.core.kv))
        await peer.admin.PutKv(put("last"))
        assert [row[1] for row in on_disk(state)["kv"]] == ["begun", "last"]
        assert [entry.key for entry in app.core.kv.entries()] == ["begun", "last"]


async def test_a_change_under_way_when_the_server_stops_is_finished(
    clock: ManualClock, state: Path, gated: list[GatedStore]
) -> None:
    async with AsyncExitStack() as channels:
        async with running_name_server(clock=clock, snapshot=state) as app:
            peer = Peer(await channels.enter_async_context(grpc.aio.insecure_channel(app.addr)))
            (store,) = gated
            store.gate.clear()
            call = asyncio.ensure_future(peer.admin.PutKv(put("k")))
            await eventually(lambda: store.writes)
            asyncio.get_running_loop().call_later(0.1, store.gate.set)
        assert (await call).durable
    assert [row[1] for row in on_disk(state)["kv"]] == ["k"]


async def test_a_draining_server_is_changed_like_any_other(clock: ManualClock, state: Path) -> None:
    async with serving(clock=clock, snapshot=state) as (_, peer):
        await peer.admin.SetDrain(admin.SetDrainRequest(draining=True))
        assert (await peer.admin.PutKv(put("k"))).durable


# --- the folder -----------------------------------------------------------------------------------------------


async def test_without_a_snapshot_a_change_is_made_and_is_not_durable(clock: ManualClock) -> None:
    async with serving(clock=clock, snapshot=None) as (_, peer):
        await register(peer)
        for method, request_ in (("PutKv", put("k")), ("SetGuard", hold()), ("SetWritePerm", wipe())):
            answer = await getattr(peer.admin, method)(request_)
            assert (answer.durable, answer.warning) == (False, "")
        assert len(await settings(peer)) == 3


async def test_a_damaged_database_is_moved_and_the_server_starts(
    clock: ManualClock, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(clock=clock, snapshot=state) as (_, peer):
        await peer.admin.PutKv(put("k"))
    file = state / FILE_NAME
    file.write_bytes(b"x" * 5_000)
    async with serving(clock=clock, snapshot=state) as (_, peer):
        assert await settings(peer) == {}
        (complaint,) = (await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest())).complaints
        assert complaint.startswith(f"the settings of operators were refused at the start and set aside: {file} ")
        (logged,) = [record for record in caplog.records if record.levelname == "ERROR"]
        assert (logged.message, logged.exc_info) == (
            "operator settings file rejected, moved to damaged/; set them again",
            None,
        )
        assert (state / "damaged" / FILE_NAME).exists()
        assert (await peer.admin.PutKv(put("k"))).durable
    async with serving(clock=clock, snapshot=state) as (_, peer):
        assert list(await settings(peer)) == [("KV", "ns", "k")]
        assert not (await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest())).complaints


async def test_a_setting_that_breaks_a_rule_of_today_is_refused_and_the_others_stay(
    clock: ManualClock, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(clock=clock, snapshot=state) as (_, peer):
        await peer.admin.PutKv(put("k"))
    file = table_file(state)
    file.open()
    file.write([("kv", ("ORDER_TOPIC_CONFIG", "orders"), ("nonsense",)), ("guards", ("c1",), ("HALT", None, None))])
    file.close()
    async with serving(clock=clock, snapshot=state) as (_, peer):
        assert list(await settings(peer)) == [("KV", "ns", "k")]
        (complaint,) = (await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest())).complaints
        assert complaint == "2 settings of operators were refused at the start; the log names them"
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "operator setting rejected; it does not apply"
    ] * 2


# --- bounds ---------------------------------------------------------------------------------------------------


async def test_more_guards_that_are_not_auto_than_the_limit_are_refused_and_old_clusters_leave_the_list(
    clock: ManualClock, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_module, "MAX_SETTINGS", 3)
    async with serving(clock=clock, snapshot=state) as (app, peer):
        for number in range(4):
            who = BrokerIdentity(cluster=f"c{number}", broker_name="x", addr=f"x{number}:1")
            await peer.register("orders", who=who)
            if number < 3:
                assert (await peer.admin.SetGuard(hold(f"c{number}"))).durable
        refused = await refusal_of(peer.admin.SetGuard(hold("c3")))
        assert (refused.status, refused.details.code) == (StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
        assert dict(refused.details.facts) == {"limit": "guard_settings", "bound": "3"}
        # One that is set may be set again, and one that is AUTO again frees its place.
        await peer.admin.SetGuard(hold("c0", duration=Duration(seconds=60)))
        await peer.admin.SetGuard(admin.SetGuardRequest(cluster="c0", mode=admin.GUARD_MODE_AUTO))
        await peer.admin.SetGuard(hold("c3"))
        for number in range(4):
            await peer.admin.EvictBroker(admin.EvictBrokerRequest(cluster=f"c{number}", broker_name="x"))
        info = await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest())
        # c0 has neither brokers nor a setting.
        assert [each.cluster for each in info.guards] == ["c1", "c2", "c3"]
        assert info.guards_left_out == 0
        assert "c0" in app.core.guard.clusters()
        monkeypatch.setattr("pointsman_namesrv.rpc.inspection.MAX_PAGE_BYTES", 1)
        info = await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest())
        assert (len(info.guards), info.guards_left_out) == (1, 2)


async def test_a_token_of_no_page_is_refused(clock: ManualClock) -> None:
    async with serving(clock=clock, snapshot=None) as (_, peer):
        for request, field in (
            (admin.ListSettingsRequest(page_token="x/y"), "page_token"),
            (admin.ListSettingsRequest(page_size=5_001), "page_size"),
        ):
            assert (await refusal_of(peer.admin.ListSettings(request))).fields == [field]
