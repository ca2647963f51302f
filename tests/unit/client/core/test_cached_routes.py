"""The route cache: what counts as a change, what a failure keeps, and which topic is evicted."""

from __future__ import annotations

import copy

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman_client import Revision, RouteChange, TopicRoute
from pointsman_client.core.cached_routes import RouteTable
from pointsman_client.pointsman_grpc.codec import to_topic_route
from tests.kit.name_server import scripted_routes as fake


def route(topic: str = "orders", *, write: int = 4) -> TopicRoute:
    return to_topic_route(fake.topic_route(topic, write=write))


def full_route() -> route_service_pb2.TopicRoute:
    message = fake.topic_route(groups=[fake.broker_data(replicas={0: "10.0.0.1:1", 1: "10.0.0.2:1"}, zone="z")])
    message.order_topic_conf = "broker-a:4"
    message.broker_datas[0].replicas[0].filter_servers.append("10.0.0.9:1")
    return fake.with_digest(message)


def one_field_changed(message: Message) -> list[tuple[str, Message]]:
    """Return copies of the message, each with one scalar field at any depth changed."""
    changed: list[tuple[str, Message]] = []
    for field in message.DESCRIPTOR.fields:
        if field.name in {"revision", "topic"}:
            continue
        value = getattr(message, field.name)
        if field.message_type is not None:
            for position, inner in enumerate(value):
                for path, replacement in one_field_changed(inner):
                    whole = copy.deepcopy(message)
                    getattr(whole, field.name)[position].CopyFrom(replacement)
                    changed.append((f"{field.name}.{path}", whole))
            continue
        whole = copy.deepcopy(message)
        if field.is_repeated:
            getattr(whole, field.name).append("10.0.0.8:1")
        elif field.type == FieldDescriptor.TYPE_STRING:
            setattr(whole, field.name, f"{value}x")
        elif field.type == FieldDescriptor.TYPE_BOOL:
            setattr(whole, field.name, not value)
        else:
            setattr(whole, field.name, value + 2)
        changed.append((field.name, whole))
    return changed


CHANGED = one_field_changed(full_route())


@pytest.mark.parametrize("message", [m for _, m in CHANGED], ids=[path for path, _ in CHANGED])
@pytest.mark.parametrize("has_digest", [True, False], ids=["digest", "content"])
def test_a_change_in_any_field_is_seen(message: route_service_pb2.TopicRoute, has_digest: bool) -> None:
    assert len(CHANGED) > 14
    before, after = full_route(), fake.with_digest(message)
    if not has_digest:
        before.revision.digest = after.revision.digest = b""
    table = RouteTable(10)
    table.accept(to_topic_route(before), now=0.0)

    assert table.accept(to_topic_route(after), now=1.0) is not None


def test_a_digest_counts_more_than_the_fields_that_this_client_reads() -> None:
    table = RouteTable(10)
    table.accept(TopicRoute("T", Revision(1, 1, b"one"), (), ()), now=0.0)

    assert table.accept(TopicRoute("T", Revision(1, 2, b"two"), (), ()), now=0.0) is not None


def test_an_equal_digest_from_another_node_changes_nothing_and_confirms_the_route() -> None:
    table = RouteTable(10)
    table.accept(to_topic_route(fake.topic_route()), now=5.0)
    elsewhere = to_topic_route(fake.with_digest(fake.topic_route(), boot=99, counter=1_000))

    assert table.accept(elsewhere, now=35.0) is None
    cached = table.find("orders")
    assert cached is not None
    assert cached.confirmed_at == 35.0


def test_queues_are_made_once_as_long_as_the_route_stays_the_same() -> None:
    table = RouteTable(10)
    table.accept(route(), now=0.0)
    cached = table.use("orders")
    assert cached is not None
    queues = cached.publish_queues

    table.accept(route(), now=1.0)
    assert (again := table.use("orders")) is not None
    assert again.publish_queues is queues

    table.accept(route(write=1), now=2.0)
    assert (changed := table.use("orders")) is not None
    assert len(changed.publish_queues) == 1


def test_a_disputed_route_stays_marked_stale_with_its_age_until_it_is_found_again() -> None:
    table = RouteTable(10)
    known = route()
    table.accept(known, now=5.0)

    change = table.mark_stale("orders")
    assert change is not None
    assert change.new is not None
    assert (change.old, change.new.stale, change.new.queue_datas) == (known, True, known.queue_datas)
    assert (cached := table.find("orders")) is not None
    assert cached.confirmed_at == 5.0
    assert table.mark_stale("orders") is None

    assert table.accept(known, now=9.0) == RouteChange("orders", change.new, known)


