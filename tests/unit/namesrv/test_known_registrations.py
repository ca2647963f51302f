"""Registrations known by their bytes: bounded, and only as long as the core holds them."""

from __future__ import annotations

import pytest

from pointsman_namesrv import known_registrations
from pointsman_namesrv.core.model import BrokerIdentity, Registration
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.known_registrations import KnownRegistrations


def register(core: NameServer, name: str) -> Registration:
    identity = BrokerIdentity("c1", name, 0, f"{name}:1")
    core.register(Registration(identity=identity, topics={}), now=0.0)
    held = core.registration_of(identity)
    assert held is not None
    return held


def test_beyond_the_bound_the_one_unused_for_longest_is_dropped(
    core: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_registrations, "MAX_BYTES", 20)
    known = KnownRegistrations[str, str](core, worth_bytes=5)
    held = {name: register(core, name) for name in "abcd"}
    for name in "ab":
        known.put(name, name.upper(), held[name], size=8)
    assert known.get("a") == ("A", held["a"])
    known.put("c", "C", held["c"], size=8)
    known.put("d", "D", held["d"], size=4)  # too small to be worth it
    assert [known.get(name) is not None for name in "abcd"] == [True, False, True, False]
    assert known.bytes == 16


def test_one_that_the_core_no_longer_holds_is_unknown(core: NameServer) -> None:
    known = KnownRegistrations[str, str](core, worth_bytes=0)
    held = register(core, "a")
    known.put("a", "A", held, size=1)
    assert known.get("a") == ("A", held)
    register(core, "a")
    assert known.get("a") is None

    known.put("a", "A", register(core, "a"), size=1)
    core.evict("c1", "a", 0, now=0.0, detail={})
    assert known.get("a") is None
