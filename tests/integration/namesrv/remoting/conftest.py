"""A real server with RocketMQ's wire on a free port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import RemotingConfig, RoutesConfig
from tests.kit.broker.rocketmq.peer import RemotingPeer, remoting_peer
from tests.kit.name_server.in_process import running_name_server


@pytest.fixture
def remoting_config() -> RemotingConfig:
    """The section of the server's configuration; a test that needs more sets it."""
    return RemotingConfig(listen="127.0.0.1:0")


@pytest.fixture
def routes_config() -> RoutesConfig:
    """As above."""
    return RoutesConfig()


@pytest.fixture
async def server(
    clock: ManualClock,
    tmp_path: Path,
    warm_up_seconds: float,
    remoting_config: RemotingConfig,
    routes_config: RoutesConfig,
) -> AsyncIterator[NameServerApp]:
    """A name server whose clock only the test advances."""
    async with running_name_server(
        clock=clock,
        history=tmp_path / "history",
        warm_up_seconds=warm_up_seconds,
        remoting=remoting_config,
        routes=routes_config,
    ) as app:
        yield app


@pytest.fixture
async def rocketmq(server: NameServerApp) -> AsyncIterator[RemotingPeer]:
    """A connection to it."""
    async with remoting_peer(server.remoting_addr) as peer:
        yield peer
