"""Log messages about offsets that are not committed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client.consumer.offset_committer import OffsetCommitter
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.read_choice import RECOVERED_SECONDS
from pointsman_client.errors import BrokerUnreachableError, PointsmanError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.ports.coordination import BegunTopics, LoadedOffsets
from tests.kit.client.queues import queues


class Held:
    """The part of a held queue that a commit uses."""

    commit_offset = 1
    committed = 0
    needs_reset = False
    epoch = 0

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue


class Store:
    """Rejects the offsets of some queues; of others it has them already, so no request is needed."""

    def __init__(self) -> None:
        self.failing: tuple[MessageQueue, ...] = ()

    async def load(self, _: object) -> LoadedOffsets:
        return LoadedOffsets({}, {})

    async def begin(self, moments: Mapping[str, datetime]) -> BegunTopics:
        return BegunTopics(moments, {})

    async def commit(
        self,
        offsets: Mapping[MessageQueue, int],
        *,
        reset: bool = False,
        epochs: Mapping[MessageQueue, int] | None = None,  # noqa: ARG002  # of the port
    ) -> Mapping[MessageQueue, PointsmanError]:
        assert not reset
        return {queue: BrokerUnreachableError("agent", "it is away") for queue in offsets if queue in self.failing}


async def test_a_queue_with_nothing_to_commit_does_not_make_its_broker_healthy(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store, four = Store(), queues(q=4)
    held: Any = [Held(queue) for queue in four]
    committer = OffsetCommitter(store, group="billing", clock=clock, hook=MetricsHook())
    store.failing = (four[1], four[2])
    for _ in range(3):
        assert (await committer.commit(held)).keys() == set(store.failing)
    assert caplog.messages == [
        "offsets of group billing on broker c1/q cannot be committed: broker agent: it is away",
    ]
    store.failing = ()
    await clock.advance(RECOVERED_SECONDS)
    assert await committer.commit(held) == {}
    assert caplog.messages[1:] == ["offsets of group billing on broker c1/q are committed again"]
