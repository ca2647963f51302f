"""A message that blocks an ordered queue: which attempts are logged, and the logged reason for its end."""

from __future__ import annotations

import pytest

from pointsman_client.core.retry_rules import BlockedQueue, unblock_hint


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
