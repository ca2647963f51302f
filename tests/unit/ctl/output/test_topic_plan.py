"""What a change of a topic does: steps of each broker, groups that must read first, keys that move."""

from __future__ import annotations

import pytest

from pointsman_ctl.output.topic_plan import TopicChange, TopicPlan, groups_behind
from pointsman_ctl.servers.topic_brokers import HeldQueue, HeldTopic, TopicGroup, TopicSettings


def held(read: int, write: int, *messages: int, perm: int = 6) -> HeldTopic:
    """A topic whose queues hold these numbers of messages, from offset 10 on."""
    queues = tuple(HeldQueue(number, 10, 10 + count, count) for number, count in enumerate(messages))
    return HeldTopic(TopicSettings(read, write, perm), queues)


def change(topic: HeldTopic, after: TopicSettings | None, *groups: TopicGroup, broker: str = "c1/a") -> TopicChange:
    return TopicChange("10.0.0.1:9880", broker, topic, groups, after)


@pytest.mark.parametrize(
    ("topic", "to", "first", "going"),
    [
        (held(4, 4, 0, 0, 0, 0), 2, (4, 2, 6), [2, 3]),
        # Left by a command that was interrupted.
        (held(4, 2, 0, 0, 0, 0), 2, (4, 2, 6), [2, 3]),
        (held(4, 2, 0, 0, 0, 0), 3, (4, 3, 6), [3]),
        (held(4, 4, 0, 0, 0, 0), 8, (8, 8, 6), []),
        (held(2, 4, 0, 0, 0, 0), 4, (4, 4, 6), []),
    ],
)
def test_queues_that_go_stay_readable_in_the_first_step(
    topic: HeldTopic, to: int, first: tuple[int, int, int], going: list[int]
) -> None:
    planned = change(topic, TopicSettings(to, to))
    assert planned.first == first
    assert [each.queue_id for each in planned.going] == going


def test_groups_with_messages_in_queues_that_go_are_behind_from_the_first_message_on() -> None:
    topic = held(4, 4, 0, 0, 5, 0)
    going = list(topic.queues[2:])
    done, part, new = (
        TopicGroup("done", 1, committed={2: 15}),
        TopicGroup("part", 1, committed={2: 12}),
        TopicGroup("new", 1),
    )
    old = TopicGroup("old", 0, committed={2: 3})
    found = {
        each.group.group: (each.messages, each.is_stuck)
        for each in groups_behind("c1/a", [done, part, new, old], going)
    }
    assert found == {"part": (3, False), "new": (5, False), "old": (5, True)}


def test_a_broadcasting_group_is_stuck_while_messages_are_there() -> None:
    screens = TopicGroup("screens", 3, is_broadcasting=True)
    (behind,) = groups_behind("c1/a", [screens], [HeldQueue(2, 0, 5, 5)])
    assert (behind.is_stuck, "broadcasting" in behind.text()) == (True, True)
    assert groups_behind("c1/a", [screens], [HeldQueue(2, 5, 5, 0)]) == []


def test_keys_move_over_all_brokers_of_the_topic() -> None:
    plan = TopicPlan(
        "orders",
        [change(held(4, 4, 0, 0, 0, 0), TopicSettings(6, 6))],
        others=[("c1/b", held(2, 2, 0, 0)), ("c1/c", held(2, 2, 0, 0, perm=4))],
    )
    moves = plan.key_moves
    assert (len(moves.before), len(moves.after), moves.changed) == (6, 8, 2)


def test_a_deletion_leaves_all_messages_without_use() -> None:
    plan = TopicPlan("orders", [change(held(2, 2, 3, 4), None, TopicGroup("billing", 2))])
    assert (plan.unused_messages, plan.groups) == (7, {"billing": 2})
    (broker,) = plan.document()["brokers"]
    assert (broker["after"], broker["queuesGoing"]) == (None, [0, 1])


def test_a_topic_that_is_as_wanted_concerns_no_group() -> None:
    plan = TopicPlan("orders", [change(held(2, 2, 1, 1), TopicSettings(2, 2), TopicGroup("billing", 2))])
    assert (plan.open_changes, plan.groups, plan.behind) == ([], {}, [])
    assert plan.changes[0].text() == "already 2 queues, rw"


def test_an_agent_that_reports_no_ends_leaves_them_unknown() -> None:
    topic = HeldTopic(TopicSettings(2, 2), tuple(map(HeldQueue, range(2))))
    planned = change(topic, TopicSettings(1, 1), TopicGroup("billing", 1))
    assert planned.has_unknown_ends
    assert not change(topic, TopicSettings(3, 3)).has_unknown_ends
