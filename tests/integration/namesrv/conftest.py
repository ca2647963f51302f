"""A real server and plain stubs to speak to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from pointsman_namesrv.app import NameServerApp
from tests.kit.name_server.gated_store import GatedStore
from tests.kit.name_server.in_process import running_name_server


@dataclass
class Peer:
    """A channel to the server and its three stubs."""

    channel: grpc.aio.Channel

    def __post_init__(self) -> None:
        self.registration = RegistrationServiceStub(self.channel)
        self.route = RouteServiceStub(self.channel)
        self.admin = AdminServiceStub(self.channel)


@pytest.fixture
def warm_up_seconds() -> float:
    """How long the server is WARMING; a test that needs that sets it."""
    return 0.0


@pytest.fixture
async def server(clock: ManualClock, tmp_path: Path, warm_up_seconds: float) -> AsyncIterator[NameServerApp]:
    """A name server on a free port whose clock only the test advances."""
    history = tmp_path / "history"
    async with running_name_server(clock=clock, history=history, warm_up_seconds=warm_up_seconds) as app:
        yield app


@pytest.fixture
async def peer(server: NameServerApp) -> AsyncIterator[Peer]:
    """A client of that server."""
    async with grpc.aio.insecure_channel(server.addr) as channel:
        yield Peer(channel)


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[GatedStore]]:
    """The stores of the name servers that start."""
    made: list[GatedStore] = []

    def make(*arguments: Any, **more: Any) -> GatedStore:
        made.append(GatedStore(*arguments, **more))
        return made[-1]

    monkeypatch.setattr("pointsman_namesrv.app.SettingsStore", make)
    yield made
    for store in made:
        store.gate.set()
