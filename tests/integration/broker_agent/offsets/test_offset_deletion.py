"""Deletion of a group's offsets by an operator: stored when it is answered, and refused while the group is in use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1 import offset_service_pb2 as wire
from pointsman.v1.offset_service_pb2_grpc import OffsetServiceStub
from pointsman_agent.core.queue import QueueKey
from tests.kit.agent.consumer_agents import ConsumerAgent
from tests.kit.agent.group_clients import OWN_CONNECTION, Consumer, reads
from tests.kit.refusal import refusal_of

if TYPE_CHECKING:
    from pointsman.v1.offset_service_pb2_grpc import OffsetServiceAsyncStub  # of the stubs alone

Q0, Q1 = QueueKey("orders", 0), QueueKey("orders", 1)
DELETE = wire.DeleteOffsetsRequest(group="g", by="ops")


@pytest.fixture
async def agent(clock: ManualClock) -> AsyncIterator[ConsumerAgent]:
    serving = ConsumerAgent("a", clock=clock)
    await serving.start()
    yield serving
    await serving.stop()


@pytest.fixture
async def stub(agent: ConsumerAgent) -> AsyncIterator[OffsetServiceAsyncStub]:
    async with grpc.aio.insecure_channel(agent.addr, options=OWN_CONNECTION) as channel:
        yield OffsetServiceStub(channel)


def commit(agent: ConsumerAgent, group: str = "g") -> None:
    agent.replica_offsets.commit(group, {Q0: 5, Q1: 6}, reset=False, now=1)


async def test_everything_of_the_group_is_gone_also_after_a_crash(
    agent: ConsumerAgent, stub: OffsetServiceAsyncStub
) -> None:
    commit(agent)
    commit(agent, "h")
    await agent.flusher.flush()
    assert (await stub.DeleteOffsets(DELETE)).offset_count == 2
    assert (await stub.DeleteOffsets(DELETE)).offset_count == 0
    await agent.stop()  # a crash: it is not asked to write
    await agent.start()

    assert agent.offsets.groups() == ["h"]


async def test_a_group_with_a_member_is_refused(agent: ConsumerAgent, stub: OffsetServiceAsyncStub) -> None:
    commit(agent)
    member = Consumer(agent.addr, "10.0.0.1@1", reads("g"))
    await member.beat()
    refusal = await refusal_of(stub.DeleteOffsets(DELETE))
    await member.crash()

    assert (refusal.status, refusal.details.code) == (grpc.StatusCode.FAILED_PRECONDITION, "GROUP_IN_USE")
    assert refusal.message == "group g has 1 member here: nothing was deleted; stop its consumers first"
    assert agent.offsets.groups() == ["g"]


async def test_after_a_start_a_member_may_still_come_back(
    agent: ConsumerAgent, stub: OffsetServiceAsyncStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(agent)
    monkeypatch.setattr(agent.groups, "is_warming", lambda: True)
    refusal = await refusal_of(stub.DeleteOffsets(DELETE))

    assert refusal.status is grpc.StatusCode.UNAVAILABLE
    assert "may not know all members yet" in refusal.message
    assert agent.offsets.groups() == ["g"]


async def test_a_store_that_fails_is_said_and_the_same_request_again_stores_it(
    agent: ConsumerAgent, stub: OffsetServiceAsyncStub
) -> None:
    commit(agent)
    await agent.flusher.flush()
    agent.store.problem = "the disk is full"
    refusal = await refusal_of(stub.DeleteOffsets(DELETE))
    agent.store.problem = ""
    await stub.DeleteOffsets(DELETE)
    await agent.stop()
    await agent.start()

    assert (refusal.status, refusal.details.code) == (grpc.StatusCode.UNAVAILABLE, "NOT_STORED")
    assert "the offsets are deleted, but cannot be stored yet, so send it again: the disk is full" in refusal.message
    assert agent.offsets.is_empty


async def test_a_slave_forgets_what_the_master_may_not_have(agent: ConsumerAgent, stub: OffsetServiceAsyncStub) -> None:
    agent.is_master = False
    agent.replica_offsets.stored.absorb([])
    commit(agent)
    agent.replica_offsets.commit("g", {Q0: 1}, reset=True, now=1)
    assert not agent.replica_offsets.pending.is_empty
    await stub.DeleteOffsets(DELETE)
    agent.is_master = True

    assert agent.replica_offsets.pending.is_empty
    assert agent.replica_offsets.get("g", [Q0, Q1]) == {}


@pytest.mark.parametrize(
    ("request_", "field"),
    [(wire.DeleteOffsetsRequest(), "group"), (wire.DeleteOffsetsRequest(group="g", by="x" * 129), "by")],
)
async def test_bad_requests_name_the_field(
    stub: OffsetServiceAsyncStub, request_: wire.DeleteOffsetsRequest, field: str
) -> None:
    refusal = await refusal_of(stub.DeleteOffsets(request_))
    assert refusal.status is grpc.StatusCode.INVALID_ARGUMENT
    assert [each.field for each in refusal.details.violations] == [field]
