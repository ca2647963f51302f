"""The guard's memory of departed brokers is bounded for any registrations and departures."""

from __future__ import annotations

import pytest

from pointsman_namesrv.core import guard
from pointsman_namesrv.core.guard import GuardMode
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, Reason, Registration
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.replica_state import Phase

BROKERS = [BrokerIdentity(f"c{number % 2}", f"b{number}", 0, f"10.0.0.{number}:1") for number in range(6)]
OF_BOTH_CLUSTERS = ("c0", "c1")
LONG_KNOWN = 130.0
"""More than an expiry after all registered: each broker that left was in the baseline."""


@pytest.mark.parametrize(
    ("bound", "remembered"),
    [
        pytest.param(6, BROKERS, id="within-the-bound-all-are-remembered"),
        pytest.param(3, BROKERS[3:], id="beyond-it-the-first-to-leave-are-forgotten"),
    ],
)
def test_the_oldest_departures_are_dropped_first(
    bound: int, remembered: list[BrokerIdentity], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "MAX_DEPARTED", bound)
    core = NameServer(rules=LivenessRules(), first_generation=1, started_at=0.0)
    generations = [_register(core, who, now=0.0) for who in BROKERS]

    for who, generation in zip(BROKERS, generations, strict=True):
        core.unregister(who, generation, reason=Reason.SHUTDOWN, now=LONG_KNOWN)
    core.sweep(now=LONG_KNOWN)

    assert [who for who in BROKERS if core.guard.note_back(who.cluster, who.position) is not None] == remembered


def test_a_broker_that_returned_is_remembered_by_its_last_departure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MAX_DEPARTED", 3)
    core = NameServer(rules=LivenessRules(), first_generation=1, started_at=0.0)
    flapping, *others = BROKERS[:3]
    generations = [_register(core, who, now=0.0) for who in others]

    for now in (LONG_KNOWN, LONG_KNOWN + 1.0):
        core.unregister(flapping, _register(core, flapping, now=now), reason=Reason.SHUTDOWN, now=now)
    for who, generation in zip(others, generations, strict=True):
        core.unregister(who, generation, reason=Reason.SHUTDOWN, now=LONG_KNOWN + 2.0)

    assert core.guard.note_back(flapping.cluster, flapping.position) is not None


@pytest.mark.parametrize("mode", [GuardMode.AUTO, GuardMode.HOLD])
def test_only_a_setting_is_remembered_of_a_cluster_without_brokers(mode: GuardMode) -> None:
    core, fleet = NameServer(rules=LivenessRules(), first_generation=1, started_at=0.0), BROKERS[::2]
    for who in fleet:
        _register(core, who, now=0.0)
    _register(core, BROKERS[1], now=900.0)
    core.sweep(now=130.0)  # silent together: the guard is on
    core.guard.set_mode("c0", mode, until=None, now=130.0)
    assert core.guard.status("c0").active
    for who in fleet:
        core.evict(who.cluster, who.broker_name, who.broker_id, now=200.0, detail={})
    core.sweep(now=200.0)
    core.sweep(now=500.0)
    assert core.guard.clusters() == (["c1"] if mode is GuardMode.AUTO else ["c0", "c1"])


def test_a_released_guard_is_remembered_while_its_cluster_has_brokers() -> None:
    core = NameServer(rules=LivenessRules(), first_generation=1, started_at=0.0)
    fleet = BROKERS[::2]
    for who in fleet:
        _register(core, who, now=0.0)
    core.sweep(now=130.0)
    assert core.guard.status("c0").active
    _register(core, fleet[0], now=131.0)
    _register(core, fleet[1], now=131.0)
    core.sweep(now=132.0)
    assert not core.guard.status("c0").active
    assert [replica.state.phase for _, replica in core.replicas(cluster="c0")][2] is Phase.PROTECTED


def _register(core: NameServer, who: BrokerIdentity, *, now: float) -> int:
    registration = Registration(
        identity=who, topics={}, data_version=DataVersion(), heartbeat_interval=30.0, expiry=120.0
    )
    return core.register(registration, now=now).generation
