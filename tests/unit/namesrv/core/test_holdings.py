"""Bounds of the node on brokers and topics: renewals pass, the peer that holds most is refused, others are served."""

from __future__ import annotations

import pytest

from pointsman_namesrv.config import RoutesConfig
from pointsman_namesrv.core import holdings
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, QueueConfig, Reason, Registration
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.node_refusals import LimitExceeded

QUEUES = QueueConfig(4, 4, 6)


def server(*, max_brokers: int = 100, max_topics: int = 100) -> NameServer:
    return NameServer(
        rules=LivenessRules(), first_generation=1, started_at=0.0, max_brokers=max_brokers, max_topics=max_topics
    )


def register(core: NameServer, name: str, topics: int, *, peer: str = "p", addr: str = "") -> int:
    identity = BrokerIdentity("c1", name, 0, addr or f"{name}:1")
    registration = Registration(identity=identity, topics=_numbered(name, topics))
    generation = core.register(registration, now=0.0, peer=peer).generation
    core.check_invariants()
    return generation


def _numbered(name: str, count: int) -> dict[str, QueueConfig]:
    return {f"{name}-{number}": QUEUES for number in range(count)}


def test_one_peer_may_use_the_complete_bound_and_nothing_beyond() -> None:
    core = server()
    register(core, "a", 60)
    with pytest.raises(LimitExceeded, match="topics: this name server allows at most 100 topics, not 101"):
        register(core, "b", 41)
    register(core, "b", 40)
    assert core.routes.topic_count() == 100


def test_at_the_bound_what_is_registered_is_renewed_and_may_shrink_but_not_grow() -> None:
    core = server()
    register(core, "a", 100)
    register(core, "a", 100)
    register(core, "a", 100, addr="elsewhere:1")
    with pytest.raises(LimitExceeded):
        register(core, "a", 101)
    register(core, "a", 99)
    register(core, "b", 1)


def test_at_the_bound_peers_that_hold_less_are_served_up_to_a_tenth_more() -> None:
    core = server()
    register(core, "a", 100, peer="greedy")
    for number in range(10):
        register(core, f"small{number}", 1, peer=f"peer{number}")
    with pytest.raises(LimitExceeded, match="at most 100 topics, not 111"):
        register(core, "one-more", 1, peer="another")
    with pytest.raises(LimitExceeded):
        register(core, "b", 1, peer="greedy")


def test_the_number_of_brokers_is_bounded_too() -> None:
    core = server(max_brokers=10)
    for number in range(10):
        register(core, f"b{number}", 0, peer="greedy")
    with pytest.raises(LimitExceeded, match="broker: this name server allows at most 10 brokers, not 11"):
        register(core, "b10", 0, peer="greedy")
    register(core, "honest", 0, peer="honest")
    with pytest.raises(LimitExceeded, match="not 12"):
        register(core, "another", 0, peer="another")
    register(core, "b3", 0, peer="greedy")


def test_a_delta_counts_too() -> None:
    core = server()
    generation = register(core, "a", 99)
    identity = BrokerIdentity("c1", "a", 0, "a:1")

    def change(*topics: str, base: int) -> None:
        core.update_topics(
            identity,
            generation,
            base=DataVersion(counter=base),
            data_version=DataVersion(counter=base + 1),
            changed=dict.fromkeys(topics, QUEUES),
            removed=(),
            max_topics=1_000,
            now=0.0,
        )
        core.check_invariants()

    change("new", base=0)
    with pytest.raises(LimitExceeded, match="at most 100 topics, not 101"):
        change("newer", base=1)
    assert core.registration_of(identity) is not None
    core.unregister(identity, generation, reason=Reason.SHUTDOWN, now=0.0)
    core.check_invariants()
    register(core, "b", 100)


def test_labels_of_brokers_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "MAX_DETAIL_BYTES", 10_000)
    core = server()

    def claim(name: str, label: str, peer: str) -> None:
        identity = BrokerIdentity("c1", name, 0, f"{name}:1")
        labels = {str(number): label * 100 for number in range(10)}
        core.register(Registration(identity=identity, topics={}, labels=labels), now=0.0, peer=peer)
        core.check_invariants()

    claim("a", "x", "greedy")
    claim("a", "x", "greedy")
    with pytest.raises(LimitExceeded, match="broker: this name server allows at most 10000 bytes_of_broker_details"):
        claim("a", "\N{GREEK SMALL LETTER ALPHA}" * 3, "greedy")
    claim("b", "x", "greedy")
    register(core, "c", 0, peer="honest")


@pytest.mark.slow
def test_the_default_bounds_hold_their_documented_numbers() -> None:
    routes = RoutesConfig()
    core = server(max_brokers=routes.max_brokers, max_topics=routes.max_topics)
    topics = routes.max_topics // routes.max_brokers
    for number in range(routes.max_brokers):
        identity = BrokerIdentity("c1", f"b{number}", 0, f"b{number}:1")
        held = _numbered(str(number), topics)
        core.register(Registration(identity=identity, topics=held), now=0.0, peer="greedy")
    for name, more in (("one-more", 0), ("b0", topics + 1)):
        identity = BrokerIdentity("c1", name, 0, f"{name}:1")
        with pytest.raises(LimitExceeded):
            core.register(Registration(identity=identity, topics=_numbered(name, more)), now=0.0, peer="greedy")
    honest = Registration(identity=BrokerIdentity("c1", "honest", 0, "h:1"), topics=_numbered("h", 1))
    assert core.register(honest, now=0.0, peer="honest").generation
