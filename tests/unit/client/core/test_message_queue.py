"""Route to queues: RocketMQ's rules with the cluster in every key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pointsman_client import OrderTopicConfError, to_publish_queues, to_subscribe_queues
from pointsman_client.core.message_queue import MessageQueue, order_topic_surplus, why_not_writable, why_without_queue
from pointsman_client.core.route import BrokerData, BrokerReplica, BrokerState, QueueData, Revision, TopicRoute
from pointsman_client.core.sharding import ConfiguredQueues, HashRing, KeyQueues, QueueOfKey
from pointsman_client.errors import NoWritableQueueError


def queue_data(broker_name: str, *, cluster: str = "c1", read: int = 2, write: int = 2, perm: int = 6) -> QueueData:
    return QueueData(cluster, broker_name, read, write, perm, 0)


def broker_data(broker_name: str, *broker_ids: int, cluster: str = "c1") -> BrokerData:
    replicas = tuple(BrokerReplica(i, f"10.0.0.{i}:10911", "", "", BrokerState.UP) for i in broker_ids)
    return BrokerData(cluster, broker_name, replicas, "", acting_master=False)


def route(queues: list[QueueData], brokers: list[BrokerData], *, order_topic_conf: str = "") -> TopicRoute:
    return TopicRoute("T", Revision(1, 1, b""), tuple(queues), tuple(brokers), order_topic_conf)


def names(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.cluster}/{queue.broker_name}:{queue.queue_id}" for queue in queues]


def test_w5_eight_write_queues_on_two_brokers_give_sixteen_publish_queues_in_order() -> None:
    brokers = ["broker-b", "broker-a"]
    topic = route(
        [queue_data(name, read=8, write=8, perm=7) for name in brokers], [broker_data(name, 0) for name in brokers]
    )

    expected = [f"c1/broker-a:{i}" for i in range(8)] + [f"c1/broker-b:{i}" for i in range(8)]
    assert names(to_publish_queues(topic)) == expected


def test_a_static_topic_has_no_queues_and_says_why() -> None:
    topic = replace(route([queue_data("a")], [broker_data("a", 0)], order_topic_conf="a:2"), is_static=True)
    assert to_publish_queues(topic) == to_subscribe_queues(topic) == ()
    assert why_without_queue(topic) == "it is a static topic, which this client does not support"
    assert not topic.is_same_as(replace(topic, is_static=False))


@pytest.mark.parametrize(
    ("perm", "broker_ids", "publish", "subscribe"),
    [
        pytest.param(6, (0,), 3, 2, id="read-write"),
        pytest.param(4, (0,), 0, 2, id="read-only"),
        pytest.param(2, (0,), 3, 0, id="write-only"),
        pytest.param(0, (0,), 0, 0, id="nothing"),
        pytest.param(0b1001, (0,), 0, 0, id="priority-and-inherit-alone"),
        pytest.param(0b1111, (0,), 3, 2, id="all-bits"),
        pytest.param(6, (1, 2), 0, 2, id="no-master"),
        pytest.param(6, (), 0, 2, id="no-replica"),
    ],
)
def test_publish_needs_write_perm_and_a_master_and_subscribe_only_read_perm(
    perm: int, broker_ids: tuple[int, ...], publish: int, subscribe: int
) -> None:
    topic = route([queue_data("a", read=2, write=3, perm=perm)], [broker_data("a", *broker_ids)])

    assert (len(to_publish_queues(topic)), len(to_subscribe_queues(topic))) == (publish, subscribe)


def test_a_group_without_broker_data_can_be_read_and_not_written() -> None:
    topic = route([queue_data("a")], [])

    assert to_publish_queues(topic) == ()
    assert names(to_subscribe_queues(topic)) == ["c1/a:0", "c1/a:1"]


def test_the_same_broker_name_in_two_clusters_is_two_brokers() -> None:
    topic = route(
        [queue_data("a", cluster="c2", write=1), queue_data("a", cluster="c1", write=1)],
        [broker_data("a", 1, cluster="c1"), broker_data("a", 0, cluster="c2")],
    )

    assert names(to_publish_queues(topic)) == ["c2/a:0"]
    assert names(to_subscribe_queues(topic)) == ["c1/a:0", "c1/a:1", "c2/a:0", "c2/a:1"]


def test_queues_sort_by_number_and_not_by_its_text() -> None:
    topic = route([queue_data("a", read=11)], [broker_data("a", 0)])

    assert [queue.queue_id for queue in to_subscribe_queues(topic)] == list(range(11))


@pytest.mark.parametrize("conf", ["b:1;a:2", "b:1;a:2;"])
def test_an_order_topic_has_the_queues_of_its_configuration_in_its_order_for_any_route(conf: str) -> None:
    topic = route([queue_data("a", perm=4, write=9)], [broker_data("a", 1)], order_topic_conf=conf)

    assert names(to_publish_queues(topic)) == ["c1/b:0", "c1/a:0", "c1/a:1"]


def test_queues_of_an_order_configuration_that_the_route_does_not_have_are_left_out_and_named() -> None:
    topic = route([queue_data("a", write=2), queue_data("b", write=0)], [], order_topic_conf="a:5;b:1;c:1")

    assert names(to_publish_queues(topic)) == ["c1/a:0", "c1/a:1", "c1/c:0"]
    assert order_topic_surplus(topic) == "a: 5 configured, 2 available, b: 1 configured, 0 available"
    assert order_topic_surplus(route([queue_data("a", write=2)], [], order_topic_conf="a:2;c:9")) == ""
    assert order_topic_surplus(route([queue_data("a", write=2)], [])) == ""


def test_an_order_configuration_does_not_change_the_queues_to_read() -> None:
    topic = route([queue_data("a", read=1)], [], order_topic_conf="b:3")

    assert names(to_subscribe_queues(topic)) == ["c1/a:0"]


def test_an_absent_broker_of_an_order_topic_keeps_its_cluster_only_where_there_is_one() -> None:
    both = [queue_data("a", cluster="c1"), queue_data("b", cluster="c2")]

    assert names(to_publish_queues(route(both, [], order_topic_conf="gone:1;b:1"))) == ["/gone:0", "c2/b:0"]
    assert names(to_publish_queues(route(both[:1], [], order_topic_conf="gone:1"))) == ["c1/gone:0"]
    assert names(to_publish_queues(route([], [], order_topic_conf="gone:1"))) == ["/gone:0"]


@pytest.mark.parametrize(
    ("conf", "problem"),
    [
        pytest.param("a", "'a' must be brokerName:queues", id="no-count"),
        pytest.param("a:", "'a:' must be brokerName:queues", id="empty-count"),
        pytest.param("a:x", "'a:x' must be brokerName:queues", id="no-number"),
        pytest.param("a:-1", "'a:-1' must be brokerName:queues", id="negative"),
        pytest.param("a:65536", "with 0 to 65535 queues", id="too-many"),
        pytest.param("a:" + "9" * 5000, "with 0 to 65535 queues", id="absurd"),
        pytest.param("a:4:x", "'a:4:x' must be", id="three-parts"),
        pytest.param(":4", "in ':4' the broker name must not be empty", id="no-name"),
        pytest.param(";", "in '' the broker name must not be empty", id="only-separator"),
        pytest.param("a:1;;b:1", "in '' the broker name must not be empty", id="empty-item"),
        pytest.param("a:1;a:1", "it names a twice", id="twice"),
        pytest.param("a b:1", "the broker name may hold only", id="bad-name"),
        pytest.param("\u0664:\u0664", "the broker name may hold only", id="not-ascii"),
        pytest.param("a:\u0664", "must be brokerName:queues", id="digits-of-another-script"),
        pytest.param(
            ";".join(f"b{n}:65535" for n in range(99)), "6487965 queues, at most 131072", id="too-many-in-all"
        ),
        pytest.param("a:" + "x" * 1_000_000, "must be brokerName:queues", id="too-long"),
    ],
)
def test_an_unreadable_order_configuration_raises_with_its_place(conf: str, problem: str) -> None:
    with pytest.raises(OrderTopicConfError, match="of topic T") as caught:
        to_publish_queues(route([queue_data("a")], [], order_topic_conf=conf))

    assert problem in str(caught.value)
    assert len(str(caught.value)) < 1_000
    assert caught.value.refresh_route


def test_an_order_configuration_that_names_a_broker_of_two_clusters_is_refused() -> None:
    topic = route([queue_data("a", cluster="c2"), queue_data("a", cluster="c1")], [], order_topic_conf="a:1")

    with pytest.raises(OrderTopicConfError, match="a is ambiguous: it is in clusters c1, c2"):
        to_publish_queues(topic)


def route_with(*groups: str, perm: int = 6, master: bool = True, order_topic_conf: str = "") -> TopicRoute:
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


def short_names(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}:{queue.queue_id}" for queue in queues]


def test_every_write_queue_counts_also_without_master_and_permission() -> None:
    for seen in (route_with("a:2", "b:1"), route_with("a:2", "b:1", perm=4), route_with("a:2", "b:1", master=False)):
        assert short_names(ConfiguredQueues("orders").see(seen)) == ["a:0", "a:1", "b:0"]


def test_a_topic_that_became_static_has_no_queues_for_keys() -> None:
    keys = KeyQueues(HashRing())
    assert keys.queue_of(route_with("a:2", "b:1"), "k").topic == "orders"
    with pytest.raises(NoWritableQueueError, match="it is a static topic, which this client does not support"):
        keys.queue_of(replace(route_with("a:2", "b:1"), is_static=True), "k")
    assert keys.queue_of(route_with("a:2"), "k").broker_name == "a"


def test_a_group_that_is_no_longer_in_any_route_keeps_its_queues() -> None:
    configured = ConfiguredQueues("orders")
    before = configured.see(route_with("a:2", "b:1"))

    assert configured.see(route_with("b:1")) is before
    assert configured.see(route_with()) is before
    assert configured.see(route_with("b:1", "a:2")) is before


def test_growth_and_shrinkage_change_the_queues() -> None:
    configured = ConfiguredQueues("orders")
    configured.see(route_with("a:2", "b:1"))

    assert short_names(configured.see(route_with("b:2"))) == ["a:0", "a:1", "b:0", "b:1"]
    assert short_names(configured.see(route_with("b:2", "c:1"))) == ["a:0", "a:1", "b:0", "b:1", "c:0"]
    assert short_names(configured.see(route_with("a:0", "b:2", "c:1"))) == ["b:0", "b:1", "c:0"]


def test_an_order_topic_configuration_is_taken_as_it_is_and_in_its_order() -> None:
    configured = ConfiguredQueues("orders")
    configured.see(route_with("a:2", "b:1"))

    assert short_names(configured.see(route_with("a:2", order_topic_conf="z:1;a:1"))) == ["z:0", "a:0"]


def test_order_queues_that_a_broker_does_not_have_get_no_key_even_while_it_is_absent() -> None:
    configured = ConfiguredQueues("orders")
    assert short_names(configured.see(route_with("z:1", order_topic_conf="a:3;z:1"))) == ["a:0", "a:1", "a:2", "z:0"]
    there = configured.see(route_with("a:2", "z:1", order_topic_conf="a:3;z:1"))

    assert short_names(there) == ["a:0", "a:1", "z:0"]
    assert configured.see(route_with("z:1", order_topic_conf="a:3;z:1")) is there
    assert short_names(configured.see(route_with("a:1", "z:1", order_topic_conf="a:3;z:1"))) == ["a:0", "z:0"]


def test_dropping_keeps_brokers_that_are_in_the_route() -> None:
    configured = ConfiguredQueues("orders")
    configured.see(route_with("a:2", "b:1"))
    left = route_with("b:1")
    configured.see(left)

    configured.drop_absent()

    assert short_names(configured.see(left)) == ["b:0"]


def test_a_map_is_built_once_for_the_same_queues() -> None:
    built: list[int] = []

    class Counting(HashRing):
        def over(self, queues: Sequence[MessageQueue]) -> QueueOfKey:
            built.append(len(queues))
            return super().over(queues)

    keys = KeyQueues(Counting())
    for seen in (route_with("a:2", "b:1"), route_with("b:1"), route_with("a:2", "b:1"), route_with("a:2", "b:2")):
        keys.queue_of(seen, "key")

    assert built == [3, 4]


def test_a_topic_without_write_queues_has_no_queue_for_a_key() -> None:
    with pytest.raises(NoWritableQueueError, match="has 0 write queues"):
        KeyQueues(HashRing()).queue_of(route_with("a:0"), "key")
    with pytest.raises(NoWritableQueueError, match="no broker of zone z1 has the topic"):
        KeyQueues(HashRing(), zone="z1").queue_of(route_with(), "key")


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (route_with("a:2"), None),
        (route_with("b:2"), "broker a is not in the route"),
        (route_with("a:2", perm=4), "no write permission"),
        (route_with("a:2", master=False), "has no master"),
        (route_with("a:1"), "has 1 write queues"),
    ],
)
def test_why_a_queue_cannot_be_written(seen: TopicRoute, why: str | None) -> None:
    reason = why_not_writable(seen, MessageQueue("orders", "c1", "a", 1))

    assert reason is None if why is None else why in (reason or "")


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (route_with(), "the route has no queues"),
        (route_with("a:1", "b:1", perm=4), "broker a has no write permission for the topic; broker b has no"),
        (route_with("a:1", order_topic_conf="a:0"), "order-topic configuration 'a:0'"),
    ],
)
def test_why_a_topic_has_no_writable_queue(seen: TopicRoute, why: str) -> None:
    assert why in why_without_queue(seen)
