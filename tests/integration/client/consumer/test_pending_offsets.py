"""Offsets of queues that were released while their broker's agent was down."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

import grpc

from pointsman.wire.error_details import ErrorDetails
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import AgentFailedError, OffsetResetError, PointsmanError, RequestRejectedError
from pointsman_client.pointsman_grpc.agents.offset_store import PendingOffsets
from pointsman_client.ports.coordination import BegunTopics, LoadedOffsets

Q0, Q1 = (MessageQueue("orders", "c1", "a", number) for number in range(2))
AWAY = AgentFailedError("a:1", grpc.StatusCode.UNAVAILABLE, "refused")
REFUSED = RequestRejectedError("a:1", grpc.StatusCode.OUT_OF_RANGE, "beyond the end", ErrorDetails())


class Agent:
    """A store as an agent is one: never backwards unless reset."""

    def __init__(self) -> None:
        self.error: PointsmanError | None = None
        self.offsets: dict[MessageQueue, int] = {}
        self.epochs: list[dict[MessageQueue, int]] = []
        """Of each commit."""

    async def load(self, queues: Collection[MessageQueue]) -> LoadedOffsets:
        if self.error is not None:
            return LoadedOffsets({}, dict.fromkeys(queues, self.error))
        return LoadedOffsets({queue: self.offsets[queue] for queue in queues if queue in self.offsets}, {})

    async def begin(self, moments: Mapping[str, datetime]) -> BegunTopics:
        return BegunTopics(moments, {})

    async def commit(
        self,
        offsets: Mapping[MessageQueue, int],
        *,
        reset: bool = False,
        epochs: Mapping[MessageQueue, int] | None = None,
    ) -> Mapping[MessageQueue, PointsmanError]:
        self.epochs.append(dict(epochs or {}))
        if self.error is not None:
            return dict.fromkeys(offsets, self.error)
        for queue, offset in offsets.items():
            self.offsets[queue] = offset if reset else max(offset, self.offsets.get(queue, 0))
        return {}


async def test_a_failed_commit_is_retried_before_the_queue_is_read_again() -> None:
    agent = Agent()
    store = PendingOffsets(agent)
    await store.commit({Q0: 5})
    agent.error = AWAY
    assert await store.commit({Q0: 9}) == {Q0: AWAY}
    assert (await store.load([Q0])).unknown == {Q0: AWAY}
    agent.error = None
    assert (await store.load([Q0, Q1])).offsets == {Q0: 9}
    assert store.pending == {}


async def test_pending_offsets_go_with_the_next_commit_and_never_revert_what_another_member_read() -> None:
    agent = Agent()
    store = PendingOffsets(agent)
    agent.error = AWAY
    await store.commit({Q0: 9})
    agent.error = None
    agent.offsets[Q0] = 12
    assert await store.commit({Q1: 1}) == {}
    assert agent.offsets == {Q0: 12, Q1: 1}
    assert store.pending == {}


async def test_a_failure_of_pending_offsets_fails_no_other_commit() -> None:
    agent = Agent()
    store = PendingOffsets(agent)
    agent.error = AWAY
    await store.commit({Q0: 9})
    assert await store.commit({Q1: 1}) == {Q1: AWAY}
    assert store.pending == {Q0: 9, Q1: 1}


async def test_an_offset_that_is_refused_or_reset_is_no_longer_pending() -> None:
    agent = Agent()
    store = PendingOffsets(agent)
    agent.error = AWAY
    await store.commit({Q0: 9, Q1: 9})
    await store.commit({Q1: 2}, reset=True)
    assert store.pending == {Q0: 9}
    agent.error = REFUSED
    await store.load([Q0])
    assert store.pending == {}


async def test_a_pending_offset_keeps_the_epoch_under_which_it_was_read_and_is_dropped_after_a_later_reset() -> None:
    agent = Agent()
    store = PendingOffsets(agent)
    agent.error = AWAY
    await store.commit({Q0: 9}, epochs={Q0: 7})
    agent.error = OffsetResetError(str(Q0), offset=1, epoch=8)
    await store.load([Q0])
    assert agent.epochs == [{Q0: 7}, {Q0: 7}]
    assert store.pending == {}
