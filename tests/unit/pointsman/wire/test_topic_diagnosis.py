"""What is wrong with a topic, from the broker names that have it; the pages' test has the sentences."""

from __future__ import annotations

import pytest

from pointsman.wire.topic_diagnosis import TopicHolder, topic_problems, wiped_problems

READ, WRITE = 4, 2


def holder(
    name: str, *, is_up: bool = True, has_master: bool = True, perm: int = READ | WRITE, read: int = 4, write: int = 4
) -> TopicHolder:
    return TopicHolder(f"c1/{name}", is_up, has_master, perm, read, write)


@pytest.mark.parametrize(
    ("holders", "expected"),
    [
        ([holder("a"), holder("b")], []),
        ([holder("a")], []),
        ([holder("a", is_up=False)], [("NO_BROKER", True, "")]),
        ([holder("a"), holder("b", is_up=False)], [("ONE_LEFT", False, "c1/a"), ("BROKERS_DOWN", False, "c1/b")]),
        ([holder("a"), holder("b", has_master=False)], [("NO_MASTER", False, "c1/b")]),
        ([holder("a", has_master=False)], [("NOT_WRITABLE", True, ""), ("NO_MASTER", False, "c1/a")]),
        ([holder("a", perm=READ)], [("NOT_WRITABLE", True, "")]),
        ([holder("a", write=0)], [("NOT_WRITABLE", True, "")]),
        ([holder("a", perm=WRITE)], [("NOT_READABLE", True, "")]),
        ([holder("a", read=0)], [("NOT_READABLE", True, "")]),
    ],
)
def test_the_worst_problem_of_a_topic_comes_first(
    holders: list[TopicHolder], expected: list[tuple[str, bool, str]]
) -> None:
    assert [(each.kind, each.is_alarm, each.broker) for each in topic_problems(holders)] == expected


def test_of_many_broker_names_three_are_named() -> None:
    problems = topic_problems([holder("a"), *(holder(name, is_up=False) for name in "bcdef")])
    assert [problem.text for problem in problems] == [
        "one broker name is left of 6: c1/a. Its outage would be one of the topic",
        "5 broker names of 6 not in the routes: c1/b, c1/c, c1/d and 2 more",
    ]


def test_each_wiped_permission_is_a_problem_of_its_broker() -> None:
    found = list(wiped_problems([holder("a"), holder("b")._replace(is_wiped=True)]))
    assert [(each.kind, each.broker) for each in found] == [("WIPED", "c1/b")]
