"""A real server and plain stubs to speak to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.app import NameServerApp
from tests.kit.name_server.gated_store import GatedStore
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import Peer, peer_of


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
