"""RocketMQ's ring of members, point for point."""

from __future__ import annotations

import hashlib

import pytest

from pointsman_client.core.allocation import ConsistentHash
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import AllocationError
from tests.kit.client.queues import queues, request, shares, short


def point(text: str) -> int:
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    return int(digest[:8], 16)


def owner(queue: MessageQueue, members: list[str], virtual_nodes: int = 10) -> str:
    """By definition: the member of the first point at or after the queue's, wrapping."""
    ring = {point(f"{member}-{k}"): member for member in members for k in range(virtual_nodes)}
    key = point(f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]")
    return ring[min((p for p in ring if p >= key), default=min(ring))]


@pytest.mark.parametrize("virtual_nodes", [1, 10, 100])
def test_every_queue_goes_to_the_next_point_of_the_ring(virtual_nodes: int) -> None:
    members = [f"192.168.0.{i}@1595{i}" for i in range(6, 10)]
    of = queues("TopicTest", **{"broker-a": 16, "broker-b": 16})
    given = shares(ConsistentHash(virtual_nodes), members, of)
    assert {q: m for m, share in given.items() for q in share} == {q: owner(q, members, virtual_nodes) for q in of}
    assert all(share == tuple(sorted(share)) for share in given.values())


def test_the_cluster_is_not_hashed() -> None:
    members = ["a@1", "b@1", "c@1"]
    one, two = (shares(ConsistentHash(), members, queues("orders", name, q=16)) for name in ("c1", "c2"))
    assert {m: short(share) for m, share in one.items()} == {m: short(share) for m, share in two.items()}


def test_without_virtual_nodes_no_member_gets_a_queue() -> None:
    assert shares(ConsistentHash(0), ["a", "b"], queues(q=8)) == {"a": (), "b": ()}


def test_a_negative_number_of_virtual_nodes_is_refused() -> None:
    with pytest.raises(AllocationError) as caught:
        ConsistentHash(-1)
    assert str(caught.value) == "illegal virtualNodeCnt :-1"
    assert ConsistentHash().name == "CONSISTENT_HASH"


def test_a_client_id_listed_twice_is_one_member() -> None:
    of = queues(q=16)
    twice = ConsistentHash().allocate(request("a", ["a", "a", "b"], of))
    assert twice == ConsistentHash().allocate(request("a", ["a", "b"], of))


@pytest.mark.parametrize(("members", "bound"), [(4, 1.6), (16, 2.1), (100, 2.8)])
def test_shares_of_many_queues_are_uneven_within_bounds(members: int, bound: float) -> None:
    of = queues(a=512, b=512)
    given = shares(ConsistentHash(), sorted(f"10.0.0.{i}@1" for i in range(members)), of)
    assert max(map(len, given.values())) / (1024 / members) < bound
