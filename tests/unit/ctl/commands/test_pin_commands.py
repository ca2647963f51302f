"""The queue that an operator names, in the route of its topic."""

from __future__ import annotations

from pointsman.v1 import route_service_pb2
from pointsman_ctl.commands.pin_commands import QueueTarget, queue_in
from pointsman_ctl.output.error_report import ErrorReport


def route(*places: tuple[str, str]) -> route_service_pb2.TopicRoute:
    """Each broker has four readable queues."""
    datas = [
        route_service_pb2.QueueData(cluster=cluster, broker_name=name, read_queue_nums=4, write_queue_nums=8)
        for cluster, name in places
    ]
    return route_service_pb2.TopicRoute(topic="orders", queue_datas=datas)


def problem(found: QueueTarget | ErrorReport) -> str:
    assert isinstance(found, ErrorReport)
    return found.message


def test_the_cluster_of_a_broker_comes_from_the_route_if_only_one_has_it() -> None:
    both = route(("c1", "a"), ("c2", "a"), ("c2", "b"))
    assert queue_in(both, QueueTarget("orders", "", "b", 3)) == QueueTarget("orders", "c2", "b", 3)
    assert queue_in(both, QueueTarget("orders", "c1", "a", 3)) == QueueTarget("orders", "c1", "a", 3)
    assert problem(queue_in(both, QueueTarget("orders", "", "a", 3))) == (
        "broker a has queues of topic orders in several clusters: c1, c2"
    )


def test_a_queue_that_is_not_readable_is_not_found() -> None:
    assert "has 4 readable queues, numbered from 0, and no queue 4" in problem(
        queue_in(route(("c1", "a")), QueueTarget("orders", "", "a", 4))
    )


def test_a_topic_whose_brokers_are_down_has_no_queue() -> None:
    assert problem(queue_in(route(), QueueTarget("orders", "", "a", 0))) == (
        "topic orders has no queues on broker a; none of its brokers is up"
    )
