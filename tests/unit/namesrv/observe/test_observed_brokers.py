"""The tables of an observed name server, fed with the events of its watches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pointsman_namesrv.core.events import BrokerFacts, Event, EventKind, TopicsPayload
from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, Position, QueueConfig
from pointsman_namesrv.core.replica_state import UP
from pointsman_namesrv.observe.fleet_view import FleetView, Listed
from pointsman_namesrv.observe.observed_brokers import ObservedBrokers
from pointsman_namesrv.observe.polled_events import Watch

A, B, SLAVE = Position("c", "a", 0), Position("c", "b", 0), Position("c", "a", 1)
FOUR = QueueConfig(4, 4, 6)
POSITIONS = [Position("c", name, number) for name in "ab" for number in (0, 1)]


def view(*positions: Position, port: int = 1) -> FleetView:
    return FleetView({each: Listed(f"{each.broker_name}-{each.broker_id}:{port}", "z") for each in positions})


def topics_event(position: Position, payload: TopicsPayload, version: int = 1) -> Event:
    identity = BrokerIdentity(*position, f"{position.broker_name}-{position.broker_id}:1")
    facts = BrokerFacts(identity, None, None, "z", "", "", DataVersion(counter=version), UP, None)
    return Event(kind=EventKind.TOPICS, broker=facts, topics=payload)


def listed(brokers: ObservedBrokers) -> set[Position]:
    return {replica.identity.position for _, replica in brokers.members()}


def route(brokers: ObservedBrokers, topic: str) -> list[tuple[str, QueueConfig, list[str]]]:
    found = brokers.routes.current(topic)
    addrs = {group.key: [replica.identity.addr for replica in group.routed()] for group in found.groups}
    return [(str(key), queues, addrs[key]) for key, queues in found.queues]


def test_what_a_watch_records_is_in_the_tables() -> None:
    brokers, watch = ObservedBrokers(), Watch({})
    brokers.apply(watch.answered(view(A, SLAVE), now=1), now=1)
    assert listed(brokers) == {A, SLAVE}
    assert {replica.state_since for _, replica in brokers.members()} == {None}, "since before the watch"

    brokers.apply(watch.answered(view(A, SLAVE, B), now=2), now=2)
    assert [replica.state_since for _, replica in brokers.replicas(broker_name="b")] == [2.0]

    watch.answered(view(A, SLAVE), now=3)
    brokers.apply(watch.answered(view(A, SLAVE), now=4), now=4)
    assert listed(brokers) == {A, SLAVE}
    lost = brokers.departed.get(B)
    assert lost is not None
    assert (lost.reason, lost.at) == (None, 4.0), "polling does not show the reason"
    score = brokers.penalties.score(B, now=4)
    assert score is not None
    assert (score.penalty, score.outages) == (1_000.0, 1)


def test_a_broker_that_takes_the_place_of_another_is_not_an_outage() -> None:
    brokers, watch = ObservedBrokers(), Watch({})
    brokers.apply(watch.answered(view(SLAVE), now=1), now=1)
    moved = FleetView({A: Listed("a-1:1", "z")})
    brokers.apply(watch.answered(moved, now=2), now=2)

    assert listed(brokers) == {A}
    assert brokers.departed.get(SLAVE) is None
    assert brokers.penalties.score(SLAVE, now=2) is None


def test_topics_belong_to_all_replicas_of_a_broker_name_and_return_with_it() -> None:
    brokers, watch = ObservedBrokers(), Watch({})
    brokers.apply(watch.answered(view(A, SLAVE), now=1), now=1)
    brokers.apply([topics_event(A, TopicsPayload({"orders": FOUR, "old": FOUR}))], now=1)
    change = TopicsPayload({"new": FOUR}, ("old",), DataVersion(counter=1))
    brokers.apply([topics_event(A, change, 2)], now=2)

    assert brokers.topic_names() == ["new", "orders"]
    assert route(brokers, "orders") == [("c/a", FOUR, ["a-0:1", "a-1:1"])]
    watch.answered(view(SLAVE), now=3)
    brokers.apply(watch.answered(view(SLAVE), now=4), now=4)
    read_only = FOUR.read_only()
    assert route(brokers, "orders") == [("c/a", read_only, ["a-1:1"])], "without a master it cannot be written"

    watch.answered(view(), now=5)
    brokers.apply(watch.answered(view(), now=6), now=6)
    assert brokers.topic_names() == []
    brokers.apply(watch.answered(view(A), now=7), now=7)
    assert route(brokers, "new") == [("c/a", FOUR, ["a-0:1"])]


def test_what_is_remembered_has_its_time() -> None:
    brokers, watch = ObservedBrokers(), Watch({})
    brokers.apply(watch.answered(view(A), now=1), now=1)
    for now in (2, 3):
        brokers.apply(watch.answered(view(), now=now), now=now)
    brokers.sweep(now=3 + 29 * 86_400)
    assert len(brokers.departed) == 1
    brokers.sweep(now=3 + 31 * 86_400)
    assert len(brokers.departed) == 0


@given(st.lists(st.tuples(st.sets(st.sampled_from(POSITIONS)), st.integers(1, 2)), max_size=12))
def test_the_tables_are_always_what_the_watch_knows(views: list[tuple[set[Position], int]]) -> None:
    brokers, watch = ObservedBrokers(), Watch({})
    for now, (positions, port) in enumerate(views):
        brokers.apply(watch.answered(view(*sorted(positions), port=port), now=now), now=now)
        known = watch.known if watch.is_ready else {}
        addrs = {replica.identity.position: replica.identity.addr for _, replica in brokers.members()}
        assert addrs == {position: each.addr for position, each in known.items()}
        brokers.routes.check_invariants()
        replicas = [replica for _, replica in brokers.members()]
        brokers.held.check_invariants(replicas)
        brokers.addresses.check_invariants(replicas)
