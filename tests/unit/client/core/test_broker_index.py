"""The brokers of all cached routes, against a walk over the routes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pointsman_client import TopicRoute
from pointsman_client.core.cached_routes import RouteTable
from pointsman_client.pointsman_grpc.codec import to_topic_route
from tests.kit.name_server import scripted_routes as fake

TOPICS = st.sampled_from("xyz")
GROUPS = st.dictionaries(
    st.sampled_from("ab"),
    st.dictionaries(st.integers(0, 2), st.sampled_from(["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"])),
)


def route(topic: str, groups: dict[str, dict[int, str]]) -> TopicRoute:
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
            table.accept(route(topic, groups), now=0.0)
        cached = [table.find(topic) for topic in table.topics()]
        datas = [data for entry in cached if entry for data in entry.route.broker_datas]
        addrs = {replica.addr for data in datas for replica in data.replicas}

        assert table.take_removed_addrs() == tuple(sorted(before - addrs))
        before = addrs
        assert {data.broker_name for data in table.brokers_of("xyz")} == {data.broker_name for data in datas}
        for name in "ab":
            known = [data for data in datas if data.broker_name == name]
            found = table.brokers.find("DefaultCluster", name)
            assert (found is not None) == bool(known)
        if groups:
            for data in route(topic, groups).broker_datas:
                assert table.brokers.find(data.cluster, data.broker_name) == data


def test_a_topic_that_is_dropped_or_evicted_is_reported_once_as_dropped() -> None:
    table = RouteTable(1)
    table.accept(route("x", {}), now=0.0)
    table.accept(route("y", {}), now=0.0)
    change = table.drop("y")

    assert change is not None
    assert change.new is None
    assert table.take_dropped() == ("x", "y")
    assert table.take_dropped() == ()
    assert table.drop("y") is None


def test_a_moved_broker_has_its_new_address_and_not_the_old_one() -> None:
    table = RouteTable(10)
    table.accept(route("x", {"a": {0: "10.0.0.1:1"}}), now=0.0)
    table.accept(route("x", {"a": {0: "10.0.0.2:1"}}), now=1.0)

    found = table.brokers.find("DefaultCluster", "a")
    assert found is not None
    assert found.master is not None
    assert found.master.addr == "10.0.0.2:1"
    assert table.take_removed_addrs() == ("10.0.0.1:1",)


def test_an_address_that_returns_before_its_loss_was_reported_is_not_lost() -> None:
    table = RouteTable(10)
    table.accept(route("x", {"a": {0: "10.0.0.1:1"}}), now=0.0)
    table.drop("x")
    table.accept(route("x", {"a": {0: "10.0.0.1:1"}}), now=1.0)

    assert table.take_removed_addrs() == ()
