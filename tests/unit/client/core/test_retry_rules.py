"""The retries of a message that a listener failed to consume."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.retry_rules import (
    MAX_RECONSUME_TIMES,
    BlockedQueue,
    Destination,
    has_exhausted_attempts,
    send_back,
    unblock_hint,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)
BORN = AT - timedelta(hours=1)
MESSAGE = Message("orders", b"body", tags="t", keys=("k",), properties={"p": "1"})


def failed(times: int) -> ReceivedMessage:
    return ReceivedMessage(MESSAGE, MessageQueue("orders", "c1", "a", 3), 9, "id-1", BORN, times)


@pytest.mark.parametrize(
    ("times", "seconds"),
    list(enumerate([10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200])),
)
def test_the_delay_and_the_queue_follow_the_number_of_failures(times: int, seconds: int) -> None:
    back = send_back("billing", failed(times), max_reconsume_times=MAX_RECONSUME_TIMES, at=AT)
    assert back.destination is Destination.RETRY
    assert back.queue_of("c1", "a") == MessageQueue("%RETRY%billing", "c1", "a", times)
    assert back.message.due_at == AT + timedelta(seconds=seconds)
    assert back.message.reconsume_times == times + 1


def test_the_message_keeps_its_content() -> None:
    back = send_back("billing", failed(0), max_reconsume_times=16, at=AT)
    assert (back.message.message, back.message.message_id, back.message.born_at) == (MESSAGE, "id-1", BORN)


def test_after_16_tries_it_goes_to_the_dead_letters_without_delay() -> None:
    back = send_back("billing", failed(16), max_reconsume_times=MAX_RECONSUME_TIMES, at=AT)
    assert back.destination is Destination.DLQ
    assert back.queue_of("c1", "a") == MessageQueue("%DLQ%billing", "c1", "a", 0)
    assert back.message.due_at is None


def test_a_rejected_message_goes_to_the_dead_letters_at_its_first_failure_with_the_reason() -> None:
    back = send_back("billing", failed(0), max_reconsume_times=16, at=AT, error="no such order", is_rejected=True)
    assert back.destination is Destination.DLQ
    assert back.queue_of("c1", "a") == MessageQueue("%DLQ%billing", "c1", "a", 0)
    assert (back.message.due_at, back.message.error, back.message.reconsume_times) == (None, "no such order", 1)


def test_more_tries_than_delays_use_the_longest_delay() -> None:
    back = send_back("billing", failed(20), max_reconsume_times=30, at=AT)
    assert (back.queue_id, back.message.due_at) == (15, AT + timedelta(hours=2))


def test_an_ordered_consumer_stops_retrying_only_with_a_configured_limit() -> None:
    assert not has_exhausted_attempts(failed(1_000_000), max_reconsume_times=None)
    assert not has_exhausted_attempts(failed(2), max_reconsume_times=3)
    assert has_exhausted_attempts(failed(3), max_reconsume_times=3)


@pytest.mark.parametrize(("is_requested", "logged"), [(False, [1, 2, 4, 8, 16, 32, 64]), (True, [2, 4, 8, 16, 32, 64])])
def test_attempts_are_logged_ever_less_often(is_requested: bool, logged: list[int]) -> None:
    blocked = BlockedQueue(7, "id-1", since=10.0)
    assert [number for number in range(1, 101) if blocked.count(is_requested=is_requested)] == logged
    assert blocked.describe(now=50.0) == {
        "queueOffset": 7, "messageId": "id-1", "attempts": 100, "blockedSeconds": 40.0,
    }  # fmt: skip


def test_a_block_that_was_never_logged_is_marked() -> None:
    blocked = BlockedQueue(7, "id-1", since=0.0)
    assert not blocked.is_logged
    blocked.count(is_requested=True)
    assert not blocked.is_logged
    blocked.count(is_requested=False)
    assert blocked.is_logged


@pytest.mark.parametrize(
    ("times", "has_dead_letters", "ending"),
    [
        (None, True, "set max_reconsume_times to move such a message to the dead-letter topic"),
        (5, True, "after 6 failed attempts the message is moved to %DLQ%billing"),
        (5, False, "after 6 failed attempts the message is dropped"),
    ],
)
def test_the_log_has_the_reason_for_the_end_of_the_block(
    times: int | None, has_dead_letters: bool, ending: str
) -> None:
    text = unblock_hint("billing", max_reconsume_times=times, has_dead_letters=has_dead_letters)
    assert text.startswith("retrying every 1 s until the listener succeeds")
    assert text.endswith(ending)
