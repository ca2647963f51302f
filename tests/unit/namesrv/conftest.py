"""The name server's core."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.name_server import NameServer


@pytest.fixture
def core() -> Iterator[NameServer]:
    """An empty name server whose invariants are checked at the end of the test."""
    core = NameServer(rules=LivenessRules(), first_generation=1, started_at=0.0)
    yield core
    core.check_invariants()
