"""The queues over which keys are spread: all that a topic has, including those of absent brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pointsman_client.core.message_queue import MessageQueue, why_not_writable, why_without_queue
from pointsman_client.core.route import BrokerData, BrokerReplica, BrokerState, QueueData, Revision, TopicRoute
from pointsman_client.core.sharding import ConfiguredQueues, HashRing, KeyQueues, QueueOfKey
from pointsman_client.errors import NoWritableQueueError


def route(*groups: str, perm: int = 6, master: bool = True, order_topic_conf: str = "") -> TopicRoute:
    """A route of groups written as ``name:queues``."""
    named = [group.split(":") for group in groups]
    replicas = (BrokerReplica(0 if master else 1, "10.0.0.1:1", "", "", BrokerState.UP),)
    return TopicRoute(
        "orders",
        Revision(1, 1, b""),
        tuple(QueueData("c1", name, int(number), int(number), perm, 0) for name, number in named),
        tuple(BrokerData("c1", name, replicas, "", acting_master=False) for name, _ in named),
        order_topic_conf,
    )


def names(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}:{queue.queue_id}" for queue in queues]


def test_every_write_queue_counts_also_without_master_and_permission() -> None:
    for seen in (route("a:2", "b:1"), route("a:2", "b:1", perm=4), route("a:2", "b:1", master=False)):
        assert names(ConfiguredQueues("orders").see(seen)) == ["a:0", "a:1", "b:0"]


def test_a_topic_that_became_static_has_no_queues_for_keys() -> None:
    keys = KeyQueues(HashRing())
    assert keys.queue_of(route("a:2", "b:1"), "k").topic == "orders"
    with pytest.raises(NoWritableQueueError, match="it is a static topic, which this client does not support"):
        keys.queue_of(replace(route("a:2", "b:1"), is_static=True), "k")
    assert keys.queue_of(route("a:2"), "k").broker_name == "a"


def test_a_group_that_is_no_longer_in_any_route_keeps_its_queues() -> None:
    configured = ConfiguredQueues("orders")
    before = configured.see(route("a:2", "b:1"))

    assert configured.see(route("b:1")) is before
    assert configured.see(route()) is before
    assert configured.see(route("b:1", "a:2")) is before


def test_growth_and_shrinkage_change_the_queues() -> None:
    configured = ConfiguredQueues("orders")
    configured.see(route("a:2", "b:1"))

    assert names(configured.see(route("b:2"))) == ["a:0", "a:1", "b:0", "b:1"]
    assert names(configured.see(route("b:2", "c:1"))) == ["a:0", "a:1", "b:0", "b:1", "c:0"]
    assert names(configured.see(route("a:0", "b:2", "c:1"))) == ["b:0", "b:1", "c:0"]


def test_an_order_topic_configuration_is_taken_as_it_is_and_in_its_order() -> None:
    configured = ConfiguredQueues("orders")
    configured.see(route("a:2", "b:1"))

    assert names(configured.see(route("a:2", order_topic_conf="z:1;a:1"))) == ["z:0", "a:0"]


def test_order_queues_that_a_broker_does_not_have_get_no_key_even_while_it_is_absent() -> None:
    configured = ConfiguredQueues("orders")
    assert names(configured.see(route("z:1", order_topic_conf="a:3;z:1"))) == ["a:0", "a:1", "a:2", "z:0"]
    there = configured.see(route("a:2", "z:1", order_topic_conf="a:3;z:1"))

    assert names(there) == ["a:0", "a:1", "z:0"]
    assert configured.see(route("z:1", order_topic_conf="a:3;z:1")) is there
    assert names(configured.see(route("a:1", "z:1", order_topic_conf="a:3;z:1"))) == ["a:0", "z:0"]


def test_dropping_keeps_brokers_that_are_in_the_route() -> None:
    configured = ConfiguredQueues("orders")
    configured.see(route("a:2", "b:1"))
    left = route("b:1")
    configured.see(left)

    configured.drop_absent()

    assert names(configured.see(left)) == ["b:0"]


def test_a_map_is_built_once_for_the_same_queues() -> None:
    built: list[int] = []

    class Counting(HashRing):
        def over(self, queues: Sequence[MessageQueue]) -> QueueOfKey:
            built.append(len(queues))
            return super().over(queues)

    keys = KeyQueues(Counting())
    for seen in (route("a:2", "b:1"), route("b:1"), route("a:2", "b:1"), route("a:2", "b:2")):
        keys.queue_of(seen, "key")

    assert built == [3, 4]


def test_w14_a_third_of_the_keys_moves_when_eight_queues_become_twelve() -> None:
    keys = KeyQueues(HashRing())
    numbers = [f"key-{number}" for number in range(3_000)]
    before = [keys.queue_of(route("a:4", "b:4"), key) for key in numbers]
    after = [keys.queue_of(route("a:6", "b:6"), key) for key in numbers]

    moved = sum(one != two for one, two in zip(before, after, strict=True))
    assert 0.25 < moved / len(numbers) < 0.42


def test_a_topic_without_write_queues_has_no_queue_for_a_key() -> None:
    with pytest.raises(NoWritableQueueError, match="has 0 write queues"):
        KeyQueues(HashRing()).queue_of(route("a:0"), "key")
    with pytest.raises(NoWritableQueueError, match="no broker of zone z1 has the topic"):
        KeyQueues(HashRing(), zone="z1").queue_of(route(), "key")


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (route("a:2"), None),
        (route("b:2"), "broker a is not in the route"),
        (route("a:2", perm=4), "no write permission"),
        (route("a:2", master=False), "has no master"),
        (route("a:1"), "has 1 write queues"),
    ],
)
def test_why_a_queue_cannot_be_written(seen: TopicRoute, why: str | None) -> None:
    reason = why_not_writable(seen, MessageQueue("orders", "c1", "a", 1))

    assert reason is None if why is None else why in (reason or "")


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (route(), "the route has no queues"),
        (route("a:1", "b:1", perm=4), "broker a has no write permission for the topic; broker b has no"),
        (route("a:1", order_topic_conf="a:0"), "order-topic configuration 'a:0'"),
    ],
)
def test_why_a_topic_has_no_writable_queue(seen: TopicRoute, why: str) -> None:
    assert why in why_without_queue(seen)
