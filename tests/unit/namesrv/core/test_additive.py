"""Registrations over RocketMQ's wire: additive, bound to a connection, and second to an agent's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pointsman.wire.refusals import InvalidRequest
from pointsman_namesrv.core.additive import Claim
from pointsman_namesrv.core.model import (
    DataVersion,
    Evidence,
    GroupKey,
    Health,
    ProbeVerdict,
    QueueConfig,
    Registration,
)
from pointsman_namesrv.core.node_refusals import (
    FirstOfOneTopic,
    HeldByAgent,
    IdentityHeld,
    LimitExceeded,
    NotUnregistered,
    TopicNotFound,
)
from pointsman_namesrv.core.replica_state import Phase
from pointsman_namesrv.core.request_rules import IntervalBounds
from pointsman_namesrv.core.saved_settings import restore, settings_of
from pointsman_namesrv.snapshot.snapshot_codec import decode_broker, encode_broker
from tests.kit.name_server.additive_fleet import EIGHT, KEY, SLAVE, A, AdditiveFleet, B, kinds


@pytest.fixture
def fleet() -> AdditiveFleet:
    return AdditiveFleet()


def test_each_registration_only_adds(fleet: AdditiveFleet) -> None:
    assert fleet.register("t1", "t2") == ["REGISTERED", "TOPICS"]
    assert fleet.register("t3", counter=2) == ["TOPICS"]
    assert fleet.register("t1=4", "t2", counter=3) == ["TOPICS"]
    assert fleet.register("t1=4", "t2", "t3", counter=3) == []
    assert fleet.topics() == {"t1": (4, 4, 6, 0, 1), "t2": EIGHT, "t3": EIGHT}
    fleet.core.check_invariants()


def test_an_unchanged_registration_keeps_the_generation(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2")
    generation = fleet.core.routes.groups[KEY].replicas[0].generation
    registration = fleet.core.registration_of(A)
    assert registration is not None
    fleet.now += 30
    assert fleet.register("t1", "t2") == []
    renewed = fleet.word.renew(registration, stream=1, now=fleet.now)
    assert renewed is not None
    assert renewed.events == ()
    assert fleet.core.routes.groups[KEY].replicas[0].generation == generation
    fleet.register("t3", counter=2)
    assert fleet.word.renew(registration, stream=1, now=fleet.now) is None


def test_a_first_registration_of_one_topic_is_refused_and_leaves_nothing(fleet: AdditiveFleet) -> None:
    with pytest.raises(FirstOfOneTopic, match="register broker failed"):
        fleet.register("t1")
    assert not fleet.core.routes.groups
    assert fleet.register() == ["REGISTERED", "TOPICS"]
    assert fleet.register("t1", counter=2) == ["TOPICS"]


def test_another_store_replaces_the_current_one(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2", "t3", counter=9)
    assert fleet.register("t1", counter=1, stamp=5_000) == []
    assert "t2" in fleet.topics()
    assert fleet.register("t1", "new", counter=2, stamp=5_000) == ["REREGISTERED", "TOPICS"]
    assert fleet.topics() == {"t1": EIGHT, "new": EIGHT}


def test_a_frame_that_was_overtaken_sets_back_until_the_next(fleet: AdditiveFleet) -> None:
    fleet.register("t1=4", "t2", "t3", counter=9)
    assert fleet.register("t1", "t2", counter=8) == ["TOPICS"]
    assert fleet.topics() == {"t1": EIGHT, "t2": EIGHT, "t3": EIGHT}
    assert fleet.register("t1=4", "t2", "t3", counter=9) == ["TOPICS"]
    assert fleet.topics()["t1"] == (4, 4, 6, 0, 1)


def test_a_brokers_facts_apart_from_its_topics_may_change(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2", broker_version="5.3.2")
    assert fleet.register("t3", counter=2, broker_version="5.3.3", ha_addr="10.0.0.1:10912") == [
        "REREGISTERED",
        "TOPICS",
    ]
    assert set(fleet.topics()) == {"t1", "t2", "t3"}
    assert fleet.register("t3", counter=2, broker_version="5.3.3", ha_addr="10.0.0.1:10912") == []


def test_the_end_of_its_connection_is_suspicion_and_a_grace(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2")
    fleet.now += 20
    assert fleet.end() == ["SUSPECTED"]
    assert fleet.wait(9) == []
    assert "EXPIRED" in fleet.wait(3)
    assert not fleet.core.routes.groups


def test_a_broker_that_reconnected_outlives_its_old_connection(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2", stream=1)
    assert fleet.beat(stream=2) == []
    assert fleet.end(stream=1) == []
    assert fleet.end(stream=2) == ["SUSPECTED"]
    assert fleet.beat(stream=3) == ["RECOVERED"]


def test_no_heartbeat_restores_an_unregistered_broker(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2")
    assert kinds(fleet.word.unregister(KEY, A.addr, 0, stream=1, now=fleet.now)) == ["UNREGISTERED"]
    assert fleet.beat() is None
    assert fleet.word.unregister(KEY, A.addr, 0, stream=1, now=fleet.now) == ()
    assert fleet.register("t1", "t2") == ["REGISTERED", "TOPICS"]


def test_an_earlier_process_does_not_unregister_the_current_one(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2", stream=2)
    with pytest.raises(NotUnregistered, match="another connection, which is open, sends its heartbeats"):
        fleet.word.unregister(KEY, A.addr, 0, stream=1, now=fleet.now)
    with pytest.raises(NotUnregistered, match="the request names broker id 7"):
        fleet.word.unregister(KEY, A.addr, 7, stream=2, now=fleet.now)
    assert fleet.phase() is Phase.UP


def test_a_broker_whose_connection_ended_is_unregistered_over_another_one(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2", stream=2)
    fleet.wait(130)
    fleet.register("t1", "t2", stream=2)
    assert fleet.end(stream=2) == ["SUSPECTED"]
    assert kinds(fleet.word.unregister(KEY, A.addr, 0, stream=1, now=fleet.now)) == ["UNREGISTERED"]


def test_a_slave_without_a_master_keeps_its_topics_readable_with_either_flag(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2", acting_master=False)
    fleet.register("t1", "t2", who=SLAVE, acting_master=False)
    fleet.word.unregister(KEY, A.addr, 0, stream=1, now=fleet.now)
    route = fleet.core.routes.route("t1")
    assert [queues.perm for _, queues in route.queues] == [4]
    assert fleet.core.registration_of(SLAVE).shown_acting_master is False  # type: ignore[union-attr]  # it is held


def test_a_heartbeat_timeout_makes_a_broker_fast(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2", timeout=10.0)
    assert fleet.wait(8) == ["SUSPECTED"]
    assert fleet.beat() == ["RECOVERED"]
    assert "EXPIRED" in fleet.wait(13)
    fleet.register("t1", "t2", timeout=0.5)
    registration = fleet.core.registration_of(A)
    assert registration is not None
    assert (registration.heartbeat_interval, registration.expiry) == (1.0, 3.0)


def test_a_wipe_ends_with_the_masters_next_version_or_its_return(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2")
    fleet.core.routes.set_writable(KEY, False)
    assert fleet.register("t1", "t2") == []
    assert fleet.register("t1", "t2", zone="z2") == ["REREGISTERED"]
    assert KEY in fleet.core.overrides.wipes
    assert fleet.register("t1", "t2", counter=2, zone="z2") == ["TOPICS", "PERM_CHANGED"]
    assert KEY not in fleet.core.overrides.wipes
    fleet.core.routes.set_writable(KEY, False)
    fleet.word.unregister(KEY, A.addr, 0, stream=1, now=fleet.now)
    assert "PERM_CHANGED" in fleet.register("t1", "t2", counter=2)
    assert fleet.core.routes.route("t1").queues[0][1].perm == 6


def test_a_wipe_outlives_a_registration_of_one_new_topic(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2")
    fleet.core.routes.set_writable(KEY, False)
    assert fleet.register("t3", counter=2) == ["TOPICS"]
    assert fleet.register("t1", "t2", "t3", counter=2) == []
    assert [fleet.core.routes.route(topic).queues[0][1].perm for topic in ("t1", "t3")] == [4, 4]
    assert fleet.register("t1", "t2", "t3", "t4", counter=3) == ["TOPICS", "PERM_CHANGED"]


def test_a_slaves_new_topic_does_not_touch_a_wipe(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2")
    fleet.register("t1", "t2", who=SLAVE)
    fleet.core.routes.set_writable(KEY, False)
    wipes = dict(fleet.core.overrides.wipes)
    fleet.register("t3", who=SLAVE, counter=2)
    assert fleet.core.overrides.wipes == wipes


@pytest.mark.parametrize("absence", ["left", "silent", "cut off"])
def test_a_wipe_stays_while_its_broker_is_absent(fleet: AdditiveFleet, absence: str) -> None:
    fleet.register("t1", "t2")
    fleet.core.routes.set_writable(KEY, False)
    if absence == "left":
        fleet.word.unregister(KEY, A.addr, 0, stream=1, now=fleet.now)
    elif absence == "cut off":
        fleet.end()
    fleet.wait(130)
    assert KEY not in fleet.core.routes.groups
    assert KEY in fleet.core.overrides.wipes
    assert fleet.register("t1", "t2")[-1] == "PERM_CHANGED"
    assert KEY not in fleet.core.overrides.wipes


def test_a_wipe_outlives_an_eviction_and_restarts_of_the_name_server(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2")
    old = fleet.core.registration_of(A)
    assert old is not None
    fleet.register("t1", "t2", counter=2)
    fleet.core.routes.set_writable(KEY, False)
    fleet.core.evict(*A.position, now=fleet.now, detail={})
    assert "PERM_CHANGED" not in fleet.register("t1", "t2", counter=2)
    later = AdditiveFleet()
    assert restore(later.core, settings_of(fleet.core), now=later.now) == {}
    later.core.restore(old, 7, now=later.now)  # a snapshot that is older than the wipe
    assert later.beat() == ["REREGISTERED"]
    assert later.register("t1", "t2", counter=2) == ["TOPICS"]
    assert later.core.routes.route("t1").queues[0][1].perm == 4
    cold = AdditiveFleet()
    restore(cold.core, settings_of(fleet.core), now=cold.now)
    assert cold.register("t1", "t2", counter=2) == ["REGISTERED", "TOPICS"]
    assert cold.core.routes.route("t1").queues[0][1].perm == 4
    assert cold.register("t1", "t2", counter=3) == ["TOPICS", "PERM_CHANGED"]


def test_a_wipe_of_a_name_without_a_master_ends_when_one_registers(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2", who=SLAVE)
    fleet.core.routes.set_writable(KEY, False)
    assert fleet.register("t1", "t2")[-1] == "PERM_CHANGED"


def test_a_wipe_goes_from_a_broker_to_its_agent_and_back(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2")
    fleet.core.routes.set_writable(KEY, False)
    agents(fleet, incarnation="run1")
    assert fleet.core.overrides.wipes == {KEY: "run1"}
    for _ in range(5):  # the agent is silent; the broker itself registers
        fleet.now += 30
        fleet.register("t1", "t2", counter=8)
    assert fleet.core.registration_of(A) is not None
    assert KEY in fleet.core.overrides.wipes
    assert fleet.register("t1", "t2", counter=9)[-1] == "PERM_CHANGED"


def test_the_agent_of_the_next_process_ends_a_wipe(fleet: AdditiveFleet) -> None:
    agents(fleet, incarnation="run1")
    fleet.core.routes.set_writable(KEY, False)
    agents(fleet, incarnation="run2")
    assert KEY not in fleet.core.overrides.wipes


def test_a_slave_ends_no_wipe(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2")
    fleet.core.routes.set_writable(KEY, False)
    fleet.register("t1", "t2", who=SLAVE)
    fleet.register("t1", "t2", "t3", who=SLAVE, counter=2)
    assert KEY in fleet.core.overrides.wipes


def test_a_deleted_topic_stays_hidden_until_a_broker_registers_it_again(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2")
    fleet.register("t1", "t2", who=SLAVE)
    assert fleet.delete("t1") == ["TOPICS", "TOPICS", "TOPIC_DELETED"]
    with pytest.raises(TopicNotFound):
        fleet.core.routes.route("t1")
    assert fleet.register("t1", "t2") == []
    assert fleet.register("t1", "t2", who=SLAVE) == []
    assert set(fleet.topics()) == set(fleet.topics(SLAVE)) == {"t2"}
    fleet.register("t2", "t3", counter=2)
    with pytest.raises(TopicNotFound):
        fleet.core.routes.route("t1")
    assert not fleet.core.overrides.tombstones
    with pytest.raises(TopicNotFound):
        fleet.delete("t1")
    with pytest.raises(TopicNotFound):
        fleet.delete("t2", "other")
    fleet.register("t1", "t2", counter=3)
    assert fleet.core.routes.route("t1").queues
    fleet.core.check_invariants()


def test_a_topic_of_an_absent_broker_is_deleted_until_its_next_version(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2", "t3")
    fleet.end()
    fleet.wait(130)
    assert fleet.delete("t1") == ["TOPIC_DELETED"]
    fleet.register("t1", "t2", "t3")
    assert set(fleet.topics()) == {"t2", "t3"}
    fleet.register("t1", "t2", "t3", counter=2)
    assert set(fleet.topics()) == {"t1", "t2", "t3"}


def test_a_deletion_holds_against_a_snapshot_that_was_written_before_it(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2")
    registration = fleet.core.registration_of(A)
    assert registration is not None
    fleet.delete("t1")
    later = AdditiveFleet()
    assert restore(later.core, settings_of(fleet.core), now=later.now) == {}
    later.core.restore(registration, 7, now=later.now)
    later.register("t2", "t3", counter=2)
    assert set(later.topics()) == {"t2", "t3"}


def test_a_topic_that_a_broker_names_alone_is_not_deleted_any_longer(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2", "t3")
    fleet.delete("t1")
    fleet.delete("t3")
    assert kinds(fleet.word.add_topic(A.broker_name, "t1", QueueConfig(*EIGHT), now=fleet.now)) == ["TOPICS"]
    assert fleet.core.routes.route("t1").queues
    assert set(fleet.core.overrides.tombstones[KEY]) == {"t3"}
    fleet.word.add_topic(A.broker_name, "t3", QueueConfig(*EIGHT), now=fleet.now)
    assert not fleet.core.overrides.tombstones
    fleet.core.check_invariants()


def test_one_topic_may_be_given_to_a_known_name(fleet: AdditiveFleet) -> None:
    assert fleet.word.add_topic(A.broker_name, "t9", QueueConfig(4, 4, 6), now=fleet.now) == ()
    fleet.register("t1", "t2")
    assert kinds(fleet.word.add_topic(A.broker_name, "t9", QueueConfig(4, 4, 6), now=fleet.now)) == ["TOPICS"]
    assert fleet.word.add_topic(A.broker_name, "t9", QueueConfig(4, 4, 6), now=fleet.now) == ()
    assert fleet.topics()["t9"] == (4, 4, 6, 0, 1)
    with pytest.raises(InvalidRequest):
        fleet.word.add_topic(A.broker_name, "not a name", QueueConfig(4, 4, 6), now=fleet.now)


def test_the_held_version_is_known_by_address(fleet: AdditiveFleet) -> None:
    assert fleet.word.held_version(KEY, A.addr) is None
    fleet.register("t1", "t2", counter=4)
    assert fleet.word.held_version(KEY, A.addr) == DataVersion(0, 1_004, 4)
    assert fleet.word.held_version(KEY, "10.0.0.9:1") is None
    assert fleet.end(who=SLAVE) == []


def test_what_changed_while_a_registration_was_read_is_kept(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2")
    incoming = fleet.word.begin(A)
    incoming.add({"t1": (4, 4, 6, 0, 1), "t3": EIGHT})
    fleet.register("t4", counter=2)
    claim = Claim(identity=A, data_version=DataVersion(0, 1_003, 3))
    fleet.word.register(claim, incoming, stream=1, now=fleet.now)
    assert fleet.topics() == {"t1": (4, 4, 6, 0, 1), "t2": EIGHT, "t3": EIGHT, "t4": EIGHT}


def test_a_registration_is_one_heartbeat(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2")
    fleet.now += 30
    fleet.register("t3", counter=2)
    assert fleet.core.routes.groups[KEY].replicas[0].punctuality.count == 1


def test_a_bad_topic_does_not_affect_others(fleet: AdditiveFleet) -> None:
    incoming = fleet.word.begin(A)
    retry = "%RETRY%" + "g" * 255
    incoming.add(
        {"good": EIGHT, "bad name": EIGHT, "%RETRY%g+topic": EIGHT, retry: EIGHT, "many": (70_000, 8, 6, 0, 1)}
    )
    fleet.word.register(Claim(identity=A), incoming, stream=1, now=fleet.now)
    assert set(fleet.topics()) == {"good", "%RETRY%g+topic", retry}
    assert incoming.bad_topics == 2
    assert "bad name" in incoming.first_bad


def test_bounds_hold(fleet: AdditiveFleet) -> None:
    small = AdditiveFleet(max_topics=3)
    small.register("t1", "t2")
    with pytest.raises(LimitExceeded):
        small.register("t3", "t4", counter=2)
    assert set(small.topics()) == {"t1", "t2"}
    with pytest.raises(LimitExceeded):
        small.register("t1", "t2", "t3", "t4", who=SLAVE)
    with pytest.raises(InvalidRequest):
        fleet.register("t1", "t2", who=A._replace(addr="nowhere"))
    with pytest.raises(InvalidRequest):
        fleet.register("t1", "t2", who=A._replace(broker_id=-1))


def test_bounds_of_the_node_hold_and_renewals_always_pass() -> None:
    small = AdditiveFleet(max_brokers=2)
    small.core.register(Registration(identity=B, topics={}), now=small.now, peer="an agent")
    small.register("t1", "t2")
    with pytest.raises(LimitExceeded, match="at most 2 brokers"):
        small.register("t1", "t2", who=SLAVE)
    assert small.register("t1", "t2") == []
    few = AdditiveFleet(of_node=3)
    few.register("t1", "t2")
    with pytest.raises(LimitExceeded, match="at most 3 topics, not 4"):
        few.register("t3", "t4", counter=2)
    with pytest.raises(LimitExceeded, match="at most 3 topics, not 4"):
        few.register("t1", "t2", who=SLAVE)
    assert few.register("t1", "t2") == []
    few.core.check_invariants()


def test_a_broker_is_counted_with_the_connection_that_it_came_over_last() -> None:
    small = AdditiveFleet(max_brokers=10)
    for i in range(6):
        small.register("t1", "t2", who=A._replace(broker_name=f"b{i}"), stream=1)
    for i in range(6):
        small.register("t1", "t2", who=A._replace(broker_name=f"b{i}"), stream=2)
    for i in range(4):
        small.register("t1", "t2", who=A._replace(broker_name=f"c{i}"), stream=3)
    with pytest.raises(LimitExceeded):
        small.register("t1", "t2", who=A._replace(broker_name="d"), stream=2)
    small.register("t1", "t2", who=A._replace(broker_name="d"), stream=1)
    small.core.check_invariants()


def test_topics_of_lost_brokers_make_room_for_a_registration() -> None:
    few = AdditiveFleet(of_node=4)
    few.register("t1", "t2", "t3")
    few.end()
    few.wait(130)
    assert few.core.routes.known("t1")
    few.register("u1", "u2", who=B)
    assert not few.core.routes.known("t1")
    few.core.check_invariants()


def test_a_lower_claim_from_another_address_is_refused(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2")
    held = fleet.core.routes.groups[KEY].replicas[0]
    held.registration = replace(held.registration, data_version=DataVersion(3, 1, 1))
    with pytest.raises(IdentityHeld):
        fleet.register("t1", "t2", who=A._replace(addr="10.0.0.9:10911"))


# --- together with an agent -------------------------------------------------------------------------------------------


def agents(fleet: AdditiveFleet, **facts: object) -> None:
    registration = Registration(identity=A, topics={"agents": QueueConfig(*EIGHT)}, data_version=DataVersion(0, 7, 7))
    fleet.core.register(replace(registration, **facts), now=fleet.now)  # type: ignore[arg-type]  # a test's own


def test_frames_of_a_broker_with_an_agent_are_only_heartbeats(fleet: AdditiveFleet) -> None:
    agents(fleet)
    fleet.now += 100
    assert fleet.wait(0.1) == ["SUSPECTED"]
    assert fleet.register("t1", "t2") == ["RECOVERED"]
    with pytest.raises(NotUnregistered, match="its agent holds the registration"):
        fleet.word.unregister(KEY, A.addr, 0, stream=1, now=fleet.now)
    assert fleet.end() == []
    assert fleet.topics() == {"agents": EIGHT}


def test_frames_of_a_broker_do_not_clear_a_failed_probe_of_its_agent(fleet: AdditiveFleet) -> None:
    refused = Health(ProbeVerdict.FAILING, "LOADING", Evidence.STRONG)
    agents(fleet, health=refused)
    assert fleet.phase() is Phase.OUT
    assert fleet.register("t1", "t2") == []
    assert fleet.beat() == []
    assert fleet.phase() is Phase.OUT


def test_a_broker_whose_agent_is_silent_for_an_expiry_registers_itself(fleet: AdditiveFleet) -> None:
    agents(fleet)
    for _ in range(4):
        fleet.now += 30
        assert fleet.register("t1", "t2") == []
    fleet.now += 30
    assert fleet.register("t1", "t2", counter=8) == ["REREGISTERED", "TOPICS"]
    assert set(fleet.topics()) == {"t1", "t2", "agents"}


def test_an_agent_takes_over_from_its_broker(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2")
    agents(fleet)
    assert fleet.topics() == {"agents": EIGHT}
    assert fleet.register("t1", "t2", counter=2) == []
    assert fleet.topics() == {"agents": EIGHT}


def test_a_position_that_an_agent_holds_at_another_address_is_refused(fleet: AdditiveFleet) -> None:
    agents(fleet)
    with pytest.raises(HeldByAgent, match=r"10\.0\.0\.1:10911"):
        fleet.register("t1", "t2", who=A._replace(addr="10.0.0.9:10911"))


def test_a_topic_of_an_agent_is_hidden_by_a_deletion(fleet: AdditiveFleet) -> None:
    agents(fleet)
    assert fleet.delete("agents", "c1") == ["TOPIC_DELETED"]
    with pytest.raises(TopicNotFound):
        fleet.core.routes.route("agents")
    assert fleet.topics() == {"agents": EIGHT}


def test_a_registration_is_restored_from_a_snapshot_with_its_source(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2", acting_master=True)
    registration = fleet.core.registration_of(A)
    assert registration is not None
    content = encode_broker(registration, 7, Health())
    assert decode_broker(content, bounds=IntervalBounds(), max_topics=10) == (registration, 7)
    later = AdditiveFleet()
    later.core.restore(registration, 7, now=later.now)
    assert later.phase() is Phase.PROVISIONAL
    assert later.register("t1", "t2", acting_master=True) == ["REREGISTERED"]
    assert later.phase() is Phase.UP
    assert GroupKey("c1", A.broker_name) in later.core.routes.groups
