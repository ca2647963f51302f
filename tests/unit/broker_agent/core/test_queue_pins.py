"""Pins of queues: the latest of a queue counts, they end by themselves, and there are bounds."""

from __future__ import annotations

import pytest

from pointsman_agent.core.group_rules import GroupLimitReached
from pointsman_agent.core.queue_pins import (
    MAX_QUEUE_PINS,
    MAX_QUEUE_PINS_OF_ALL,
    PinnedQueue,
    QueuePin,
    QueuePins,
)

Q0, Q1 = PinnedQueue("orders", "c1", "a", 0), PinnedQueue("orders", "c1", "a", 1)
A, B = "10.0.0.1@a", "10.0.0.1@b"


def pinned(*queues: PinnedQueue, group: str = "g", until: float = 60.0) -> QueuePins:
    pins = QueuePins()
    for queue in queues:
        pins = pins.with_pin(group, QueuePin(queue, A, until))
    return pins


def test_of_two_pins_of_one_queue_the_later_counts() -> None:
    pins = pinned(Q1, Q0).with_pin("g", QueuePin(Q1, B, 30.0))
    assert pins.of("g") == (QueuePin(Q0, A, 60.0), QueuePin(Q1, B, 30.0))


def test_a_pin_ends_at_its_time_and_the_others_stay() -> None:
    pins = pinned(Q0).with_pin("g", QueuePin(Q1, A, 90.0)).with_pin("other", QueuePin(Q0, A, 60.0))
    assert pins.next_end() == 60.0
    assert pins.lasting(59.9) is pins
    assert pins.lasting(60.0) == QueuePins({"g": (QueuePin(Q1, A, 90.0),)})
    assert pins.changed(pins.lasting(60.0)) == {"g", "other"}


def test_one_pin_or_all_of_a_group_are_removed() -> None:
    pins = pinned(Q0, Q1)
    assert pins.without("g", Q1) == pinned(Q0)
    assert pins.without("g", Q1._replace(cluster="")) == pinned(Q0)
    assert pins.without("g", Q1._replace(cluster="c2")) == pins
    assert pins.without("g") == QueuePins() == pins.without("g", Q0).without("g", Q1)
    assert pins.without("other") == pins


@pytest.mark.parametrize(
    ("target", "client_ids", "owner"),
    [
        pytest.param(A, (A, B), A, id="client-id"),
        pytest.param("10.0.0.1", (A, B), A, id="first-at-the-address"),
        pytest.param(A, (B,), "", id="another-client-at-the-address"),
        pytest.param("10.0.0", (A, B), "", id="part-of-an-address"),
    ],
)
def test_the_owner_is_a_member_that_the_pin_names(target: str, client_ids: tuple[str, ...], owner: str) -> None:
    assert QueuePin(Q0, target, 60.0).owner(client_ids) == owner


def test_a_group_has_a_bounded_number_of_pins_and_a_queue_may_be_pinned_again() -> None:
    pins = pinned(*(Q0._replace(queue_id=number) for number in range(MAX_QUEUE_PINS)))
    with pytest.raises(GroupLimitReached, match=f"at most {MAX_QUEUE_PINS} pinned queues of one group"):
        pins.with_pin("g", QueuePin(Q0._replace(queue_id=MAX_QUEUE_PINS), A, 60.0))
    assert pins.with_pin("g", QueuePin(Q0, B, 60.0)).of("g")[0].target == B


def test_all_groups_together_have_a_bounded_number_of_pins() -> None:
    full = pinned(*(Q0._replace(queue_id=number) for number in range(MAX_QUEUE_PINS))).of("g")
    pins = QueuePins({f"g{number}": full for number in range(MAX_QUEUE_PINS_OF_ALL // MAX_QUEUE_PINS)})
    with pytest.raises(GroupLimitReached, match=f"at most {MAX_QUEUE_PINS_OF_ALL} pinned queues"):
        pins.with_pin("new", QueuePin(Q0, A, 60.0))
    assert pins.with_pin("g0", QueuePin(Q0, B, 60.0)).of("g0")[0].target == B
