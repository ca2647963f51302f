"""The installed name server as a process: signals, exit codes, and what is on the disk after a SIGKILL."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import grpc
import pytest

from pointsman.daemon.rpc.listeners import LANE, LISTENERS
from pointsman.v1 import admin_service_pb2
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman.v1.registration_service_pb2 import KeepAliveRequest
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman.v1.route_service_pb2 import ListTopicsRequest
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from tests.kit.daemon_process import INSTALLED
from tests.kit.http2.raw_client import raw_client
from tests.kit.name_server import wire
from tests.kit.name_server.process import RealNameServer, real_name_server
from tests.kit.waiting import eventually

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
async def test_it_serves_drains_on_sigterm_and_exits_with_0(tmp_path: Path, loop: str) -> None:
    async with (
        real_name_server(tmp_path, "--loop", loop) as running,
        grpc.aio.insecure_channel(running.addr) as channel,
    ):
        stub = RegistrationServiceStub(channel)
        generation = (await stub.RegisterBroker(wire.registration(wire.topic("orders")))).generation
        stream = stub.KeepAlive()
        await stream.write(KeepAliveRequest(beat=wire.beat(generation)))
        await stream.read()
        running.send_signal(signal.SIGTERM)
        # An open stream does not delay the stop: the server ends it, with a status that redirects the client.
        assert await stream.code() is grpc.StatusCode.UNAVAILABLE
        assert await running.ended() == 0
    (file,) = (tmp_path / "history").rglob("*.jsonl.gz")
    assert file.stat().st_size > 0


async def test_a_second_signal_forces_an_exit_with_130(tmp_path: Path) -> None:
    async with real_name_server(tmp_path) as running:
        # Both are delivered before the loop runs again, so the second finds it draining.
        running.send_signal(signal.SIGSTOP)
        running.send_signal(signal.SIGTERM)
        running.send_signal(signal.SIGINT)
        running.send_signal(signal.SIGCONT)
        assert await running.ended() == 130


async def test_a_hangup_reloads_the_log_level_and_the_server_runs_on(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.toml"
    file.write_text("")
    async with real_name_server(tmp_path, "--config", str(file)) as running:
        file.write_text('[log]\nlevel = "loud"\n[routes]\nwatch_coalesce_seconds = 0.5\n')
        running.send_signal(signal.SIGHUP)
        (problem,) = (await running.logged("configuration has errors; nothing is reloaded"))["problems"]
        assert "log.level" in problem
        file.write_text('[log]\nlevel = "DEBUG"\n[routes]\nwatch_coalesce_seconds = 0.5\n')
        running.send_signal(signal.SIGHUP)
        line = await running.logged("configuration reloaded; other changes need a restart")
        assert (line["log_level"], line["settings"]) == ("DEBUG", ["routes.watch_coalesce_seconds"])
        async with grpc.aio.insecure_channel(running.addr) as channel:
            assert (await RegistrationServiceStub(channel).RegisterBroker(wire.registration())).generation
            info = await AdminServiceStub(channel).GetNodeInfo(admin_service_pb2.GetNodeInfoRequest())
            assert 'level = "DEBUG"' in info.configuration
            assert "watch_coalesce_seconds = 0.5" not in info.configuration
        assert await running.stop() == 0


async def test_a_log_reader_that_stops_reading_blocks_no_call(tmp_path: Path) -> None:
    environment = os.environ | {"NAMESRV_MONITORING__LISTEN": "127.0.0.1:0", "NAMESRV_SERVER__WARM_UP_SECONDS": "0"}
    process = await asyncio.create_subprocess_exec(
        INSTALLED / "pointsman-namesrv",
        "--listen",
        "127.0.0.1:0",
        env=environment,
        cwd=tmp_path,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        while (line := json.loads(await process.stderr.readline()))["message"] != "serving":
            pass
        async with grpc.aio.insecure_channel(line["addr"]) as channel:
            stub = RegistrationServiceStub(channel)
            for _ in range(1_500):  # each a line of the log: far more than a pipe holds
                await stub.RegisterBroker(wire.registration(), timeout=60)
        process.terminate()
        # wait() would also wait for the end of the pipe, which is not read.
        await eventually(lambda: process.returncode is not None)
        assert process.returncode == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_after_a_sigkill_everything_older_than_a_second_is_on_the_disk(tmp_path: Path) -> None:
    async with real_name_server(tmp_path) as running:
        async with grpc.aio.insecure_channel(running.addr) as channel:
            await RegistrationServiceStub(channel).RegisterBroker(wire.registration(wire.topic("orders")))
        await eventually(lambda: "TOPICS" in _history(tmp_path))
        await running.kill()
    events = [json.loads(line)["event"] for line in _history(tmp_path).splitlines()]
    assert events == ["NAMESRV_STARTED", "NAMESRV_READY", "REGISTERED", "TOPICS"]


def _history(folder: Path) -> str:
    return "".join(path.read_text() for path in (folder / "history").rglob("*.jsonl"))


async def test_a_port_in_use_is_one_clear_line_and_exit_1(tmp_path: Path) -> None:
    async with real_name_server(tmp_path / "first") as first:
        second = RealNameServer(tmp_path / "second", "--listen", first.addr)
        assert await second.fail_to_start() == 1
        last_line = second.said()[-1]
        assert last_line["level"] == "ERROR"
        assert last_line["message"] == (
            f"cannot start: cannot listen on {first.addr}: is it this machine's address, and free?"
        )


async def test_a_history_that_cannot_be_written_at_the_start_is_one_clear_line_and_exit_1(tmp_path: Path) -> None:
    (tmp_path / "history").write_text("a file, not a folder")
    server = RealNameServer(tmp_path)
    assert await server.fail_to_start() == 1
    assert server.said()[-1]["level"] == "ERROR"


@pytest.mark.parametrize("listener", LISTENERS)
async def test_a_path_that_is_not_utf_8_costs_its_call_or_with_grpcio_ends_the_process_for_a_restart(
    tmp_path: Path, listener: str
) -> None:
    async with real_name_server(tmp_path, settings={"server.listener": listener}) as running:
        async with raw_client(running.addr, "pointsman.v1.RouteService") as raw:
            raw.call("ListTopics", b"", (b":path", b"/\xa2/ListTopics"))
            if listener == LANE:
                [refused] = await raw.until_end()
                assert b"grpc-status\x0212" in refused.payload
            else:
                assert await running.ended() == 1
                return
        async with grpc.aio.insecure_channel(running.addr) as channel:
            await RouteServiceStub(channel).ListTopics(ListTopicsRequest())
