"""What a watch shows: never an older revision of a boot, never the same twice."""

from __future__ import annotations

from pointsman.v1 import route_service_pb2
from pointsman_ctl.commands.watch_command import REMEMBERED_BOOTS, RouteChange, WatchedRoutes
from tests.kit.name_server.scripted_routes import broker_data, topic_route, with_digest


def route(queues: int = 4, *, boot: int = 7, counter: int = 1) -> route_service_pb2.WatchTopicRoutesResponse:
    made = with_digest(topic_route(groups=[broker_data()], read=queues), boot=boot, counter=counter)
    return route_service_pb2.WatchTopicRoutesResponse(route=made)


def gone(*, boot: int = 7, counter: int = 1, topic: str = "orders") -> route_service_pb2.WatchTopicRoutesResponse:
    revision = route_service_pb2.Revision(boot=boot, counter=counter)
    return route_service_pb2.WatchTopicRoutesResponse(gone=route_service_pb2.TopicGone(topic=topic, revision=revision))


def queues_of(accepted: list[RouteChange]) -> int | None:
    (news,) = accepted
    return news.new.queue_datas[0].read_queue_nums if news.new else None


def test_the_first_state_is_shown_and_then_each_change_with_the_previous_state() -> None:
    watched = WatchedRoutes(["orders"])

    (first,) = watched.accept(route(4, counter=1))
    assert first.old is None
    (second,) = watched.accept(route(8, counter=2))
    assert (second.old, queues_of([second])) == (first.new, 8)


def test_an_older_revision_of_the_same_boot_is_never_shown() -> None:
    watched = WatchedRoutes(["orders"])
    watched.accept(route(4, counter=5))

    assert watched.accept(route(8, counter=4)) == []
    assert watched.accept(gone(counter=3)) == []
    # Nor after another server spoke in between.
    assert queues_of(watched.accept(route(6, boot=9, counter=1))) == 6
    assert watched.accept(route(8, counter=4)) == []
    assert queues_of(watched.accept(route(8, counter=5))) == 8


def test_another_boot_may_count_from_one_and_the_same_route_is_not_an_update() -> None:
    watched = WatchedRoutes(["orders"])
    watched.accept(route(4, boot=7, counter=100))

    assert watched.accept(route(4, boot=8, counter=1)) == []
    assert watched.known()[0].revision.boot == 8


def test_an_unknown_topic_is_reported_once() -> None:
    watched = WatchedRoutes(["orders"])

    (first,) = watched.accept(gone(counter=1))
    assert first.new is None
    assert watched.accept(gone(counter=2)) == []
    assert watched.accept(gone(boot=8)) == []
    assert queues_of(watched.accept(route(4, boot=8, counter=2))) == 4
    assert queues_of(watched.accept(gone(boot=8, counter=3))) is None


def test_the_next_server_gets_the_state_that_was_shown() -> None:
    watched = WatchedRoutes(["orders", "payments"])
    assert [known.HasField("revision") for known in watched.known()] == [False, False]

    sent = route(4, counter=3)
    watched.accept(sent)
    watched.accept(gone(topic="payments"))
    orders, payments = watched.known()
    assert orders.revision == sent.route.revision
    assert not payments.HasField("revision")


def test_topics_that_are_absent_at_the_first_state_come_in_one_message() -> None:
    watched = WatchedRoutes(["orders", "payments"])
    absent = route_service_pb2.TopicsAbsent(topics=["orders", "payments"], revision=route_service_pb2.Revision(boot=7))
    news = watched.accept(route_service_pb2.WatchTopicRoutesResponse(absent=absent))

    assert [(each.topic, each.new) for each in news] == [("orders", None), ("payments", None)]
    assert watched.missing() == []


def test_events_of_other_topics_and_of_unknown_kinds_are_ignored() -> None:
    watched = WatchedRoutes(["payments"])

    assert watched.accept(route()) == []
    assert watched.accept(route_service_pb2.WatchTopicRoutesResponse()) == []


def test_the_memory_of_restarts_is_bounded() -> None:
    watched = WatchedRoutes(["orders"])
    for boot in range(1, REMEMBERED_BOOTS * 3):
        assert watched.accept(route(boot, boot=boot, counter=9))

    assert watched.accept(route(999, boot=REMEMBERED_BOOTS * 3 - 1, counter=8)) == []
    assert len(watched._counters["orders"]) == REMEMBERED_BOOTS
