"""What changed between two routes of a topic."""

from __future__ import annotations

from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman_ctl.output.route_difference import route_difference
from tests.kit.name_server.scripted_routes import broker_data, topic_route

A = broker_data("broker-a", {0: "10.0.0.1:1", 1: "10.0.0.2:1"}, cluster="c1")
B = broker_data("broker-b", {0: "10.0.0.3:1"}, cluster="c1")


def test_equal_routes_have_no_difference() -> None:
    route = topic_route(groups=[A, B])
    assert route_difference(route, route) == []


def test_added_and_removed_brokers_and_queues_are_lines() -> None:
    alone, both = topic_route(groups=[A]), topic_route(groups=[A, B])

    assert route_difference(alone, both) == [
        "+ queues of c1/broker-b: read queues 4, write queues 4, perm rw",
        "+ broker c1/broker-b 0: addr 10.0.0.3:1, state UP",
    ]
    assert [line[0] for line in route_difference(both, alone)] == ["-", "-"]


def test_a_change_in_place_is_one_line_with_before_and_after() -> None:
    suspect = broker_data("broker-a", {0: "10.0.0.1:1", 1: "10.0.0.9:1"}, cluster="c1", acting_master=True, zone="z1")
    suspect.replicas[0].state = broker_pb2.BROKER_STATE_SUSPECT
    old = topic_route(groups=[A])
    new = topic_route(groups=[suspect], read=8, perm=4, order_topic_conf="broker-a:4")

    assert route_difference(old, new) == [
        "~ queues of c1/broker-a: read queues 4 -> 8, perm rw -> r",
        "~ broker c1/broker-a 0: state UP -> SUSPECT",
        "~ broker c1/broker-a 1: addr 10.0.0.2:1 -> 10.0.0.9:1",
        "~ group c1/broker-a: zone none -> z1, acting master no -> yes",
        "~ order topic: none -> broker-a:4",
    ]


def test_a_changed_weight_is_a_line_and_a_weight_of_1_is_not_in_one() -> None:
    light, heavy = topic_route(groups=[A]), topic_route(groups=[A])
    heavy.queue_datas[0].queue_weight = 3

    assert route_difference(light, heavy) == ["~ queues of c1/broker-a: queue weight 1 -> 3"]
    assert route_difference(topic_route(groups=[]), heavy)[0] == (
        "+ queues of c1/broker-a: read queues 4, write queues 4, perm rw, queue weight 3"
    )


def test_a_moved_queue_of_a_static_topic_is_a_line() -> None:
    def of(*pairs: tuple[int, int], epoch: int) -> route_service_pb2.TopicRoute:
        route = topic_route(groups=[A])
        logical, physical = zip(*pairs, strict=True)
        mapping = broker_pb2.StaticTopicMapping(
            cluster="c1",
            broker_name="broker-a",
            scope="__global__",
            total_queues=4,
            epoch=epoch,
            logical_queue_ids=logical,
            physical_queue_ids=physical,
        )
        route.static_topic_mappings.append(mapping)
        return route

    assert route_difference(of((0, 0), (3, 1), epoch=1), of((0, 2), (3, 1), epoch=2)) == [
        "~ logical queues of c1/broker-a: queues 0>0 3>1 -> 0>2 3>1, epoch 1 -> 2",
    ]
    assert route_difference(topic_route(groups=[A]), of((0, 0), epoch=1)) == [
        "+ logical queues of c1/broker-a: queues 0>0, total 4, epoch 1, scope __global__, dirty no",
    ]


def test_ten_replicas_are_in_the_order_of_their_ids() -> None:
    many = broker_data("broker-a", {number: f"10.0.0.{number}:1" for number in range(12)}, cluster="c1")
    none = broker_data("broker-a", {}, cluster="c1")

    lines = route_difference(topic_route(groups=[none]), topic_route(groups=[many]))
    assert [int(line.split()[3].rstrip(":")) for line in lines] == list(range(12))
