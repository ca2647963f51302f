"""The installed name server under a service manager: what it sends on the socket of a `Type=notify` unit."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from pointsman.v1.route_service_pb2 import ListTopicsRequest
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from tests.kit.broker.redis.process import free_port

pytestmark = pytest.mark.e2e

COMMAND = Path(sys.executable).with_name("pointsman-namesrv")
WATCHDOG_SECONDS = 0.3


class ServiceManager:
    """Starts the name server as systemd would, and records its notifications."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self._folder = folder
        self._inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._inbox.setblocking(False)
        self._inbox.bind("\0pointsman-test-" + os.urandom(8).hex())

    async def start(self, listen: str) -> asyncio.subprocess.Process:
        environment = os.environ | {
            "NOTIFY_SOCKET": "@" + self._inbox.getsockname()[1:].decode(),
            "WATCHDOG_USEC": str(int(WATCHDOG_SECONDS * 1_000_000)),
            "NAMESRV_MONITORING__LISTEN": "127.0.0.1:0",
        }
        return await asyncio.create_subprocess_exec(
            COMMAND, "--listen", listen, cwd=self._folder, env=environment, stderr=asyncio.subprocess.DEVNULL
        )

    async def until(self, message: str) -> None:
        """Read until it sends ``message``."""
        received = ""
        async with asyncio.timeout(90):
            while received != message:
                received = (await asyncio.get_running_loop().sock_recv(self._inbox, 4096)).decode()
                self.said.append(received)

    def rest(self) -> list[str]:
        """Read the pending messages; return all."""
        while True:
            try:
                self.said.append(self._inbox.recv(4096).decode())
            except BlockingIOError:
                return self.said

    def close(self) -> None:
        self._inbox.close()


@asynccontextmanager
async def started(folder: Path, listen: str) -> AsyncIterator[tuple[ServiceManager, asyncio.subprocess.Process]]:
    manager = ServiceManager(folder)
    try:
        process = await manager.start(listen)
        try:
            yield manager, process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
    finally:
        manager.close()


async def test_it_notifies_ready_when_it_serves_the_watchdog_and_its_stop(tmp_path: Path) -> None:
    addr = f"127.0.0.1:{free_port()}"
    async with started(tmp_path, addr) as (manager, process):
        await manager.until("READY=1")
        # READY means open ports, also during the warm-up: brokers must be able to register with a warming server.
        assert [received for received in manager.said if received.startswith("STATUS=warming")] != []
        async with grpc.aio.insecure_channel(addr) as channel:
            await RouteServiceStub(channel).ListTopics(ListTopicsRequest(), timeout=60)

        for _ in range(3):
            await manager.until("WATCHDOG=1")

        process.send_signal(signal.SIGTERM)
        await manager.until("STOPPING=1")
        async with asyncio.timeout(90):
            assert await process.wait() == 0
        assert "STATUS=draining" in manager.rest()
        assert manager.said.count("READY=1") == manager.said.count("STOPPING=1") == 1


async def test_a_name_server_that_cannot_start_was_never_ready(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with started(tmp_path, f"127.0.0.1:{taken.getsockname()[1]}") as (manager, process):
            async with asyncio.timeout(90):
                assert await process.wait() == 1
            assert "READY=1" not in manager.rest()
