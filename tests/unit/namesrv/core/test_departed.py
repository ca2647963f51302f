"""Topics whose brokers are all down: known, for what reason, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pointsman_namesrv.core.absences import MAX_ENDED_PER_SWEEP
from pointsman_namesrv.core.administration import Administration
from pointsman_namesrv.core.departed import DOWN_SECONDS, REMEMBER_SECONDS, DepartedBroker
from pointsman_namesrv.core.events import EventKind
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import (
    BrokerIdentity,
    DataVersion,
    Evidence,
    FromBroker,
    GroupKey,
    Health,
    ProbeVerdict,
    QueueConfig,
    Reason,
    Registration,
)
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.node_refusals import BrokerUnknown, TopicHeld, TopicNotFound
from pointsman_namesrv.core.replica_state import Phase, ReplicaState

A = GroupKey("c1", "a")
REFUSING = Health(ProbeVerdict.FAILING, "LOADING", Evidence.STRONG)
LATER = 130.0
"""Longer than an expiry."""


@pytest.fixture
def core() -> Iterator[NameServer]:
    core = NameServer(rules=LivenessRules(), first_generation=1, started_at=-1_000.0)
    yield core
    core.check_invariants()


def registration(
    name: str = "a", broker_id: int = 0, *, topics: tuple[str, ...] = ("orders",), **facts: object
) -> Registration:
    identity = BrokerIdentity("c1", name, broker_id, f"{name}-{broker_id}:1")
    known = Registration(
        identity=identity, topics={topic: QueueConfig(4, 4, 6) for topic in topics}, data_version=DataVersion(0, 0, 1)
    )
    return replace(known, **facts)  # type: ignore[arg-type]  # whatever fields the test names


def absent(
    core: NameServer, topic: str = "orders", cluster: str = ""
) -> list[tuple[str, int, Phase, Reason | None]] | None:
    """The brokers that are down; empty: one is up, None: the topic is not known."""
    try:
        route = core.routes.current(topic, cluster=cluster)
    except TopicNotFound:
        return None
    assert bool(route.queues) is not bool(route.absent)
    return [(each.identity.broker_name, each.identity.broker_id, each.phase, each.reason) for each in route.absent]


def leave(
    core: NameServer, name: str = "a", broker_id: int = 0, reason: Reason = Reason.SHUTDOWN, now: float = 1.0
) -> None:
    (replica,) = [r for _, r in core.members() if (r.identity.broker_name, r.identity.broker_id) == (name, broker_id)]
    core.unregister(replica.identity, replica.generation, reason=reason, now=now)


GONE = ("a", 0, Phase.GONE, Reason.SILENCE)


def test_a_silent_broker_leaves_its_topics_known_and_one_that_comes_back_has_them_again(core: NameServer) -> None:
    core.register(registration(), now=0.0)
    assert (absent(core), absent(core, "other")) == ([], None)
    core.sweep(now=LATER)
    assert absent(core) == [GONE]
    (broker,) = core.routes.current("orders").absent
    assert broker.since == LATER
    assert (core.topic_names(), core.routes.known_names(), core.routes.holders("orders")) == ([], ["orders"], [])
    assert (absent(core, cluster="c1"), absent(core, cluster="c2")) == ([GONE], None)
    core.register(registration(), now=LATER + 1)
    assert (absent(core), core.topic_names(), len(core.departed)) == ([], ["orders"], 0)


def test_a_broker_that_returns_without_the_topic_removed_it(core: NameServer) -> None:
    core.register(registration(topics=("orders", "old")), now=0.0)
    core.sweep(now=LATER)
    core.register(registration(data_version=DataVersion(0, 0, 2)), now=LATER + 1)
    assert (absent(core, "orders"), absent(core, "old")) == ([], None)


def test_a_registered_broker_whose_probe_fails_counts_with_what_it_registers(core: NameServer) -> None:
    held = core.register(registration(), now=0.0)
    core.beat(registration().identity, held.generation, data_version=DataVersion(0, 0, 1), health=REFUSING, now=5.0)
    out = ("a", 0, Phase.OUT, Reason.REFUSED)
    assert absent(core) == [out]
    changed = registration(topics=("new",), data_version=DataVersion(0, 0, 2), health=REFUSING)
    core.register(changed, now=6.0)
    assert (absent(core, "new"), absent(core, "orders")) == ([out], None)
    core.sweep(now=6.0 + LATER)
    assert absent(core, "new") == [GONE]


@pytest.mark.parametrize("reason", [Reason.SHUTDOWN, Reason.DRAIN, Reason.REMOVED_FROM_CONFIG])
@pytest.mark.parametrize("is_out", [True, False])
def test_a_broker_that_unregisters_is_not_remembered(core: NameServer, reason: Reason, is_out: bool) -> None:
    core.register(registration(health=REFUSING if is_out else Health()), now=0.0)
    assert absent(core) is not None
    leave(core, reason=reason)
    assert absent(core) is None


def test_an_evicted_broker_or_one_with_a_new_position_is_not_remembered(core: NameServer) -> None:
    core.register(registration(), now=0.0)
    core.evict("c1", "a", 0, now=1.0, detail={})
    assert absent(core) is None
    core.register(registration(), now=2.0)
    renamed = registration(broker_id=1, topics=("other",))
    core.register(replace(renamed, identity=renamed.identity._replace(addr="a-0:1")), now=3.0)
    assert absent(core) is None


def test_of_a_group_the_last_to_give_topics_decides(core: NameServer) -> None:
    core.register(registration(), now=0.0)
    core.register(registration(broker_id=1, acting_master=True), now=LATER - 1)
    core.sweep(now=LATER)
    assert absent(core) == []  # the slave acts
    leave(core, broker_id=1, now=LATER + 1)
    assert (absent(core), core.departed.topics) == (None, 0)
    assert len(core.departed) == 1  # the master is still down


def test_a_slave_that_gives_no_topics_leaves_those_of_the_lost_master_known(core: NameServer) -> None:
    core.register(registration(), now=0.0)
    core.register(registration(broker_id=1, acting_master=False), now=LATER - 1)
    core.sweep(now=LATER)
    assert absent(core) == [GONE]
    leave(core, broker_id=1, now=LATER + 1)
    assert absent(core) == [GONE]


def test_one_broker_that_is_up_is_a_route_and_the_lost_ones_are_not_named(core: NameServer) -> None:
    core.register(registration("a"), now=0.0)
    core.register(registration("b"), now=LATER - 1)
    core.sweep(now=LATER)
    assert absent(core) == []
    core.sweep(now=2 * LATER)
    assert absent(core) == [GONE, ("b", 0, Phase.GONE, Reason.SILENCE)]


def test_a_zone_changes_nothing_for_a_topic_that_is_down_and_an_order_topic_keeps_its_configuration(
    core: NameServer,
) -> None:
    core.register(registration(zone="z1"), now=0.0)
    core.routes.set_order_topic("orders", "a:4")
    core.sweep(now=LATER)
    route = core.routes.current("orders", zone="z2")
    assert (len(route.absent), route.groups, route.order_topic_conf) == (1, (), "a:4")


def test_a_lost_broker_is_remembered_for_its_time(core: NameServer) -> None:
    core.register(registration(), now=0.0)
    core.sweep(now=LATER)
    core.sweep(now=LATER + REMEMBER_SECONDS)
    assert absent(core) == [GONE]
    core.sweep(now=LATER + REMEMBER_SECONDS + 1)
    assert (absent(core), core.departed.topics, core.routes.known_names()) == (None, 0, [])


def test_switched_off_only_what_is_registered_counts() -> None:
    core = NameServer(rules=LivenessRules(), first_generation=1, started_at=-1_000.0, remember_seconds=0.0)
    core.register(registration(health=REFUSING), now=0.0)
    assert absent(core) == [("a", 0, Phase.OUT, Reason.REFUSED)]
    core.sweep(now=LATER)
    assert absent(core) is None
    core.check_invariants()


@pytest.mark.parametrize("bounds", [{"max_topics": 5}, {"max_brokers": 2}], ids=["topics", "brokers"])
def test_remembered_and_registered_brokers_share_the_bounds_of_the_node(bounds: dict[str, int]) -> None:
    core = NameServer(rules=LivenessRules(), first_generation=1, started_at=-1_000.0, **bounds)  # type: ignore[arg-type]
    for number, name in enumerate("ab"):
        core.register(registration(name, topics=(f"{name}1", f"{name}2")), now=200.0 * number)
        core.sweep(now=200.0 * number + 121.0)
    assert (core.departed.topics, core.departed.dropped) == (4, 0)
    core.register(registration("c", topics=("c1", "c2")), now=400.0)
    assert [absent(core, f"{name}1") is None for name in "ab"] == [True, False]
    assert (core.departed.topics, core.departed.dropped) == (2, 1)
    core.check_invariants()


def test_a_lost_broker_is_down_for_30_days_with_or_without_topics(core: NameServer) -> None:
    for name, topics in (("a", ()), ("b", ("orders",))):
        core.register(registration(name, topics=topics), now=0.0)
    core.sweep(now=LATER)
    core.sweep(now=LATER + DOWN_SECONDS)
    assert (len(core.departed), core.departed.topics) == (2, 0)
    core.sweep(now=LATER + DOWN_SECONDS + 1)
    assert len(core.departed) == 0


def test_a_broker_that_is_gone_can_be_evicted_once(core: NameServer) -> None:
    known: dict[str, Any] = {"zone": "z1", "host": "h1", "incarnation": "i1", "broker_version": "7.2"}
    core.register(registration(**known), now=0.0)
    core.sweep(now=LATER)
    identity, (event,) = core.evict("c1", "a", 0, now=LATER + 5, detail={"by": "ann"})
    assert identity == registration().identity
    assert event.broker is not None
    about = event.broker
    assert (event.kind, event.reason, event.detail) == (EventKind.UNREGISTERED, Reason.ADMIN, {"by": "ann"})
    assert (about.state, about.state_for) == (ReplicaState(Phase.GONE, Reason.ADMIN, planned=True), 0.0)
    assert (about.zone, about.host, about.incarnation, about.broker_version) == ("z1", "h1", "i1", "7.2")
    assert (absent(core), len(core.departed)) == (None, 0)
    with pytest.raises(BrokerUnknown):
        core.evict("c1", "a", 0, now=LATER + 6, detail={})


def test_evicting_a_lost_slave_leaves_the_topics_of_its_lost_master_known(core: NameServer) -> None:
    core.register(registration(), now=0.0)
    core.register(registration(broker_id=1), now=0.0)
    core.sweep(now=LATER)
    core.evict("c1", "a", 1, now=LATER + 1, detail={})
    assert absent(core) == [GONE]
    core.evict("c1", "a", 0, now=LATER + 2, detail={})
    assert absent(core) is None


def test_at_the_end_of_a_window_over_many_brokers_each_sweep_emits_a_bounded_number_of_events(core: NameServer) -> None:
    core.maintenance.open(GroupKey("c1", ""), until=LATER + 10)
    for number in range(MAX_ENDED_PER_SWEEP + 1):
        core.register(registration(f"b{number}"), now=0.0)
    while core.sweep(now=LATER):
        pass
    assert len(core.departed) == MAX_ENDED_PER_SWEEP + 1
    counts: list[int] = []
    while events := core.sweep(now=LATER + 10):
        assert (core.sweep_interval() == 0.0) is (not counts)
        counts.append(sum(event.kind is EventKind.EXPIRED for event in events))
    assert counts == [MAX_ENDED_PER_SWEEP, 1]


def test_the_counter_of_a_topic_never_falls(core: NameServer) -> None:
    seen = []

    def see() -> None:
        counter = core.routes.counter("orders")
        assert counter is not None
        seen.append(counter)

    held = core.register(registration(), now=0.0)
    see()
    core.beat(registration().identity, held.generation, data_version=DataVersion(0, 0, 1), health=REFUSING, now=5.0)
    see()
    core.register(registration("x", topics=("x",)), now=6.0)
    core.sweep(now=5.0 + LATER)
    see()
    core.register(registration(broker_id=1, acting_master=False), now=140.0)
    see()
    core.register(registration(), now=141.0)
    see()
    assert seen == sorted(set(seen))


def test_a_topic_that_is_down_can_be_deleted_and_stays_hidden_when_its_broker_is_back_with_it(core: NameServer) -> None:
    admin = Administration(core)
    core.register(registration(topics=("orders", "old")), now=0.0)
    core.sweep(now=LATER)
    with pytest.raises(TopicHeld, match="c1/a"):
        admin.delete_topic("old", cluster="", force=False, by="ann", now=0.0)
    done = admin.delete_topic("old", cluster="", force=True, by="ann", now=0.0)
    assert (done.hidden_on, absent(core, "old"), absent(core)) == ((A,), None, [GONE])
    core.check_invariants()
    core.register(registration(topics=("orders", "old")), now=LATER + 1)
    assert (absent(core, "old"), absent(core)) == (None, [])


def test_a_wipe_outlives_the_absence(core: NameServer) -> None:
    admin = Administration(core)
    core.register(registration(), now=0.0)
    admin.set_write_perm(A, writable=False, by="ann")
    core.sweep(now=LATER)
    core.register(registration(), now=LATER + 1)
    assert [queues.perm for _, queues in core.routes.current("orders").queues] == [4]


def test_a_restart_restores_lost_brokers_except_for_taken_or_expired_positions(
    core: NameServer,
) -> None:
    core.restore(registration("b"), 7, now=0.0)
    for name, at in (("c", -REMEMBER_SECONDS - 1), ("a", -10.0), ("b", -10.0)):
        lost = DepartedBroker(registration(name, topics=(f"of-{name}",)), Reason.SILENCE, at)
        core.absences.restore(lost, now=0.0)
    assert absent(core, "of-a") == [GONE]
    assert (absent(core, "of-b"), absent(core, "of-c"), absent(core)) == (None, None, [])


def test_absent_brokers_have_their_agents_and_rocketmq_brokers_are_marked(core: NameServer) -> None:
    core.register(registration("a", agent_addr="a:9880"), now=0.0)
    core.register(registration("b", from_broker=FromBroker()), now=0.0)
    core.register(replace(registration("z"), identity=BrokerIdentity("c2", "z", 0, "z:1")), now=0.0)
    core.sweep(now=LATER)
    core.register(registration("c", agent_addr="c:9880", health=REFUSING), now=LATER)
    core.register(registration("d", agent_addr="d:9880"), now=LATER)

    def of(cluster: str = "") -> list[tuple[str, Phase, str, bool]]:
        return [
            (each.identity.broker_name, each.phase, each.registration.agent_addr, bool(each.registration.from_broker))
            for each in core.departed.all_absent(core.routes.groups, cluster)
        ]

    assert of("c1") == [
        ("a", Phase.GONE, "a:9880", False),
        ("b", Phase.GONE, "", True),
        ("c", Phase.OUT, "c:9880", False),
    ]
    assert of() == [*of("c1"), ("z", Phase.GONE, "", False)]
