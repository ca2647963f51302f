"""Registrations of one address: which of them end, which stay as a conflict, and what each side learns of the other."""

from __future__ import annotations

from typing import Any

import pytest

from pointsman_namesrv.core.additive import AdditiveRegistrations, Claim
from pointsman_namesrv.core.addresses import MAX_COMPARED, MAX_NAMED
from pointsman_namesrv.core.broker_responses import BeatAnswer, BeatStatus
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.guard import GuardRules
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, QueueConfig, Reason, Registration
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.node_refusals import LimitExceeded
from pointsman_namesrv.core.replica_state import Phase
from pointsman_namesrv.core.request_rules import IntervalBounds

ADDR = "10.0.0.1:6379"
OLD = BrokerIdentity("home", "broker-b", 0, ADDR)
RENAMED = BrokerIdentity("home", "broker-new", 0, ADDR)
MOVED = BrokerIdentity("west", "broker-b", 0, ADDR)
ORDERS = {"orders": QueueConfig(4, 4, 6)}
VERSION = DataVersion(0, 0, 1)
START = 1_000.0


def register(
    core: NameServer, identity: BrokerIdentity, *, now: float = START, incarnation: str = "", host: str = ""
) -> int:
    registration = Registration(
        identity=identity, topics=ORDERS, data_version=VERSION, incarnation=incarnation, host=host
    )
    return core.register(registration, now=now).generation


def beat(
    core: NameServer, identity: BrokerIdentity, generation: int, *, now: float, hand_over: bool = False, stream: int = 1
) -> BeatAnswer:
    return core.beat(identity, generation, data_version=VERSION, now=now, hand_over=hand_over, stream=stream)


def registered(core: NameServer) -> list[BrokerIdentity]:
    return [replica.identity for _, replica in core.replicas()]


def rows(events: tuple[Event, ...]) -> list[tuple[EventKind, str, Reason | None]]:
    return [
        (event.kind, event.broker.identity.broker_name, event.reason)
        for event in events
        if event.broker is not None and event.kind not in {EventKind.TOPICS, EventKind.HEARTBEATS}
    ]


@pytest.mark.parametrize("other", [RENAMED, MOVED], ids=["renamed", "moved"])
@pytest.mark.parametrize("lost_by", ["hand over", "broken stream", "silence", "snapshot"])
def test_a_registration_that_is_not_heard_ends_when_another_identity_registers_its_address(
    core: NameServer, other: BrokerIdentity, lost_by: str
) -> None:
    now = START
    if lost_by == "snapshot":
        core.restore(Registration(identity=OLD, topics=ORDERS), 5, now=now)
    else:
        generation = register(core, OLD)
        beat(core, OLD, generation, now=now, hand_over=lost_by == "hand over")
    if lost_by == "broken stream":
        core.end_stream(OLD, generation, stream=1, now=now)
    if lost_by == "silence":
        now += 75.5
    answer = core.register(Registration(identity=other, topics=ORDERS), now=now)
    assert registered(core) == [other]
    assert answer.superseded == (OLD,)
    assert rows(answer.events) == [
        (EventKind.UNREGISTERED, "broker-b", Reason.SUPERSEDED),
        (EventKind.REGISTERED, other.broker_name, None),
    ]
    ended = next(event for event in answer.events if event.kind is EventKind.UNREGISTERED)
    assert ended.broker is not None
    assert (ended.broker.state.phase, ended.broker.state.planned) == (Phase.GONE, True)
    assert ended.detail["superseded_by"] == str(other.position)
    begun = next(event for event in answer.events if event.kind is EventKind.REGISTERED)
    assert begun.detail["supersedes"] == [str(OLD.position)]
    assert [key.broker_name for key, _ in core.routes.route("orders").queues] == [other.broker_name]
    assert core.departed.all() == []


def test_two_that_are_both_heard_stay_and_each_learns_of_the_other(core: NameServer) -> None:
    old = register(core, OLD)
    answer = core.register(Registration(identity=MOVED, topics=ORDERS, data_version=VERSION), now=START + 10)
    conflicts = [event for event in answer.events if event.kind is EventKind.ADDRESS_CONFLICT]
    named = {event.broker.identity: event.detail["also_at_addr"] for event in conflicts if event.broker is not None}
    assert named == {OLD: [str(MOVED.position)], MOVED: [str(OLD.position)]}
    assert answer.view.also_at_addr == (OLD,)
    assert beat(core, OLD, old, now=START + 20).view.also_at_addr == (MOVED,)
    assert list(core.addresses.shared) == [ADDR]
    assert len(core.routes.route("orders").queues) == 2

    again = core.register(Registration(identity=MOVED, topics={}, data_version=VERSION), now=START + 25)
    assert EventKind.ADDRESS_CONFLICT not in {event.kind for event in again.events}, "a conflict is one row for each"

    core.unregister(MOVED, again.generation, reason=Reason.SHUTDOWN, now=START + 30)
    assert beat(core, OLD, old, now=START + 31).view.also_at_addr == ()
    assert list(core.addresses.shared) == []


