"""One queue's messages: what may be committed, delivered and pulled, against a naive model."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.process_queue import FlowLimits, LockTime, ProcessQueue

QUEUE = MessageQueue("orders", "c1", "a", 0)


def message(offset: int, size: int = 1) -> ReceivedMessage:
    return ReceivedMessage(Message.unchecked("orders", b"x" * size), QUEUE, offset, f"id-{offset}", None)


def queue_from(offset: int = 0, limits: FlowLimits | None = None) -> ProcessQueue:
    return ProcessQueue(offset, limits=limits or FlowLimits(), now=0.0)


def test_a_new_queue_may_commit_its_start() -> None:
    assert queue_from(7).commit_offset == 7


def test_the_commit_waits_for_the_lowest_unfinished_message() -> None:
    queue = queue_from()
    queue.put([message(0), message(1), message(2)], 3)
    first, second, third = queue.take(), queue.take(), queue.take()
    assert first is not None
    assert second is not None
    assert third is not None
    queue.finish(third)
    queue.finish(second)
    assert queue.commit_offset == 0
    queue.finish(first)
    assert queue.commit_offset == 3


def test_offsets_that_a_pull_left_out_count_as_finished() -> None:
    queue = queue_from()
    queue.put([message(4)], 10)
    assert queue.commit_offset == 4
    taken = queue.take()
    assert taken is not None
    queue.finish(taken)
    assert queue.commit_offset == 10


def test_a_message_given_back_is_the_next_and_one_failure_richer() -> None:
    queue = queue_from()
    queue.put([message(0), message(1)], 2)
    first = queue.take()
    assert first is not None
    queue.give_back(first)
    again = queue.take()
    assert again is not None
    assert (again.queue_offset, again.reconsume_times) == (0, 1)


def test_finishing_after_a_move_does_not_finish_the_same_offset_again() -> None:
    queue = queue_from()
    queue.put([message(0)], 1)
    before = queue.take()
    assert before is not None
    queue.move_to(0)
    queue.put([message(0)], 1)
    queue.take()
    assert queue.in_flight == 2
    assert not queue.finish(before)
    assert (queue.commit_offset, queue.in_flight) == (0, 1)


@pytest.mark.parametrize(
    ("limits", "full_at"),
    [
        pytest.param(FlowLimits(messages=3), 3, id="messages"),
        pytest.param(FlowLimits(size_bytes=40), 4, id="size"),
        pytest.param(FlowLimits(span=5), 6, id="span"),
    ],
)
def test_a_queue_is_full_at_each_limit_and_not_before(limits: FlowLimits, full_at: int) -> None:
    queue = queue_from(0, limits)
    for count in range(1, full_at + 1):
        queue.put([message(count - 1, size=10)], count)
        assert queue.is_full == (count == full_at)
    taken = queue.take()
    assert taken is not None
    queue.finish(taken)
    assert not queue.is_full


def test_the_default_limits_are_rocketmqs() -> None:
    assert FlowLimits() == FlowLimits(messages=1_000, size_bytes=104_857_600, span=2_000)


def test_a_pull_is_expired_only_past_120_seconds() -> None:
    queue = queue_from()
    queue.last_pull_at = 1_000.0
    assert not queue.is_pull_expired(now=1_120.0)
    assert queue.is_pull_expired(now=1_120.001)


def test_a_dropped_queue_delivers_nothing_and_can_still_be_finished() -> None:
    queue = queue_from()
    queue.put([message(0), message(1)], 2)
    taken = queue.take()
    assert taken is not None
    queue.drop()
    assert queue.take() is None
    queue.finish(taken)
    assert queue.commit_offset == 1


def test_a_lock_is_trusted_for_30_seconds() -> None:
    lock = LockTime()
    assert not lock.is_held(now=0.0)
    lock.granted(now=100.0)
    assert lock.is_held(now=130.0)
    assert not lock.is_held(now=130.001)


class QueueAgainstModel(RuleBasedStateMachine):
    """The model: state of every offset ever pulled."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = queue_from(10)
        self.states: dict[int, str] = {}
        self.handed: dict[int, ReceivedMessage] = {}
        self.handed_before: list[ReceivedMessage] = []
        self.next = 10
        self.dropped = False

    @precondition(lambda self: not self.dropped)
    @rule(kept=st.lists(st.booleans(), max_size=5))
    def pull(self, kept: list[bool]) -> None:
        offsets = range(self.next, self.next + len(kept))
        wanted = [offset for offset, keep in zip(offsets, kept, strict=True) if keep]
        self.queue.put([message(offset, size=offset % 3) for offset in wanted], self.next + len(kept))
        self.states |= dict.fromkeys(wanted, "waiting")
        self.next += len(kept)

    @rule()
    def take(self) -> None:
        waiting = sorted(offset for offset, state in self.states.items() if state == "waiting")
        taken = self.queue.take()
        if self.dropped or not waiting:
            assert taken is None
            return
        assert taken is not None
        assert taken.queue_offset == waiting[0]
        self.states[waiting[0]] = "in flight"
        self.handed[waiting[0]] = taken

    @precondition(lambda self: self.handed)
    @rule(data=st.data(), gives_back=st.booleans())
    def end(self, data: st.DataObject, gives_back: bool) -> None:
        offset = data.draw(st.sampled_from(sorted(self.handed)))
        taken = self.handed.pop(offset)
        if gives_back:
            assert self.queue.give_back(taken)
            self.states[offset] = "waiting"
        else:
            assert self.queue.finish(taken)
            del self.states[offset]
        assert not self.queue.finish(taken)

    @rule(back=st.integers(0, 5))
    def move(self, back: int) -> None:
        self.next = max(0, self.next - back)
        self.queue.move_to(self.next)
        self.states.clear()
        self.handed_before += self.handed.values()
        self.handed.clear()

    @precondition(lambda self: self.handed_before)
    @rule(data=st.data(), gives_back=st.booleans())
    def end_before(self, data: st.DataObject, gives_back: bool) -> None:
        taken = self.handed_before.pop(data.draw(st.integers(0, len(self.handed_before) - 1)))
        assert not (self.queue.give_back(taken) if gives_back else self.queue.finish(taken))

    @precondition(lambda self: not self.dropped)
    @rule()
    def drop(self) -> None:
        self.queue.drop()
        self.dropped = True

    @invariant()
    def agrees(self) -> None:
        waiting = [offset for offset, state in self.states.items() if state == "waiting"]
        assert self.queue.commit_offset == min(self.states, default=self.next)
        assert self.queue.next_pull_offset == self.next
        assert self.queue.unfinished == len(self.states)
        assert self.queue.in_flight == len(self.handed) + len(self.handed_before)
        assert self.queue.size_bytes == sum(offset % 3 for offset in self.states)
        if not self.dropped:
            assert self.queue.waiting == len(waiting)
            assert self.queue.position == min(waiting, default=self.next)


TestQueueAgainstModel = QueueAgainstModel.TestCase
