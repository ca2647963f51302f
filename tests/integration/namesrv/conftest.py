"""A real server and plain stubs to speak to it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pointsman.daemon.rpc.listeners import GRPCIO, LANE
from pointsman.manual_clock import ManualClock
from pointsman_namesrv.app import NameServerApp
from tests.kit.name_server.gated_store import GatedStore
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import Peer, peer_of

ON_BOTH_LISTENERS = {"connections", "operators", "registration", "routes"}
"""Folders of tests of the gRPC wire, which run with ``--full`` on each listener, otherwise on grpcio's."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat the tests of the wire on the lane."""
    if ON_BOTH_LISTENERS & set(metafunc.definition.path.parts):
        metafunc.fixturenames.insert(0, "listener")  # before the server
        metafunc.parametrize("listener", [GRPCIO, pytest.param(LANE, marks=pytest.mark.slow)], indirect=True)


@pytest.fixture
def listener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The listener of name servers that do not name one."""
    chosen: str = os.environ.get("TEST_LISTENER", request.param)
    monkeypatch.setenv("TEST_LISTENER", chosen)
    return chosen


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
    async with peer_of(server.addr) as peer:
        yield peer


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