@pytest.mark.parametrize("lost_by", ["hand over", "broken stream", "silence"])
def test_a_conflict_ends_as_soon_as_one_of_the_two_is_no_longer_heard(core: NameServer, lost_by: str) -> None:
    old, new = register(core, OLD), register(core, RENAMED)
    beat(core, OLD, old, now=START)
    beat(core, RENAMED, new, now=START + 30, stream=2)
    assert len(registered(core)) == 2
    if lost_by == "hand over":
        answer = beat(core, OLD, old, now=START + 30, hand_over=True)
        assert answer.status is BeatStatus.OK
        events = answer.events
    elif lost_by == "broken stream":
        events = core.end_stream(OLD, old, stream=1, now=START + 30)
    else:
        beat(core, RENAMED, new, now=START + 60, stream=2)
        assert core.sweep(now=START + 75.0) == ()
        events = core.sweep(now=START + 75.5)
    assert rows(events) == [(EventKind.UNREGISTERED, "broker-b", Reason.SUPERSEDED)]
    assert registered(core) == [RENAMED]


def test_two_that_are_both_not_heard_are_judged_by_silence_until_one_of_them_returns(core: NameServer) -> None:
    """Their name server was cut off: it cannot know which of the two still runs."""
    old, new = register(core, OLD), register(core, RENAMED)
    events = core.sweep(now=START + 80)
    assert rows(events) == [
        (EventKind.SUSPECTED, "broker-b", Reason.SILENCE),
        (EventKind.SUSPECTED, "broker-new", Reason.SILENCE),
    ]
    events = beat(core, RENAMED, new, now=START + 81).events
    assert rows(events) == [
        (EventKind.RECOVERED, "broker-new", Reason.HEARTBEAT),
        (EventKind.UNREGISTERED, "broker-b", Reason.SUPERSEDED),
    ]
    assert beat(core, OLD, old, now=START + 82).status is BeatStatus.UNKNOWN_BROKER


@pytest.mark.parametrize(
    ("own", "other", "stays"),
    [
        ({"incarnation": "run 1"}, {"incarnation": "run 2"}, True),
        ({"incarnation": "run 1"}, {"incarnation": "run 1"}, False),
        ({"host": "m1"}, {"host": "m2"}, True),
        ({"host": "m1"}, {"host": "m1"}, False),
        ({"host": "m1", "incarnation": "run 1"}, {"host": "m2", "incarnation": "run 1"}, False),
        ({"host": "m1"}, {}, False),
        ({}, {}, False),
    ],
)
def test_two_brokers_that_were_heard_beside_each_other_are_judged_each_by_itself(
    core: NameServer, own: dict[str, Any], other: dict[str, Any], stays: bool
) -> None:
    """Private networks overlap: an upgrade of one agent, or its crash, is what it would be without the other broker."""
    old, new = register(core, OLD, **own), register(core, MOVED, **other)
    for after in (30, 60, 90):
        beat(core, OLD, old, now=START + after)
        beat(core, MOVED, new, now=START + after, stream=2)
    events = core.end_stream(OLD, old, stream=1, now=START + 91)
    if stays:
        assert rows(events) == [(EventKind.SUSPECTED, "broker-b", Reason.STREAM_BROKEN)]
        assert beat(core, OLD, old, now=START + 92, hand_over=True).status is BeatStatus.OK
        assert len(registered(core)) == 2
    else:
        assert rows(events) == [(EventKind.UNREGISTERED, "broker-b", Reason.SUPERSEDED)]


def test_the_guard_keeps_a_cluster_whose_network_overlaps_with_another_one() -> None:
    core = NameServer(
        rules=LivenessRules(), guard_rules=GuardRules(at_least=3, share=0.5), first_generation=7, started_at=0.0
    )
    home = [BrokerIdentity("home", f"b{number}", 0, f"10.0.0.{number}:6379") for number in range(4)]
    west = [who._replace(cluster="west") for who in home]
    generations = {who: register(core, who, host=f"{who.cluster} {who.addr}") for who in [*home, *west]}
    for after in range(30, 181, 30):
        for who in [*home, *west]:
            beat(core, who, generations[who], now=START + after)
    for after in range(210, 421, 30):  # the network to `home` is cut
        for who in west:
            beat(core, who, generations[who], now=START + after)
        core.sweep(now=START + after)
    states = {replica.identity: replica.state.phase for _, replica in core.replicas()}
    assert states == {who: Phase.PROTECTED if who in home else Phase.UP for who in [*home, *west]}
    core.check_invariants()


def test_brokers_of_one_host_with_different_ports_do_not_concern_each_other(core: NameServer) -> None:
    """As in RocketMQ's container."""
    wire = AdditiveRegistrations(
        core, bounds=IntervalBounds(min_heartbeat_interval=1, max_heartbeat_interval=60, max_expiry=600), max_topics=100
    )
    for number, port in enumerate((10911, 20911, 30911)):
        claim = Claim(identity=BrokerIdentity("DefaultCluster", f"broker-{number}", 0, f"10.0.0.1:{port}"))
        incoming = wire.begin(claim.identity)
        incoming.add({"TopicTest": (4, 4, 6, 0, 1), f"topic-{number}": (4, 4, 6, 0, 1)})
        events = wire.register(claim, incoming, stream=number, now=START).events
        assert EventKind.ADDRESS_CONFLICT not in {event.kind for event in events}
    core.end_stream(registered(core)[0], core.replicas()[0][1].generation, stream=0, now=START + 1)
    assert len(registered(core)) == 3
    assert list(core.addresses.shared) == []


