"""What the guard remembers of brokers that left is bounded, whatever registers and leaves."""

from __future__ import annotations

import pytest

from namesrv.core import guard
from namesrv.core.events import Reason
from namesrv.core.liveness import LivenessRules
from namesrv.core.model import BrokerIdentity, DataVersion, Registration
from namesrv.core.name_server import NameServer


def test_the_first_to_leave_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MOST_GONE", 3)
    core = NameServer(rules=LivenessRules(), first_generation=1, started_at=0.0)
    brokers = [BrokerIdentity(f"c{number % 2}", f"b{number}", 0, f"10.0.0.{number}:1") for number in range(6)]
    registered = {
        who: core.register(
            Registration(identity=who, topics={}, data_version=DataVersion(), heartbeat_interval=30.0, expiry=120.0),
            now=0.0,
        ).generation
        for who in brokers
    }
    for who, generation in registered.items():
        core.unregister(who, generation, reason=Reason.SHUTDOWN, now=130.0)
    core.sweep(now=130.0)
    assert sum(core.guard.status(cluster).lived for cluster in ("c0", "c1")) == 3
