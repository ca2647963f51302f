"""Which of several name servers' answers is taken, and in which order revisions are."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from pointsman_client import Revision, TopicRoute
from pointsman_client.core.route_agreement import MAX_BOOTS, RevisionOrder, Verdict, judge, loss
from pointsman_client.pointsman_grpc.codec import to_topic_route
from tests.kit.name_server import scripted_routes as fake


def route(*names: str, replicas: dict[int, str] | None = None, perm: int = 6) -> TopicRoute:
    groups = [fake.broker_data(name, replicas or {0: f"{name}:1", 1: f"{name}:2"}) for name in names]
    return to_topic_route(fake.topic_route(groups=groups, perm=perm))


AB, A, B, EMPTY = route("a", "b"), route("a"), route("b"), route()
SETTLED_BY_FIRST = Verdict(0, is_disputed=False)


def test_a_route_without_a_loss_is_accepted_immediately() -> None:
    for said in (AB, route("a", "b", "c"), route("a", "b", perm=4), route("a", "b", replicas={0: "x:1", 1: "y:1"})):
        assert judge(AB, [said], all_queried=False) == SETTLED_BY_FIRST
    assert judge(None, [EMPTY], all_queried=False) == SETTLED_BY_FIRST


def test_a_lost_group_replica_or_topic_needs_a_second_confirmation() -> None:
    for said in (A, EMPTY, None, route("a", "b", replicas={1: "a:2"})):
        assert judge(AB, [said], all_queried=False) is None
        assert judge(AB, [said, said], all_queried=False) == SETTLED_BY_FIRST
        assert judge(AB, [said], all_queried=True) == SETTLED_BY_FIRST


def test_an_unknown_topic_needs_a_second_confirmation_too() -> None:
    assert judge(None, [None], all_queried=False) is None
    assert judge(None, [None, A], all_queried=True) == Verdict(1, is_disputed=True)


def test_against_one_that_has_all_the_route_stays_and_the_question_is_open() -> None:
    for said in (A, None):
        assert judge(AB, [said, AB], all_queried=False) is None
        assert judge(AB, [said, AB], all_queried=True) == Verdict(1, is_disputed=True)


def test_a_third_can_be_the_second_witness() -> None:
    assert judge(AB, [A, AB, A], all_queried=True) == SETTLED_BY_FIRST
    assert judge(AB, [None, AB, None], all_queried=True) == SETTLED_BY_FIRST


def test_two_that_miss_different_things_bear_no_witness_for_each_other() -> None:
    assert judge(AB, [A, B], all_queried=True) == Verdict(None, is_disputed=True)


def test_what_two_of_three_servers_report_is_accepted_and_the_remainder_stays_open() -> None:
    assert judge(AB, [None, A], all_queried=True) == Verdict(1, is_disputed=True)


def test_queues_of_a_group_and_a_group_without_brokers_can_be_lost_alone() -> None:
    without_queues = replace(AB, queue_datas=A.queue_datas)
    without_brokers = replace(AB, broker_datas=tuple(replace(data, replicas=()) for data in AB.broker_datas))

    assert loss(AB, without_queues) == {("queues", "DefaultCluster", "b")}
    assert loss(without_brokers, replace(without_brokers, broker_datas=())) == {
        ("group", "DefaultCluster", "a"),
        ("group", "DefaultCluster", "b"),
    }


def test_fewer_queues_are_no_loss() -> None:
    fewer = to_topic_route(fake.topic_route(groups=[fake.broker_data("a", {0: "a:1", 1: "a:2"})], read=1, write=1))
    assert loss(A, fewer) == frozenset()


answers = st.sampled_from([None, *(route(*names) for size in range(4) for names in combinations("abc", size))])


@given(known=answers, said=st.lists(answers, min_size=1, max_size=4), all_queried=st.booleans())
def test_one_server_alone_cannot_remove_anything_while_others_respond(
    known: TopicRoute | None, said: list[TopicRoute | None], all_queried: bool
) -> None:
    verdict = judge(known, said, all_queried=all_queried)

    if verdict is None:
        assert not all_queried
        return
    if verdict.accepted is None:
        assert verdict.is_disputed
        return
    lost = loss(known, said[verdict.accepted])
    if len(said) > 1 and lost:
        assert sum(lost <= loss(known, answer) for answer in said) >= 2
    if not verdict.is_disputed and len(said) > 1 and loss(known, said[0]):
        assert all(loss(known, answer) <= lost for answer in said)


def test_an_older_answer_of_the_same_boot_is_refused_and_another_boot_is_not_compared() -> None:
    order = RevisionOrder(10)
    assert order.admit("orders", Revision(1, 50, b""))
    assert not order.admit("orders", Revision(1, 49, b"x"))
    assert order.admit("orders", Revision(1, 50, b"x"))
    assert order.admit("orders", Revision(2, 1, b"x"))
    assert not order.admit("orders", Revision(1, 49, b"x"))
    assert order.admit("bills", Revision(1, 1, b""))


def test_the_memory_of_revisions_is_bounded() -> None:
    order = RevisionOrder(2)
    for boot in range(MAX_BOOTS + 5):
        order.admit("orders", Revision(boot, 9, b""))
    assert not order.admit("orders", Revision(MAX_BOOTS, 8, b""))
    assert order.admit("orders", Revision(0, 8, b""))

    order.admit("a", Revision(1, 9, b""))
    order.admit("b", Revision(1, 9, b""))
    assert len(order._counters) == 2
