"""What operators change: each change, its events, and what ends it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pointsman_namesrv.core.administration import MAX_RECORDED_CHARACTERS, Administration
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.guard import GuardMode
from pointsman_namesrv.core.kv import ORDER_TOPIC_NAMESPACE
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import (
    BrokerIdentity,
    DataVersion,
    GroupKey,
    Health,
    ProbeVerdict,
    QueueConfig,
    Reason,
    Registration,
)
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.node_refusals import (
    BrokerUnknown,
    ClusterNotFound,
    KvNotFound,
    TopicHeld,
    TopicNotFound,
)

A, B, FAR = GroupKey("c1", "a"), GroupKey("c1", "b"), GroupKey("c2", "a")
ORDERS = QueueConfig(4, 4, 7)
BY = "ann@example"


@pytest.fixture
def core() -> Iterator[NameServer]:
    core = NameServer(rules=LivenessRules(), first_generation=1, started_at=-1_000.0)
    yield core
    core.check_invariants()


@pytest.fixture
def admin(core: NameServer) -> Administration:
    return Administration(core)


def registration(key: GroupKey = A, broker_id: int = 0, **facts: object) -> Registration:
    identity = BrokerIdentity(*key, broker_id, f"{key.cluster}-{key.broker_name}-{broker_id}:1")
    known = Registration(
        identity=identity, topics={"orders": ORDERS}, data_version=DataVersion(0, 0, 1), incarnation="one"
    )
    return replace(known, **facts)  # type: ignore[arg-type]  # whatever fields the test names


def perms(core: NameServer, topic: str = "orders") -> dict[str, int]:
    return {key.broker_name: queues.perm for key, queues in core.routes.route(topic).queues}


def the(events: tuple[Event, ...]) -> Event:
    assert len(events) == 1
    return events[0]


# --- write permission -------------------------------------------------------------------------------------------


def test_a_wipe_clears_only_the_write_bit_and_adding_restores_the_old_perm(
    core: NameServer, admin: Administration
) -> None:
    core.register(registration(), now=0.0)
    core.register(registration(B), now=0.0)
    done = admin.set_write_perm(A, writable=False, by=BY)
    assert (perms(core), done.topic_count, done.changed) == ({"a": 5, "b": 7}, 1, True)
    recorded = the(done.events)
    assert (recorded.kind, recorded.reason, recorded.group) == (EventKind.PERM_CHANGED, Reason.ADMIN, A)
    assert recorded.detail == {"writable": False, "topics": 1, "before": True, "by": BY}
    back = admin.set_write_perm(A, writable=True, by=BY)
    assert (perms(core), back.changed, the(back.events).detail["writable"]) == ({"a": 7, "b": 7}, True, True)


@pytest.mark.parametrize("writable", [True, False])
def test_setting_the_same_permission_changes_nothing(core: NameServer, admin: Administration, writable: bool) -> None:
    core.register(registration(), now=0.0)
    admin.set_write_perm(A, writable=writable, by=BY)
    change = core.routes.change
    again = admin.set_write_perm(A, writable=writable, by=BY)
    assert (again.changed, again.events, again.topic_count, core.routes.change) == (False, (), 1, change)


def test_a_wipe_survives_other_topics_of_the_same_process(core: NameServer, admin: Administration) -> None:
    held = core.register(registration(), now=0.0)
    admin.set_write_perm(A, writable=False, by=BY)
    two = DataVersion(0, 0, 2)
    core.update_topics(
        registration().identity,
        held.generation,
        base=DataVersion(0, 0, 1),
        data_version=two,
        changed={"late": QueueConfig(1, 1, 6)},
        removed=(),
        max_topics=10,
        now=0.0,
    )
    assert (perms(core), perms(core, "late")) == ({"a": 5}, {"a": 4})
    core.register(registration(topics={"orders": QueueConfig(8, 8, 6)}, data_version=DataVersion(0, 0, 3)), now=1.0)
    assert perms(core) == {"a": 4}


def test_a_wipe_survives_an_expiry_and_ends_with_the_next_incarnation(core: NameServer, admin: Administration) -> None:
    core.register(registration(), now=0.0)
    admin.set_write_perm(A, writable=False, by=BY)
    core.sweep(now=200.0)
    core.register(registration(), now=201.0)
    assert perms(core) == {"a": 5}
    events = core.register(registration(incarnation="two"), now=202.0).events
    assert perms(core) == {"a": 7}
    recorded = [(e.reason, e.detail["writable"]) for e in events if e.kind is EventKind.PERM_CHANGED]
    assert recorded == [(Reason.INCARNATION, True)]


def test_the_permission_of_an_unknown_broker_cannot_be_set(admin: Administration) -> None:
    with pytest.raises(BrokerUnknown):
        admin.set_write_perm(A, writable=False, by=BY)


# --- topics -----------------------------------------------------------------------------------------------------


def test_a_topic_that_brokers_hold_is_not_deleted_and_they_are_named(core: NameServer, admin: Administration) -> None:
    for key in (FAR, B, A):
        core.register(registration(key), now=0.0)
    with pytest.raises(TopicHeld) as refused:
        admin.delete_topic("orders", cluster="", force=False, by=BY, now=0.0)
    assert dict(refused.value.facts) == {"brokers": "c1/a,c1/b,c2/a", "broker_count": "3"}
    with pytest.raises(TopicHeld, match=r"held by c2/a$"):
        admin.delete_topic("orders", cluster="c2", force=False, by=BY, now=0.0)
    assert core.topic_names() == ["orders"]


def test_of_very_many_holders_an_error_names_as_many_as_an_answer_can_carry() -> None:
    refused = TopicHeld("orders", [GroupKey("c" * 100, f"{i:0100}") for i in range(1_000)])
    assert len(str(refused)) < 1_400
    assert str(refused).endswith("and 995 more")
    assert (refused.facts["broker_count"], refused.facts["brokers"].count(",")) == ("1000", 4)


@pytest.mark.parametrize("force", [True, False])
def test_a_topic_that_no_broker_has_cannot_be_deleted(core: NameServer, admin: Administration, force: bool) -> None:
    core.register(registration(), now=0.0)
    for topic, cluster in (("nothing", ""), ("orders", "c2")):
        with pytest.raises(TopicNotFound):
            admin.delete_topic(topic, cluster=cluster, force=force, by=BY, now=0.0)


def test_a_forced_deletion_hides_a_topic_until_its_broker_registers_another_version(
    core: NameServer, admin: Administration
) -> None:
    core.register(registration(), now=0.0)
    core.register(registration(FAR), now=0.0)
    done = admin.delete_topic("orders", cluster="", force=True, by=BY, now=0.0)
    assert (done.hidden_on, core.topic_names()) == ((A, FAR), [])
    assert [(event.kind, event.reason, event.group) for event in done.events] == [
        (EventKind.TOPIC_DELETED, Reason.ADMIN, key) for key in (A, FAR)
    ]
    assert done.events[0].detail == {"topic": "orders", "forced": True, "by": BY}
    core.register(registration(), now=1.0)
    assert core.topic_names() == []
    core.register(registration(data_version=DataVersion(0, 0, 2)), now=2.0)
    assert core.routes.holders("orders") == [A]


def test_a_slave_with_another_version_does_not_end_what_hides_its_masters_topic(
    core: NameServer, admin: Administration
) -> None:
    core.register(registration(), now=0.0)
    admin.delete_topic("orders", cluster="", force=True, by=BY, now=0.0)
    core.register(registration(broker_id=1, data_version=DataVersion(0, 0, 9)), now=1.0)
    assert core.topic_names() == []


def test_a_slave_in_its_masters_place_hides_a_topic_once_it_has_the_version_it_was_deleted_under(
    core: NameServer, admin: Administration
) -> None:
    master = core.register(registration(), now=0.0)
    core.register(registration(broker_id=1, data_version=DataVersion(0, 0, 9)), now=0.0)
    admin.delete_topic("orders", cluster="", force=True, by=BY, now=0.0)
    core.unregister(registration().identity, master.generation, reason=Reason.SHUTDOWN, now=1.0)
    assert core.topic_names() == ["orders"]
    core.register(registration(broker_id=1), now=2.0)
    assert core.topic_names() == []
    core.check_invariants()


@pytest.mark.parametrize(
    ("broker_id", "names"),
    [pytest.param(0, ["orders"], id="a-master"), pytest.param(1, [], id="a-slave")],
)
def test_a_version_registered_while_the_probe_failed_ends_a_deletion_once_the_master_recovers(
    core: NameServer, admin: Administration, broker_id: int, names: list[str]
) -> None:
    core.register(registration(broker_id=broker_id), now=0.0)
    admin.delete_topic("orders", cluster="", force=True, by=BY, now=0.0)
    later = DataVersion(0, 0, 2)
    failing = registration(broker_id=broker_id, data_version=later, health=Health(ProbeVerdict.FAILING))
    generation = core.register(failing, now=1.0).generation
    assert core.topic_names() == []
    core.beat(failing.identity, generation, data_version=later, health=Health(ProbeVerdict.PASSING), now=2.0)
    assert core.topic_names() == ["orders"]
    core.register(registration(broker_id=broker_id), now=3.0)
    assert core.topic_names() == names


def test_a_deletion_in_one_cluster_leaves_the_others(core: NameServer, admin: Administration) -> None:
    core.register(registration(), now=0.0)
    core.register(registration(FAR), now=0.0)
    done = admin.delete_topic("orders", cluster="c2", force=True, by=BY, now=0.0)
    assert (done.hidden_on, the(done.events).group) == ((FAR,), FAR)
    assert core.routes.holders("orders") == [A]


# --- KV configuration -------------------------------------------------------------------------------------------


def test_a_key_is_set_and_removed_and_the_history_has_its_value(core: NameServer, admin: Administration) -> None:
    done = admin.put_kv("ns", "key", "value", by=BY)
    recorded = the(done.events)
    assert (recorded.kind, recorded.reason) == (EventKind.KV_CHANGED, Reason.ADMIN)
    assert recorded.detail == {"namespace": "ns", "key": "key", "value": "value", "before": None, "by": BY}
    assert admin.put_kv("ns", "key", "value", by=BY).events == ()
    gone = admin.delete_kv("ns", "key", by=BY)
    assert the(gone.events).detail == {"namespace": "ns", "key": "key", "before": "value", "by": BY}
    assert core.kv.entries() == []
    with pytest.raises(KvNotFound):
        admin.delete_kv("ns", "key", by=BY)


def test_a_changed_key_has_its_old_value_in_the_history(admin: Administration) -> None:
    admin.put_kv("ns", "key", "one", by=BY)
    detail = the(admin.put_kv("ns", "key", "two", by=BY).events).detail
    assert (detail["value"], detail["before"]) == ("two", "one")


def test_long_values_and_those_of_hidden_namespaces_are_recorded_as_length_and_digest(core: NameServer) -> None:
    admin = Administration(core, hidden_namespaces=("secrets",))
    long, longest = "x" * (MAX_RECORDED_CHARACTERS + 1), "y" * MAX_RECORDED_CHARACTERS
    digest = {"length": len(long), "sha256": hashlib.sha256(long.encode()).hexdigest()}
    admin.put_kv("ns", "key", long, by=BY)
    detail = the(admin.put_kv("ns", "key", longest, by=BY).events).detail
    assert (detail["value"], detail["before"]) == (longest, digest)
    admin.put_kv("secrets", "password", "hunter2", by=BY)
    gone = the(admin.delete_kv("secrets", "password", by=BY).events)
    assert gone.detail["before"] == {"length": 7, "sha256": hashlib.sha256(b"hunter2").hexdigest()}


def test_an_order_topic_is_in_its_route_as_long_as_its_key_is_set(core: NameServer, admin: Administration) -> None:
    core.register(registration(), now=0.0)
    before = core.routes.counter("orders")
    admin.put_kv(ORDER_TOPIC_NAMESPACE, "orders", "a:4", by=BY)
    assert core.routes.route("orders").order_topic_conf == "a:4"
    assert core.routes.counter("orders") != before
    admin.put_kv("other", "orders", "b:4", by=BY)
    assert core.routes.route("orders").order_topic_conf == "a:4"
    admin.delete_kv("other", "orders", by=BY)
    assert core.routes.route("orders").order_topic_conf == "a:4"
    admin.delete_kv(ORDER_TOPIC_NAMESPACE, "orders", by=BY)
    assert core.routes.route("orders").order_topic_conf == ""


# --- guard ------------------------------------------------------------------------------------------------------


def test_a_guard_is_set_to_hold_and_off_and_the_history_has_the_operator(
    core: NameServer, admin: Administration
) -> None:
    core.register(registration(), now=0.0)
    held = admin.set_guard("c1", GuardMode.HOLD, seconds=60.0, by=BY, now=10.0)
    assert (held.guard.mode, held.guard.active, held.guard.mode_until) == (GuardMode.HOLD, True, 70.0)
    recorded = the(held.events)
    assert (recorded.kind, recorded.reason, recorded.group) == (EventKind.GUARD_ON, Reason.ADMIN, GroupKey("c1", ""))
    assert (recorded.detail["mode"], recorded.detail["seconds"], recorded.detail["by"]) == ("HOLD", 60.0, BY)
    off = admin.set_guard("c1", GuardMode.OFF, seconds=None, by=BY, now=20.0)
    assert (off.guard.active, the(off.events).kind) == (False, EventKind.GUARD_OFF)


def test_a_mode_without_an_immediate_effect_is_recorded_once(core: NameServer, admin: Administration) -> None:
    core.register(registration(), now=0.0)
    assert admin.set_guard("c1", GuardMode.AUTO, seconds=None, by=BY, now=0.0).events == ()
    recorded = the(admin.set_guard("c1", GuardMode.OFF, seconds=None, by=BY, now=0.0).events)
    assert (recorded.kind, recorded.detail) == (
        EventKind.GUARD_OFF,
        {"mode": "OFF", "before": {"mode": "AUTO"}, "by": BY},
    )
    assert admin.set_guard("c1", GuardMode.OFF, seconds=None, by=BY, now=1.0).events == ()


def test_a_longer_hold_is_recorded_as_guard_on(core: NameServer, admin: Administration) -> None:
    core.register(registration(), now=0.0)
    admin.set_guard("c1", GuardMode.HOLD, seconds=60.0, by=BY, now=0.0)
    recorded = the(admin.set_guard("c1", GuardMode.HOLD, seconds=600.0, by=BY, now=10.0).events)
    assert (recorded.kind, recorded.detail["seconds"]) == (EventKind.GUARD_ON, 600.0)
    assert recorded.detail["before"] == {"mode": "HOLD", "seconds": 50.0}


def test_the_guard_of_an_unknown_cluster_cannot_be_set(core: NameServer, admin: Administration) -> None:
    core.register(registration(), now=0.0)
    with pytest.raises(ClusterNotFound):
        admin.set_guard("c9", GuardMode.HOLD, seconds=None, by=BY, now=0.0)
    assert "c9" not in core.guard.clusters()


def test_the_guard_of_a_cluster_without_live_brokers_can_be_set_to_off(core: NameServer, admin: Administration) -> None:
    held = core.register(registration(), now=0.0)
    admin.set_guard("c1", GuardMode.HOLD, seconds=None, by=BY, now=0.0)
    core.unregister(registration().identity, held.generation, reason=Reason.SHUTDOWN, now=1.0)
    assert not admin.set_guard("c1", GuardMode.AUTO, seconds=None, by=BY, now=2.0).guard.active


# --- maintenance ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [A, GroupKey("c1", "")])
def test_a_broker_that_expires_in_a_window_is_planned(core: NameServer, admin: Administration, key: GroupKey) -> None:
    core.register(registration(), now=0.0)
    done = admin.set_maintenance(key, seconds=1_000.0, note="new kernel", by=BY, now=0.0)
    recorded = the(done.events)
    assert (done.changed, recorded.kind, recorded.reason, recorded.group) == (
        True,
        EventKind.MAINTENANCE_ON,
        Reason.ADMIN,
        key,
    )
    assert recorded.detail == {"seconds": 1_000.0, "note": "new kernel", "before": None, "by": BY}
    left = the(core.sweep(now=200.0))
    assert (left.kind, left.reason) == (EventKind.EXPIRED, Reason.SILENCE)
    assert left.broker is not None
    assert left.broker.state.planned


def test_a_window_is_ended_by_any_operator_or_by_its_time(core: NameServer, admin: Administration) -> None:
    admin.set_maintenance(A, seconds=100.0, note="", by=BY, now=0.0)
    ended = admin.set_maintenance(A, seconds=None, note="done", by="bob", now=10.0)
    recorded = the(ended.events)
    assert (ended.changed, recorded.kind, recorded.reason) == (True, EventKind.MAINTENANCE_OFF, Reason.ADMIN)
    assert recorded.detail == {"note": "done", "before": {"seconds": 90.0, "note": "", "by": BY}, "by": "bob"}
    again = admin.set_maintenance(A, seconds=None, note="", by=BY, now=11.0)
    assert (again.changed, again.events) == (False, ())
    admin.set_maintenance(A, seconds=100.0, note="", by=BY, now=20.0)
    over = [(e.kind, e.reason, e.group) for e in core.sweep(now=120.0)]
    assert over == [(EventKind.MAINTENANCE_OFF, Reason.TIME_OVER, A)]


# --- eviction ---------------------------------------------------------------------------------------------------


def test_an_evicted_broker_is_removed_immediately_and_its_agent_has_to_register(
    core: NameServer, admin: Administration
) -> None:
    held = core.register(registration(), now=0.0)
    done = admin.evict("c1", "a", 0, by=BY, now=7.0)
    recorded = the(done.events)
    assert (done.identity, core.topic_names()) == (registration().identity, [])
    assert (recorded.kind, recorded.reason, recorded.interval, recorded.detail) == (
        EventKind.UNREGISTERED,
        Reason.ADMIN,
        7.0,
        {"by": BY},
    )
    beat = core.beat(registration().identity, held.generation, data_version=DataVersion(0, 0, 1), now=8.0)
    assert beat.status == "UNKNOWN_BROKER"


@pytest.mark.parametrize(("key", "broker_id"), [(A, 1), (B, 0)])
def test_an_unknown_broker_cannot_be_evicted(
    core: NameServer, admin: Administration, key: GroupKey, broker_id: int
) -> None:
    core.register(registration(), now=0.0)
    with pytest.raises(BrokerUnknown):
        admin.evict(*key, broker_id, by=BY, now=0.0)
    assert core.topic_names() == ["orders"]
