"""The observer against a real server of RocketMQ's wire: brokers and the server start, stop and return."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pointsman.clock import SystemClock
from pointsman_namesrv.config import HistoryConfig, RemotingConfig
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.observe import __main__ as command
from pointsman_namesrv.observe import connection
from pointsman_namesrv.observe import observer as observing
from pointsman_namesrv.observe import polled_events as watching
from pointsman_namesrv.observe.listings import Listings
from pointsman_namesrv.observe.observer import Observer
from pointsman_namesrv.observe.observer_metrics import ObserverMetrics
from pointsman_namesrv.observe.route_differences import RouteDifferences
from pointsman_report.row_validation import problems_of
from tests.kit.broker.redis.process import free_port
from tests.kit.broker.rocketmq.frames import broker_ext, register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import RemotingPeer, remoting_peer
from tests.kit.history.rows import files_in, rows_in
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.observed import observe, observed_servers, polled
from tests.kit.waiting import eventually, running


@pytest.fixture(autouse=True)
def _waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "FIRST_WAIT_SECONDS", 0.02)
    monkeypatch.setattr(observing, "LONGEST_WAIT_SECONDS", 0.1)
    # Only what a test stops is away, never a slow machine.
    monkeypatch.setattr(watching, "PAUSED_AFTER_SECONDS", 60.0)
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 30.0)
    monkeypatch.setattr(connection, "RESPONSE_SECONDS", 30.0)


@asynccontextmanager
async def served(addr: str = "") -> AsyncIterator[str]:
    """A name server that drops a broker as soon as it unregisters; gives its address."""
    async with running_name_server(remoting=RemotingConfig(listen=addr or f"127.0.0.1:{free_port()}")) as server:
        yield server.remoting_addr


def observer(
    addr: str,
    folder: Path,
    *,
    listings: Listings | None = None,
    observed: ObserverMetrics | None = None,
    **settings: Any,
) -> Observer:
    return Observer(
        addr,
        history=HistoryConfig(directory=str(folder)),
        settings=polled(**settings),
        version="0",
        clock=SystemClock(),
        metrics=Metrics(),
        listings=listings,
        observed=observed,
    )


@asynccontextmanager
async def watched(found: Observer) -> AsyncIterator[None]:
    async with running(found.run()):
        yield
    await found.close()


def known(found: Observer) -> set[str]:
    watch = found._watch
    return {position.broker_name for position in watch.known} if watch is not None and watch.is_ready else set()


async def until_known(found: Observer, *names: str) -> None:
    await eventually(lambda: found._running is not None and known(found) == set(names))


async def register_broker(peer: RemotingPeer, name: str, n: int, *topics: str) -> None:
    ext = broker_ext(name, 0, f"10.0.0.{n}:10911")
    table = {topic: topic_config(topic) for topic in (name, "Shared", *topics)}
    peer.send(register(ext, register_body(table)))
    assert (await peer.answer()).code == 0


async def leave(peer: RemotingPeer, name: str, n: int) -> None:
    assert (await peer.ask(104, broker_ext(name, 0, f"10.0.0.{n}:10911"))).code == 0


def happened(rows: list[dict[str, Any]]) -> list[tuple[str, str | None, str | None]]:
    return [(row["event"], row["broker_name"], row["state"]) for row in rows]


def assert_valid(folder: Path) -> None:
    for name in files_in(folder):
        assert not [problem for problem in problems_of(folder / "raw" / name) if problem is not None]


async def test_a_broker_that_registers_unregisters_and_returns_is_in_the_history(tmp_path: Path) -> None:
    async with served() as addr, remoting_peer(addr) as peer:
        await register_broker(peer, "broker-a", 1)
        found = observer(addr, tmp_path)
        async with watched(found):
            await until_known(found, "broker-a")
            await register_broker(peer, "broker-b", 2)
            await until_known(found, "broker-a", "broker-b")
            await leave(peer, "broker-b", 2)
            await until_known(found, "broker-a")
            await register_broker(peer, "broker-b", 2)
            await until_known(found, "broker-a", "broker-b")

    rows = rows_in(tmp_path)
    assert happened(rows) == [
        ("NAMESRV_STARTED", None, None),
        ("NAMESRV_READY", None, None),
        ("CHECKPOINT", "broker-a", "UP"),
        ("REGISTERED", "broker-b", "UP"),
        ("EXPIRED", "broker-b", "GONE"),
        ("REGISTERED", "broker-b", "UP"),
        ("NAMESRV_STOPPED", None, None),
    ]
    assert {row["node"] for row in rows} == {addr}
    assert {row["detail"]["source"] for row in rows} == {"observe"}
    assert rows[0]["detail"]["alive_seconds"] == 60.0
    nothing = ("generation", "incarnation", "data_version", "interval_ms", "reason")
    assert {row[name] for row in rows[3:6] for name in nothing} == {None}
    assert_valid(tmp_path)


async def test_an_outage_of_the_name_server_ends_the_watch_and_removes_no_broker(tmp_path: Path) -> None:
    async with served() as addr, remoting_peer(addr) as peer:
        await register_broker(peer, "broker-a", 1)
        found = observer(addr, tmp_path)
        polling = asyncio.create_task(found.run())
        await until_known(found, "broker-a")
    await eventually(lambda: found._running is None)
    async with served(addr), remoting_peer(addr) as peer:
        await eventually(lambda: found._watch is not None and found._watch.expected == 1)
        assert known(found) == set()
        await register_broker(peer, "broker-a", 1)
        await until_known(found, "broker-a")
    polling.cancel()
    await asyncio.wait([polling])
    await found.close()

    runs: dict[str, list[str]] = {}
    for row in sorted(rows_in(tmp_path), key=lambda row: (row["event_at"], row["seq"])):
        runs.setdefault(row["boot_id"], []).append(row["event"])
    # More than two when the observer connects again to a name server that is stopping.
    assert len(runs) >= 2
    assert {tuple(run) for run in runs.values()} == {
        ("NAMESRV_STARTED", "NAMESRV_READY", "CHECKPOINT", "NAMESRV_STOPPED")
    }


async def test_the_rows_of_a_watch_that_just_ended_are_written_before_the_close_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    async with served() as addr:
        found = observer(addr, tmp_path)
        polling = asyncio.create_task(found.run())
        await eventually(lambda: found._running is not None)
        assert found._running is not None
        recorder = found._running.recorder
        stop = recorder.stop
        monkeypatch.setattr(recorder, "stop", lambda *, timeout: released.wait(60) and stop(timeout=timeout))
    await eventually(lambda: found._running is None)
    polling.cancel()
    await asyncio.wait([polling])
    closing = asyncio.create_task(found.close())
    try:
        await asyncio.sleep(0.02)
        assert not closing.done()
    finally:
        released.set()
        await closing
    assert [row["event"] for row in rows_in(tmp_path)] == ["NAMESRV_STARTED", "NAMESRV_READY", "NAMESRV_STOPPED"]


async def test_a_broker_that_does_not_return_with_the_name_server_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served() as addr, remoting_peer(addr) as peer:
        await register_broker(peer, "broker-a", 1)
        await register_broker(peer, "broker-b", 2)
        found = observer(addr, tmp_path)
        polling = asyncio.create_task(found.run())
        await until_known(found, "broker-a", "broker-b")
    async with served(addr), remoting_peer(addr) as peer:
        await register_broker(peer, "broker-a", 1)
        await eventually(lambda: found._watch is not None and found._watch.expected == 1)
        monkeypatch.setattr(watching, "SETTLE_SECONDS", 0.0)
        await until_known(found, "broker-a")
    polling.cancel()
    await asyncio.wait([polling])
    await found.close()

    gone = [row for row in rows_in(tmp_path) if row["event"] == "EXPIRED"]
    assert [(row["broker_name"], row["detail"]["between_watches"]) for row in gone] == [("broker-b", True)]


async def test_topics_are_walked_and_their_changes_recorded(tmp_path: Path) -> None:
    async with served() as addr, remoting_peer(addr) as peer:
        await register_broker(peer, "broker-a", 1, *(f"T{n}" for n in range(30)))
        found = observer(addr, tmp_path, topics_seconds=0.05)

        def held() -> int:
            running = found._running
            return sum(len(topics) for _, topics in running.topics._held.values()) if running is not None else 0

        async with watched(found):
            await eventually(lambda: held() == 32)
            await register_broker(peer, "broker-a", 1, "New")
            await eventually(lambda: held() == 33)
            found.apply(polled())
            await leave(peer, "broker-a", 1)
            await until_known(found)
            await register_broker(peer, "broker-a", 1)
            await until_known(found, "broker-a")

    full, change, returned = [row for row in rows_in(tmp_path) if row["event"] == "TOPICS"]
    assert (len(returned["detail"]["topics"]), returned["data_version"]) == (33, change["data_version"])
    assert full["detail"]["full"]
    assert full["detail"]["topics"]["T0"] == [8, 8, 6, 0]
    assert (list(change["detail"]["topics"]), change["detail"]["base"]) == (["New"], full["data_version"])
    assert_valid(tmp_path)


async def test_each_day_begins_with_a_checkpoint(tmp_path: Path) -> None:
    class NextDay(SystemClock):
        def __init__(self) -> None:
            self.shift: Callable[[Any], Any] = lambda now: now

        def utc_now(self) -> Any:
            return self.shift(super().utc_now())

    clock = NextDay()
    async with served() as addr, remoting_peer(addr) as peer:
        await register_broker(peer, "broker-a", 1)
        found = observer(addr, tmp_path)
        found._clock = clock
        async with watched(found):
            await until_known(found, "broker-a")
            clock.shift = lambda now: now + timedelta(days=1)
            await eventually(lambda: found._running is not None and found._running.day == clock.utc_now().date())

    checkpoints = [(row["reason"], row["state"]) for row in rows_in(tmp_path) if row["event"] == "CHECKPOINT"]
    assert checkpoints == [("START", "UP"), ("DAY", "UP")]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x10\x00\x00\x00\x0cnot a header",
        b"\x7f\xff\xff\xff",
        b"",
    ],
)
async def test_another_program_on_the_port_is_reported_once_and_polled_again(
    tmp_path: Path, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.read(1)
        asked += 1
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        async with watched(observer(f"{host}:{port}", tmp_path)):
            await eventually(lambda: asked >= 3)
    assert rows_in(tmp_path) == []
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "name server cannot be polled; the state of its brokers is unknown until it can be"
    ]


async def test_a_name_server_that_is_silent_is_given_up_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RESPONSE_SECONDS", 0.05)
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while await reader.read(1_024):
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        async with watched(observer(f"{host}:{port}", tmp_path)):
            await eventually(lambda: connections >= 2)


# --- the command ------------------------------------------------------------------------------------------------


async def test_print_shows_what_the_name_server_lists(capsys: pytest.CaptureFixture[str]) -> None:
    async with served() as addr, remoting_peer(addr) as peer:
        await register_broker(peer, "broker-a", 1)
        code = await asyncio.to_thread(command.main, ["--namesrv", addr, "--print"])
    assert code == 0
    assert json.loads(capsys.readouterr().out)["brokerAddrTable"]["broker-a"]["brokerAddrs"] == {"0": "10.0.0.1:10911"}


async def test_print_without_a_name_server_fails_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    server.close()
    await server.wait_closed()
    assert await asyncio.to_thread(command.main, ["--namesrv", f"{host}:{port}", "--print"]) == 1
    assert "cannot connect" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--history", "h"], "--namesrv"),
        (["--namesrv", "a:1"], "give either --history DIR or --print"),
        (["--namesrv", "a:1", "--history", "h", "--print"], "give either --history DIR or --print"),
        (["--namesrv", "http://a:1", "--history", "h"], "'http://a:1' must be host:port without a scheme"),
        (["--namesrv", "a:1", "--history", "h", "--poll-seconds", "0"], "poll_seconds: 0.0 is not from 0.2 to 60"),
        (["--namesrv", "a:1", "--history", "h", "--topics-seconds", "nan"], "nan is not from 0.0 to 86400.0"),
        ([f"--namesrv=a:{n}" for n in range(1, 18)] + ["--history", "h"], "at most 16"),
    ],
)
def test_bad_usage_names_the_value(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(arguments) == 2
    assert problem in capsys.readouterr().err


async def test_two_observers_write_into_one_folder_and_stop_with_0(tmp_path: Path) -> None:
    async with served() as first, served() as second:
        stop = asyncio.Event()
        servers = observed_servers(tmp_path, polled(first, second))
        running_command = asyncio.create_task(observe(servers, tmp_path, stop))
        await eventually(lambda: len(files_in(tmp_path)) == 2)
        stop.set()
        assert await running_command == 0
    assert {row["node"] for row in rows_in(tmp_path)} == {first, second}
    assert [row["event"] for row in rows_in(tmp_path)].count("NAMESRV_STOPPED") == 2


async def test_a_folder_that_another_observer_writes_is_refused_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as addr:
        found = observer(addr, tmp_path)
        async with watched(found):
            await eventually(lambda: found._running is not None)
            code = await observe(observed_servers(tmp_path, polled(addr)), tmp_path, asyncio.Event())
    assert code == 1
    assert "writes the history of node" in caplog.text


# --- metrics ------------------------------------------------------------------------------------------------------


async def test_metrics_show_each_server_and_which_brokers_one_of_them_misses(tmp_path: Path) -> None:
    async with served() as one, served() as two, remoting_peer(one) as at_one, remoting_peer(two) as at_two:
        for peer in (at_one, at_two):
            await register_broker(peer, "broker-a", 1)
        await register_broker(at_one, "broker-b", 2)
        clock, listings, recorded = SystemClock(), Listings([one, two]), Metrics()
        observed = ObserverMetrics(listings, RouteDifferences([one, two]), recorded, clock=clock)

        def sample(name: str, addr: str) -> float:
            return observed.registry.get_sample_value(f"pointsman_observe_{name}", {"name_server": addr}) or 0.0

        found = [observer(addr, tmp_path, listings=listings, observed=observed) for addr in (one, two)]
        assert (sample("up", one), observed.registry.get_sample_value("pointsman_namesrv_ready")) == (0.0, None)
        async with watched(found[0]), watched(found[1]):
            await until_known(found[0], "broker-a", "broker-b")
            await until_known(found[1], "broker-a")
            assert [sample("brokers", addr) for addr in (one, two)] == [2.0, 1.0]
            assert [sample("up", addr) for addr in (one, two)] == [1.0, 1.0]
            assert [sample("brokers_missing", addr) for addr in (one, two)] == [0.0, 1.0]
            assert sample("brokers_missing_seconds", two) > 0 == sample("brokers_missing_seconds", one)
            await register_broker(at_two, "broker-b", 2)
            await eventually(lambda: sample("brokers_missing", two) == 0.0)
            assert (sample("arrivals_total", two), sample("arrivals_total", one)) == (1.0, 0.0)
            assert sample("response_seconds_count", one) >= 1
        assert sample("up", one) == 0.0