def test_an_unknown_topic_cannot_become_stale() -> None:
    assert RouteTable(10).mark_stale("orders") is None


def test_the_least_recently_used_topic_is_evicted_and_a_poll_does_not_count_as_use() -> None:
    table = RouteTable(2)
    table.accept(route("a"), now=0.0)
    table.accept(route("b"), now=0.0)
    table.use("a")
    table.accept(route("b"), now=1.0)
    table.accept(route("c"), now=2.0)

    assert table.topics() == ["a", "c"]


def test_a_topic_that_is_watched_never_makes_room() -> None:
    table = RouteTable(1)
    table.accept(route("a"), now=0.0)
    table.accept(route("b"), now=0.0, keep={"a"})
    table.accept(route("c"), now=0.0, keep={"a"})

    assert table.topics() == ["a", "c"]


def test_a_state_from_a_newer_server_reads_as_unknown() -> None:
    message = fake.topic_route()
    message.broker_datas[0].replicas[0].state = broker_pb2.BrokerState.ValueType(99)

    assert to_topic_route(message).broker_datas[0].replicas[0].state == "UNKNOWN"


TOPICS = st.sampled_from("xyz")
GROUPS = st.dictionaries(
    st.sampled_from("ab"),
    st.dictionaries(st.integers(0, 2), st.sampled_from(["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"])),
)


def route_of(topic: str, groups: dict[str, dict[int, str]]) -> TopicRoute:
    return to_topic_route(fake.topic_route(topic, [fake.broker_data(name, ids) for name, ids in groups.items()]))


@given(steps=st.lists(st.tuples(TOPICS, st.one_of(st.none(), GROUPS)), max_size=20), room=st.integers(1, 3))
def test_groups_and_addresses_are_those_of_the_cached_routes(
    steps: list[tuple[str, dict[str, dict[int, str]] | None]], room: int
) -> None:
    table, before = RouteTable(room), set[str]()
    for topic, groups in steps:
        if groups is None:
            table.drop(topic)
        else:
            table.accept(route_of(topic, groups), now=0.0)
        cached = [table.find(topic) for topic in table.topics()]
        datas = [data for entry in cached if entry for data in entry.route.broker_datas]
        addrs = {replica.addr for data in datas for replica in data.replicas}

        assert table.take_removed_addrs() == tuple(sorted(before - addrs))
        before = addrs
        assert {data.broker_name for data in table.brokers_of("xyz")} == {data.broker_name for data in datas}
        for name in "ab":
            known = [data for data in datas if data.broker_name == name]
            found = table.brokers.groups.get(("DefaultCluster", name))
            assert (found is not None) == bool(known)
        if groups:
            for data in route_of(topic, groups).broker_datas:
                assert table.brokers.groups[data.key] == data


def test_a_topic_that_is_dropped_or_evicted_is_reported_once_as_dropped() -> None:
    table = RouteTable(1)
    table.accept(route_of("x", {}), now=0.0)
    table.accept(route_of("y", {}), now=0.0)
    change = table.drop("y")

    assert change is not None
    assert change.new is None
    assert table.take_dropped() == ("x", "y")
    assert table.take_dropped() == ()
    assert table.drop("y") is None


def test_a_moved_broker_has_its_new_address_and_not_the_old_one() -> None:
    table = RouteTable(10)
    table.accept(route_of("x", {"a": {0: "10.0.0.1:1"}}), now=0.0)
    table.accept(route_of("x", {"a": {0: "10.0.0.2:1"}}), now=1.0)

    found = table.brokers.groups.get(("DefaultCluster", "a"))
    assert found is not None
    assert found.master is not None
    assert found.master.addr == "10.0.0.2:1"
    assert table.take_removed_addrs() == ("10.0.0.1:1",)


def test_an_address_that_returns_before_its_loss_was_reported_is_not_lost() -> None:
    table = RouteTable(10)
    table.accept(route_of("x", {"a": {0: "10.0.0.1:1"}}), now=0.0)
    table.drop("x")
    table.accept(route_of("x", {"a": {0: "10.0.0.1:1"}}), now=1.0)

    assert table.take_removed_addrs() == ()
