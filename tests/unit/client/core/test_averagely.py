"""Shares that differ by one queue at most, as RocketMQ gives them."""

from __future__ import annotations

import pytest

from pointsman_client.core.allocation import Averagely, AveragelyByCircle
from tests.kit.client.queues import queues, request, shares, short


def texts(strategy: Averagely | AveragelyByCircle, members: list[str], **counts: int) -> list[str]:
    return [short(share) for share in shares(strategy, members, queues(**counts)).values()]


def test_w2_averagely_gives_consecutive_queues() -> None:
    assert texts(Averagely(), ["x", "y", "z"], q=8) == ["q:0 q:1 q:2", "q:3 q:4 q:5", "q:6 q:7"]


def test_w3_by_circle_gives_every_third_queue() -> None:
    assert texts(AveragelyByCircle(), ["x", "y", "z"], q=8) == ["q:0 q:3 q:6", "q:1 q:4 q:7", "q:2 q:5"]


def test_w4_averagely_over_three_brokers_and_four_consumers() -> None:
    members = ["192.168.0.6@15956", "192.168.0.7@15957", "192.168.0.8@15958", "192.168.0.9@15959"]
    assert texts(Averagely(), members, a=3, b=3, c=3) == ["a:0 a:1 a:2", "b:0 b:1", "b:2 c:0", "c:1 c:2"]


def test_three_queues_for_five_members_leave_the_last_two_idle() -> None:
    assert texts(Averagely(), list("abcde"), q=3) == ["q:0", "q:1", "q:2", "", ""]
    assert texts(AveragelyByCircle(), list("abcde"), q=3) == ["q:0", "q:1", "q:2", "", ""]


def test_as_many_queues_as_members_give_each_one() -> None:
    assert texts(Averagely(), list("abc"), q=3) == ["q:0", "q:1", "q:2"]


def test_a_client_id_listed_twice_gets_the_share_of_its_first_place_and_the_second_is_lost() -> None:
    members = ["a", "a", "b"]
    assert short(Averagely().allocate(request("a", members, queues(q=5)))) == "q:0 q:1"
    assert short(Averagely().allocate(request("b", members, queues(q=5)))) == "q:4"


@pytest.mark.parametrize(("strategy", "name"), [(Averagely(), "AVG"), (AveragelyByCircle(), "AVG_BY_CIRCLE")])
def test_the_names_are_rocketmqs(strategy: Averagely | AveragelyByCircle, name: str) -> None:
    assert strategy.name == name
