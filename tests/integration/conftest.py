"""The tests of both daemons' gRPC, on each listener."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pointsman.daemon.rpc.listeners import GRPCIO, LANE
from tests.kit.chosen_listener import VARIABLE

HERE = Path(__file__).parent
ON_BOTH_LISTENERS = (
    "namesrv/connections",
    "namesrv/operators",
    "namesrv/registration",
    "namesrv/routes",
    "namesrv/test_",
    "broker_agent/groups",
    "broker_agent/offsets",
    "broker_agent/registration",
    "broker_agent/test_",
)
"""Tests of the gRPC wire, which run with ``--full`` on each listener, otherwise on the lane."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat the tests of the wire on grpcio's server."""
    path = metafunc.definition.path
    if path.is_relative_to(HERE) and path.relative_to(HERE).as_posix().startswith(ON_BOTH_LISTENERS):
        metafunc.fixturenames.insert(0, "listener")  # before the servers
        metafunc.parametrize("listener", [LANE, pytest.param(GRPCIO, marks=pytest.mark.slow)], indirect=True)


@pytest.fixture
def listener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The listener of daemons that do not name one."""
    chosen: str = os.environ.get(VARIABLE, request.param)
    monkeypatch.setenv(VARIABLE, chosen)
    return chosen
