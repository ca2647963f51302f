"""The installed name server as a process: signals, exit codes, and what is on the disk after a SIGKILL."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import grpc
import pytest

from pointsman.v1 import admin_service_pb2
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman.v1.registration_service_pb2 import KeepAliveRequest
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from tests.kit.name_server import wire
from tests.kit.name_server.daemon import daemon

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
async def test_it_serves_drains_on_sigterm_and_exits_with_0(tmp_path: Path, loop: str) -> None:
    async with daemon(tmp_path, "--loop", loop) as running:
        addr = (await running.until("serving"))["addr"]
        async with grpc.aio.insecure_channel(addr) as channel:
            stub = RegistrationServiceStub(channel)
            generation = (await stub.RegisterBroker(wire.registration(wire.topic("orders")))).generation
            stream = stub.KeepAlive()
            await stream.write(KeepAliveRequest(beat=wire.beat(generation)))
            await stream.read()
            running.process.send_signal(signal.SIGTERM)
            # An open stream does not delay the stop: the server ends it, with a status that redirects the client.
            assert await stream.code() is grpc.StatusCode.UNAVAILABLE
            assert await running.end() == 0
    (file,) = (tmp_path / "history").rglob("*.jsonl.gz")
    assert file.stat().st_size > 0


async def test_a_second_signal_forces_an_exit_with_130(tmp_path: Path) -> None:
    async with daemon(tmp_path) as running:
        await running.until("serving")
        # Both are delivered before the loop runs again, so the second finds it draining.
        running.process.send_signal(signal.SIGSTOP)
        running.process.send_signal(signal.SIGTERM)
        running.process.send_signal(signal.SIGINT)
        running.process.send_signal(signal.SIGCONT)
        assert await running.end() == 130


async def test_a_hangup_reloads_the_log_level_and_the_server_runs_on(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.toml"
    file.write_text("")
    async with daemon(tmp_path, "--config", str(file)) as running:
        addr = (await running.until("serving"))["addr"]
        file.write_text('[log]\nlevel = "loud"\n[routes]\nwatch_coalesce_seconds = 0.5\n')
        running.process.send_signal(signal.SIGHUP)
        (problem,) = (await running.until("configuration has errors; nothing is reloaded"))["problems"]
        assert "log.level" in problem
        file.write_text('[log]\nlevel = "DEBUG"\n[routes]\nwatch_coalesce_seconds = 0.5\n')
        running.process.send_signal(signal.SIGHUP)
        line = await running.until("configuration reloaded; other changes need a restart")
        assert (line["log_level"], line["settings"]) == ("DEBUG", ["routes.watch_coalesce_seconds"])
        async with grpc.aio.insecure_channel(addr) as channel:
            assert (await RegistrationServiceStub(channel).RegisterBroker(wire.registration())).generation
            info = await AdminServiceStub(channel).GetNodeInfo(admin_service_pb2.GetNodeInfoRequest())
            assert 'level = "DEBUG"' in info.configuration
            assert "watch_coalesce_seconds = 0.5" not in info.configuration
        running.process.send_signal(signal.SIGTERM)
        assert await running.end() == 0


async def test_a_log_reader_that_stops_reading_blocks_no_call(tmp_path: Path) -> None:
    async with daemon(tmp_path) as running:
        addr = (await running.until("serving"))["addr"]
        async with grpc.aio.insecure_channel(addr) as channel:
            stub = RegistrationServiceStub(channel)
            for _ in range(1_500):  # each a line of the log: far more than a pipe holds
                await stub.RegisterBroker(wire.registration(), timeout=60)
        running.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            # wait() would also wait for the end of the pipe, which is not read.
            while running.process.returncode is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert running.process.returncode == 0


async def test_after_a_sigkill_everything_older_than_a_second_is_on_the_disk(tmp_path: Path) -> None:
    async with daemon(tmp_path) as running:
        addr = (await running.until("serving"))["addr"]
        async with grpc.aio.insecure_channel(addr) as channel:
            await RegistrationServiceStub(channel).RegisterBroker(wire.registration(wire.topic("orders")))
        async with asyncio.timeout(60):
            while "TOPICS" not in _history(tmp_path):  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.05)
        running.process.kill()
        await running.end()
    events = [json.loads(line)["event"] for line in _history(tmp_path).splitlines()]
    assert events == ["NAMESRV_STARTED", "NAMESRV_READY", "REGISTERED", "TOPICS"]


def _history(folder: Path) -> str:
    return "".join(path.read_text() for path in (folder / "history").rglob("*.jsonl"))


async def test_a_port_in_use_is_one_clear_line_and_exit_1(tmp_path: Path) -> None:
    async with daemon(tmp_path) as first:
        addr = (await first.until("serving"))["addr"]
        async with daemon(tmp_path, listen=addr) as second:
            last_line = await second.until(
                f"cannot start: cannot listen on {addr}: is it this machine's address, and free?"
            )
            assert last_line["level"] == "ERROR"
            assert await second.end() == 1


async def test_a_history_that_cannot_be_written_at_the_start_is_one_clear_line_and_exit_1(tmp_path: Path) -> None:
    (tmp_path / "history").write_text("a file, not a folder")
    async with daemon(tmp_path) as running:
        assert running.process.stderr is not None
        assert await running.end() == 1


async def test_a_bad_configuration_exits_with_2(tmp_path: Path) -> None:
    async with daemon(tmp_path, listen="nowhere") as running:
        assert await running.end() == 2
