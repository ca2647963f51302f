"""Leased messages of one queue: handed out once, while their leases are valid."""

from __future__ import annotations

from collections.abc import Sequence

from pointsman_client.consumer.leased_queue import LeasedQueue
from pointsman_client.core.message import Message, ReceivedMessage
from tests.kit.client.memory_group import queue_of

QUEUE = queue_of(0)


def message(offset: int) -> ReceivedMessage:
    return ReceivedMessage(Message("orders", b"x"), QUEUE, offset, str(offset), None)


class Made:
    def __init__(self, *offsets: int, is_ordered: bool = False) -> None:
        self.over: set[int] = set()
        self.finished: list[ReceivedMessage] = []
        self.given_up: list[int] = []
        self.queue = LeasedQueue(
            QUEUE,
            is_ordered=is_ordered,
            is_valid=lambda each: each.queue_offset not in self.over,
            finished=self.finished.append,
            given_up=self._give_up,
            is_full=lambda: False,
        )
        for offset in offsets:
            self.queue.put(message(offset))

    def _give_up(self, messages: Sequence[ReceivedMessage]) -> None:
        self.given_up += [each.queue_offset for each in messages]

    def take(self) -> ReceivedMessage:
        taken = self.queue.take()
        assert taken is not None
        return taken


def test_messages_are_handed_out_in_the_order_of_their_delivery() -> None:
    made = Made(4, 2)
    assert [made.take().queue_offset, made.take().queue_offset, made.queue.take()] == [4, 2, None]
    assert (made.queue.waiting, made.queue.in_flight, made.queue.unfinished) == (0, 2, 2)


def test_a_message_whose_lease_is_over_is_not_handed_out() -> None:
    made = Made(1, 2, 3)
    made.over = {1, 2}
    assert made.take().queue_offset == 3
    assert made.given_up == []
    assert made.queue.unfinished == 1


def test_behind_an_ordered_message_whose_lease_is_over_none_is_handed_out() -> None:
    made = Made(1, 2, 3, is_ordered=True)
    made.over = {1}
    assert made.queue.peek() is None
    assert made.given_up == [2, 3]


def test_a_message_that_is_given_back_counts_the_failure_and_is_finished_as_it_was_delivered() -> None:
    made = Made(1, 2, 3, is_ordered=True)
    first, second = made.take(), made.take()
    made.queue.give_back(second)
    made.queue.give_back(first)
    again = made.take()
    assert (again.queue_offset, again.reconsume_times) == (1, 1)
    assert made.queue.delivered(again) is first
    made.queue.finish(again)
    assert made.finished == [first]
    assert made.take().queue_offset == 2


def test_the_same_offset_may_be_delivered_again_while_its_listener_runs() -> None:
    made = Made(1)
    first = made.take()
    made.queue.put(message(1)._replace(reconsume_times=1))
    second = made.take()
    made.queue.finish(first)
    made.queue.finish(first)
    assert made.queue.in_flight == 1
    made.queue.finish(second)
    assert [each.reconsume_times for each in made.finished] == [0, 1]


def test_a_dropped_queue_hands_out_no_message_and_returns_those_that_waited() -> None:
    made = Made(1, 2, 3)
    running = made.take()
    assert [each.queue_offset for each in made.queue.drop()] == [2, 3]
    assert made.queue.is_dropped
    made.queue.give_back(running)
    assert made.queue.take() is None
    assert made.queue.unfinished == 0


def test_unwanted_messages_are_removed_as_they_were_delivered() -> None:
    made = Made(1, 2, 3)
    assert [each.queue_offset for each in made.queue.remove(lambda each: each.queue_offset != 2)] == [1, 3]
    assert made.take().queue_offset == 2
