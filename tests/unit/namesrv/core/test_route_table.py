"""Large swaps: they apply immediately without a walk over the topics, and the index follows in slices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from pointsman_namesrv.core import route_table
from pointsman_namesrv.core.group import Group, Replica
from pointsman_namesrv.core.liveness import Pulse, Punctuality
from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, GroupKey, Health, QueueConfig, Registration
from pointsman_namesrv.core.node_refusals import TopicNotFound
from pointsman_namesrv.core.overrides import Overrides
from pointsman_namesrv.core.route_table import RouteTable
from pointsman_namesrv.core.staging import StagedTopics

MANY = 1_200
TOPICS_PER_STEP = 500
"""Most topics of a swap that is not large, here a tenth of the real limit."""
QUEUES = QueueConfig(4, 4, 6)
A, B = GroupKey("c1", "a"), GroupKey("c1", "b")


class CountingTable(dict[str, QueueConfig]):
    """A topic table that counts how many of its names were walked."""

    walked = 0

    def __iter__(self) -> Iterator[str]:
        for name in super().__iter__():
            self.walked += 1
            yield name


def many(first: int = 0, count: int = MANY, queues: QueueConfig = QUEUES) -> CountingTable:
    return CountingTable({f"t{number:05}": queues for number in range(first, first + count)})


@pytest.fixture
def routes(monkeypatch: pytest.MonkeyPatch) -> Iterator[RouteTable]:
    """An empty table whose invariants are checked at the end of every test."""
    monkeypatch.setattr(route_table, "TOPICS_PER_STEP", TOPICS_PER_STEP)
    table = RouteTable(Overrides())
    yield table
    table.check_invariants()


def held_by(group: Group, topics: Mapping[str, QueueConfig], *, version: int = 1, broker_id: int = 0) -> Registration:
    """Set the topics of a group's replica."""
    identity = BrokerIdentity(*group.key, broker_id, f"h{broker_id}:1")
    registration = Registration(identity=identity, topics=topics, data_version=DataVersion(0, 0, version))
    group.replicas[broker_id] = Replica(
        registration=registration,
        generation=1,
        registered_at=0.0,
        alive_since=0.0,
        pulse=Pulse(last_seen=0.0, heartbeat_interval=30.0, expiry=120.0),
        health=Health(),
        punctuality=Punctuality(0.0),
    )
    return registration


def settle(routes: RouteTable, at_most: int = 100) -> int:
    """Let the index follow to its end; return in how many slices."""
    slices = 1
    while routes.settle(at_most):
        slices += 1
    return slices


def who_has(routes: RouteTable, topic: str) -> list[GroupKey]:
    try:
        return [group.key for group in routes.route(topic).groups]
    except TopicNotFound:
        return []


def test_a_large_set_applies_immediately_without_walking_it(routes: RouteTable) -> None:
    group, topics = Group(A), many()
    held_by(group, topics)
    routes.refresh(group)
    assert topics.walked == 0
    assert [who_has(routes, topic) for topic in ("t00000", "t01199", "t01200")] == [[A], [A], []]
    assert topics.walked == 0
    assert routes.topic_names() == sorted(topics)


def test_the_index_follows_in_slices_without_a_visible_effect(routes: RouteTable) -> None:
    group = Group(A)
    held_by(group, many())
    routes.refresh(group)
    before = (routes.counter("t00000"), routes.counter("t01199"))
    assert routes.settle(100)
    assert routes.topic_count() == 100
    assert (routes.counter("t00000"), routes.counter("t01199")) == before
    assert settle(routes) == 12
    assert routes.topic_count() == MANY
    assert (routes.counter("t00000"), routes.counter("t01199")) == before


def test_a_large_broker_that_leaves_is_out_of_all_routes_immediately(routes: RouteTable) -> None:
    large, small = Group(A), Group(B)
    held_by(large, many())
    held_by(small, {"t00007": QUEUES})
    routes.refresh(large)
    routes.refresh(small)
    settle(routes)
    before = routes.counter("t00007")
    assert before is not None
    large.replicas.clear()
    routes.refresh(large)
    assert routes.topic_names() == ["t00007"]
    assert who_has(routes, "t00007") == [B]
    assert routes.counter("t00007") == routes.change > before
    settle(routes)
    assert routes.counter("t00007") == routes.change
    assert routes.topic_count() == 1


def test_removal_while_the_index_has_not_followed_the_arrival(routes: RouteTable) -> None:
    group = Group(A)
    held_by(group, many())
    routes.refresh(group)
    routes.settle(100)
    group.replicas.clear()
    routes.refresh(group)
    assert routes.topic_names() == []
    assert who_has(routes, "t00000") == who_has(routes, "t01199") == []
    settle(routes)
    assert routes.topic_count() == 0