@pytest.mark.parametrize("other", [RENAMED, MOVED], ids=["renamed", "moved"])
def test_a_rocketmq_broker_that_returns_under_another_name_ends_the_earlier_one(
    core: NameServer, other: BrokerIdentity
) -> None:
    wire = AdditiveRegistrations(
        core, bounds=IntervalBounds(min_heartbeat_interval=1, max_heartbeat_interval=60, max_expiry=600), max_topics=100
    )

    def claim(identity: BrokerIdentity, stream: int, *, now: float) -> None:
        incoming = wire.begin(identity)
        incoming.add({"TopicTest": (4, 4, 6, 0, 1), "orders": (4, 4, 6, 0, 1)})
        wire.register(Claim(identity=identity), incoming, stream=stream, now=now)

    claim(OLD, 1, now=START)
    core.end_stream(OLD, core.replicas()[0][1].generation, stream=1, now=START + 5)
    assert registered(core) == [OLD]
    claim(other, 2, now=START + 6)
    assert registered(core) == [other]


def test_frames_of_the_broker_itself_show_that_it_is_heard(core: NameServer) -> None:
    """Its agent was renamed, its own configuration was not: both names are in use, which is a conflict."""
    old = register(core, OLD)
    beat(core, OLD, old, now=START, hand_over=True)
    core.vouch(OLD, now=START + 1)
    answer = core.register(Registration(identity=RENAMED, topics=ORDERS), now=START + 2)
    assert (answer.superseded, answer.view.also_at_addr) == ((), (OLD,))


def test_brokers_that_shared_an_address_in_the_snapshot_are_both_restored_and_have_the_time_of_two_heartbeats(
    core: NameServer,
) -> None:
    """After a restart, a name server serves what it has not heard of yet."""
    for number, identity in enumerate((OLD, MOVED)):
        core.restore(Registration(identity=identity, topics=ORDERS, data_version=VERSION), 5 + number, now=START)
    assert rows(beat(core, MOVED, 6, now=START + 1).events) == [
        (EventKind.REREGISTERED, "broker-b", Reason.SNAPSHOT),
    ]
    register(core, RENAMED, now=START + 2)
    assert registered(core) == [OLD, RENAMED, MOVED]
    for after in (30, 60):
        beat(core, MOVED, 6, now=START + after)
        core.sweep(now=START + after)
    assert OLD in registered(core)
    core.sweep(now=START + 75.5)
    assert OLD not in registered(core)


def test_one_process_under_two_names_in_the_snapshot_keeps_the_name_that_is_heard(core: NameServer) -> None:
    """The snapshot was written in the moment of the rename."""
    for number, identity in enumerate((OLD, RENAMED)):
        registration = Registration(identity=identity, topics=ORDERS, data_version=VERSION, incarnation="run 1")
        core.restore(registration, 5 + number, now=START)
    beat(core, RENAMED, 6, now=START + 1)
    assert registered(core) == [RENAMED]


def test_a_rename_fits_into_a_full_name_server() -> None:
    core = NameServer(rules=LivenessRules(), first_generation=7, started_at=0.0, max_brokers=1)
    old = register(core, OLD)
    with pytest.raises(LimitExceeded):
        register(core, RENAMED)
    beat(core, OLD, old, now=START, hand_over=True)
    register(core, RENAMED)
    assert registered(core) == [RENAMED]
    core.check_invariants()


def test_a_name_that_moves_to_another_address_leaves_no_conflict_behind(core: NameServer) -> None:
    register(core, OLD)
    register(core, MOVED)
    register(core, OLD._replace(addr="10.0.0.9:6379"))
    assert list(core.addresses.shared) == []


def test_thousands_of_agents_left_at_one_address_name_a_few_others_each_and_are_compared_by_sweeps_alone(
    core: NameServer,
) -> None:
    everyone = [BrokerIdentity("home", f"b{number}", 0, ADDR) for number in range(3_000)]
    generations = [register(core, who, host=f"host {number}") for number, who in enumerate(everyone)]
    answers = [
        beat(core, who, generation, now=START + 30) for who, generation in zip(everyone, generations, strict=True)
    ]
    assert {len(answer.view.also_at_addr) for answer in answers} == {MAX_NAMED}
    handed_over = beat(core, everyone[7], generations[7], now=START + 31, hand_over=True)
    assert handed_over.events == ()
    assert [
        event.detail["superseded_by"] for event in core.sweep(now=START + 35) if event.kind is EventKind.UNREGISTERED
    ]
    assert len(everyone) > MAX_COMPARED
