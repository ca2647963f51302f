"""What the scenarios do not show of the core: answers in full, and that a refusal leaves no trace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from namesrv.core.errors import BrokerUnknown, ClusterNotFound, IdentityHeld, InvalidRequest, StaleGeneration
from namesrv.core.liveness import LivenessRules
from namesrv.core.model import BrokerIdentity, DataVersion, GroupKey, Health, ProbeVerdict, QueueConfig, Registration
from namesrv.core.name_server import BeatStatus, NameServer

A = BrokerIdentity("c1", "a", 0, "10.0.0.1:10911")
ORDERS = {"orders": QueueConfig(4, 4, 6)}


@pytest.fixture
def core() -> Iterator[NameServer]:
    """An empty name server whose invariants are checked at the end of every test."""
    core = NameServer(rules=LivenessRules(), first_generation=7, started_at=0.0)
    yield core
    core.check_invariants()


def claim(identity: BrokerIdentity = A, *, state_version: int = 0, **more: object) -> Registration:
    version = DataVersion(state_version, 0, 1)
    return Registration(identity=identity, topics=ORDERS, data_version=version, **more)  # type: ignore[arg-type]


def picture(core: NameServer) -> object:
    """Everything that can be seen of the core."""
    return (
        core.routes.change,
        [core.routes.route(topic) for topic in core.routes.topic_names()],
        [(r.registration, r.generation, r.state, r.pulse.last_seen) for _, r in core.replicas()],
    )


def test_a_refused_claim_leaves_no_trace(core: NameServer) -> None:
    core.register(claim(state_version=2), now=0.0)
    core.register(claim(BrokerIdentity("c1", "a", 1, "10.0.0.2:10911")), now=0.0)
    before = picture(core)
    with pytest.raises(IdentityHeld) as refused:
        core.register(claim(BrokerIdentity("c1", "a", 0, "10.0.0.2:10911"), state_version=1), now=9.0)
    assert picture(core) == before
    assert refused.value.event is not None
    assert refused.value.facts == {"holder_addr": A.addr}


def test_the_generation_after_the_last_is_not_zero_which_says_none_on_the_wire() -> None:
    core = NameServer(rules=LivenessRules(), first_generation=2**64 - 1, started_at=0.0)
    assert core.register(claim(), now=0.0).generation == 2**64 - 1
    assert core.register(claim(), now=0.0).generation == 1


def test_a_beat_with_the_right_generation_from_another_address_is_stale(core: NameServer) -> None:
    generation = core.register(claim(), now=0.0).generation
    elsewhere = A._replace(addr="10.0.0.9:10911")
    answer = core.beat(elsewhere, generation, data_version=DataVersion(0, 0, 1), now=1.0)
    assert (answer.status, answer.holder_addr) == (BeatStatus.STALE_GENERATION, A.addr)


def test_a_delta_of_a_stranger_or_a_stale_generation_is_refused(core: NameServer) -> None:
    delta = {
        "base": DataVersion(0, 0, 1),
        "data_version": DataVersion(0, 0, 2),
        "changed": {},
        "removed": [],
        "max_topics": 9,
    }
    with pytest.raises(BrokerUnknown):
        core.update_topics(A, 1, **delta)  # type: ignore[arg-type]
    generation = core.register(claim(), now=0.0).generation
    with pytest.raises(StaleGeneration):
        core.update_topics(A, generation + 1, **delta)  # type: ignore[arg-type]
    before = picture(core)
    with pytest.raises(InvalidRequest):
        core.update_topics(A, generation, **(delta | {"removed": ["nowhere"]}))  # type: ignore[arg-type]
    assert picture(core) == before


def test_the_view_of_a_group_leaves_out_whoever_is_not_routed(core: NameServer) -> None:
    failing = Health(ProbeVerdict.FAILING, "refused")
    master = core.register(claim(health=failing, ha_addr="10.0.0.1:10912"), now=0.0)
    assert master.view.min_broker_addr == ""
    slave = core.register(claim(BrokerIdentity("c1", "a", 1, "10.0.0.2:10911")), now=0.0)
    assert (slave.view.min_broker_id, slave.view.master_addr, slave.view.ha_addr) == (1, "", "")


def test_members_with_the_same_topics_share_one_table(core: NameServer) -> None:
    core.register(claim(), now=0.0)
    other = Registration(identity=BrokerIdentity("c1", "a", 1, "h:1"), topics=dict(ORDERS))
    core.register(other, now=0.0)
    tables = {id(replica.registration.topics) for _, replica in core.replicas()}
    assert len(tables) == 1


def test_the_longest_silent_broker_expires_first(core: NameServer) -> None:
    for number, seen in enumerate((3.0, 1.0, 2.0)):
        core.register(claim(BrokerIdentity(f"c{number}", f"b{number}", 0, f"h{number}:1")), now=seen)
    gone = [event.broker.identity.broker_name for event in core.sweep(now=200.0) if event.broker]
    assert gone == ["b1", "b2", "b0"]


def test_replicas_are_narrowed_by_cluster_and_name(core: NameServer) -> None:
    for cluster, name in (("c1", "a"), ("c1", "b"), ("c2", "a")):
        core.register(claim(BrokerIdentity(cluster, name, 0, f"{cluster}{name}:1")), now=0.0)
    keys = [group.key for group, _ in core.replicas(cluster="c1", broker_name="a")]
    assert keys == [GroupKey("c1", "a")]
    assert len(core.replicas(broker_name="a")) == 2
    with pytest.raises(ClusterNotFound):
        core.topic_names("c9")