def test_two_swaps_in_a_row_end_as_the_second(routes: RouteTable) -> None:
    group = Group(A)
    held_by(group, many())
    routes.refresh(group)
    routes.settle(100)
    first = routes.counter("t00600")
    assert first is not None
    held_by(group, many(600, queues=QUEUES._replace(read_queue_nums=8)), version=2)
    routes.refresh(group, visibly=False)
    for _ in range(2):
        assert [who_has(routes, topic) for topic in ("t00000", "t00600", "t01799")] == [[], [A], [A]]
        assert routes.route("t00600").queues[0][1].read_queue_nums == 8
        assert routes.counter("t00600") == routes.change > first
        settle(routes)


def test_a_small_change_waits_behind_a_large_one(routes: RouteTable) -> None:
    large, small = Group(A), Group(B)
    held_by(large, many())
    routes.refresh(large)
    held_by(small, {"t00001": QUEUES, "own": QUEUES})
    routes.refresh(small)
    held_by(small, {"own": QUEUES}, version=2)
    routes.refresh(small, visibly=False)
    assert [who_has(routes, topic) for topic in ("own", "t00001")] == [[B], [A]]
    settle(routes)
    assert [who_has(routes, topic) for topic in ("own", "t00001")] == [[B], [A]]


def test_few_changes_of_a_large_set_move_the_revisions_of_their_topics_alone(routes: RouteTable) -> None:
    group, before = Group(A), many()
    held_by(group, before)
    routes.refresh(group)
    settle(routes)
    other = routes.counter("t00000")
    after = CountingTable(before)
    del after["t00002"]
    after["t00001"] = QUEUES._replace(read_queue_nums=8)
    before.walked = after.walked = 0
    held_by(group, after, version=2)
    changed = {"t00001": after["t00001"]}
    routes.refresh(group, visibly=False, staged=StagedTopics(after, before, changed, ("t00002",)))
    assert before.walked == after.walked == 0
    assert routes.counter("t00001") == routes.change
    assert routes.counter("t00002") is None
    assert routes.counter("t00000") == other


def test_a_comparison_with_another_set_is_not_used(routes: RouteTable) -> None:
    group = Group(A)
    held_by(group, {"x": QUEUES, "y": QUEUES})
    routes.refresh(group)
    after = {"y": QUEUES, "z": QUEUES}
    held_by(group, after, version=2)
    routes.refresh(group, visibly=False, staged=StagedTopics(after, {"y": QUEUES}, {"z": QUEUES}))
    assert routes.topic_names() == ["y", "z"]


def test_a_topic_hidden_before_the_index_reached_it_has_a_new_revision_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(route_table, "TOPICS_PER_STEP", 2)
    overrides = Overrides()
    routes, group = RouteTable(overrides), Group(A)
    overrides.hide("t00005", held_by(group, many(count=6)))
    routes.refresh(group)
    gone_at = routes.change
    assert routes.counter("t00005") is None
    assert overrides.end_tombstones(held_by(group, group.replicas[0].registration.topics, version=2))
    routes.refresh(group, visibly=False)
    back = routes.counter("t00005")
    assert back is not None
    assert back > gone_at
    routes.check_invariants()


def test_a_swap_of_a_group_that_hides_a_topic_moves_no_revision_that_falls_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(route_table, "TOPICS_PER_STEP", 2)
    overrides = Overrides()
    routes = RouteTable(overrides)
    group, other = Group(A), Group(B)
    held_by(other, {"t1": QUEUES})
    routes.refresh(other)
    overrides.hide("t1", held_by(group, {"t1": QUEUES}))
    routes.refresh(group)
    before = routes.counter("t1")
    held_by(group, {"t1": QUEUES, "t2": QUEUES, "t3": QUEUES})
    routes.refresh(group, visibly=False)
    assert routes.lags(A)
    assert who_has(routes, "t1") == [B]
    assert routes.counter("t1") == before
    settle(routes)
    assert routes.counter("t1") == before


def test_names_of_a_cluster_are_right_while_the_index_lags(routes: RouteTable) -> None:
    for key, first in ((A, 0), (GroupKey("c2", "a"), 600)):
        group = Group(key)
        held_by(group, many(first))
        routes.refresh(group)
    assert [len(routes.topic_names(cluster)) for cluster in ("", "c1", "c2")] == [1_800, MANY, MANY]
    settle(routes)
    assert [len(routes.topic_names(cluster)) for cluster in ("", "c1", "c2")] == [1_800, MANY, MANY]
