"""An operator's reset: in force everywhere when it is answered, and undone by nothing that comes later."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from prometheus_client import CollectorRegistry

from pointsman.clock import utc_millis
from pointsman.manual_clock import ManualClock
from pointsman.v1 import consumer_group_service_pb2 as groups_wire
from pointsman.v1 import offset_service_pb2 as wire
from pointsman.v1.offset_service_pb2_grpc import OffsetServiceStub
from pointsman_agent.core.loads_since_reset import REFUSED_MILLIS
from pointsman_agent.core.offset_epoch import MAX_AHEAD_MILLIS
from pointsman_agent.core.offsets import Offsets
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.replica_offsets import ReplicaOffsets
from pointsman_agent.offsets.file_store import FileStore
from pointsman_agent.offsets.flusher import Flusher, OffsetMetrics
from tests.kit.agent.consumer_agents import ConsumerAgent
from tests.kit.agent.group_clients import OWN_CONNECTION, Consumer, reads
from tests.kit.refusal import refusal_of

if TYPE_CHECKING:
    from pointsman.v1.offset_service_pb2_grpc import OffsetServiceAsyncStub  # of the stubs alone

Q0, Q1 = QueueKey("orders", 0), QueueKey("orders", 1)


class Client:
    """A client of an agent with its own connection; ``epochs``: whether it states them, as version 0.2 does."""

    def __init__(self, addr: str, *, epochs: bool = True) -> None:
        self.channel = grpc.aio.insecure_channel(addr, options=OWN_CONNECTION)
        self.stub: OffsetServiceAsyncStub = OffsetServiceStub(self.channel)
        self._states_epochs = epochs
        self._epochs: dict[int, int] = {}

    async def load(self, *ids: int) -> dict[int, int]:
        queues = [wire.QueueOffset(topic="orders", queue_id=each) for each in ids]
        found = (await self.stub.GetOffsets(wire.GetOffsetsRequest(group="g", queues=queues))).offsets
        self._epochs |= {each.queue_id: each.epoch for each in found}
        return {each.queue_id: each.offset for each in found}

    def commit_request(self, offsets: Mapping[int, int], *, reset: bool = False) -> wire.CommitOffsetsRequest:
        request = wire.CommitOffsetsRequest(group="g", reset=reset)
        for queue_id, offset in offsets.items():
            epoch = self._epochs.get(queue_id, 0) if self._states_epochs else None
            request.offsets.add(topic="orders", queue_id=queue_id, offset=offset, epoch=epoch)
        return request

    async def commit(self, offsets: Mapping[int, int], *, reset: bool = False) -> dict[int, int]:
        response = await self.stub.CommitOffsets(self.commit_request(offsets, reset=reset))
        return {each.queue_id: each.offset for each in response.kept}

    async def reset(self, offsets: Mapping[int, int], expected: Mapping[int, int] | None = None) -> dict[int, int]:
        """Reset; return the epochs."""
        response = await self.stub.ResetOffsets(reset_request(offsets, expected))
        return {each.queue_id: each.epoch for each in response.offsets}


def reset_request(offsets: Mapping[int, int], expected: Mapping[int, int] | None = None) -> wire.ResetOffsetsRequest:
    request = wire.ResetOffsetsRequest(group="g", topic="orders")
    for queue_id, offset in offsets.items():
        request.queues.add(queue_id=queue_id, offset=offset, expected=(expected or {}).get(queue_id))
    return request


@pytest.fixture
async def agent(clock: ManualClock) -> AsyncIterator[ConsumerAgent]:
    serving = ConsumerAgent("a", clock=clock)
    await serving.start()
    yield serving
    await serving.stop()


@pytest.fixture
async def client(agent: ConsumerAgent) -> AsyncIterator[Client]:
    one = Client(agent.addr)
    yield one
    await one.channel.close()


async def test_a_reset_is_stored_when_it_is_answered_and_outlives_a_crash_and_late_commits(
    agent: ConsumerAgent, client: Client, clock: ManualClock
) -> None:
    await client.commit({0: 100, 1: 100})
    await client.load(0, 1)
    operator = Client(agent.addr)
    assert await operator.reset({0: 10}) == {0: utc_millis(clock)}
    await agent.stop()  # a crash: it is not asked to write
    await agent.start()
    assert await client.commit({0: 101, 1: 101}) == {0: 10}
    assert await client.commit({0: 101}, reset=True) == {0: 10}
    assert await client.load(0) == {0: 10}
    assert await client.commit({0: 11}) == {}
    assert await client.load(0, 1) == {0: 11, 1: 101}
    await operator.channel.close()


async def test_a_store_that_fails_is_said_and_the_same_request_again_stores_it(
    agent: ConsumerAgent, client: Client
) -> None:
    agent.store.problem = "the disk is full"
    refusal = await refusal_of(client.stub.ResetOffsets(reset_request({0: 10})))
    assert (refusal.status, refusal.details.code) == (grpc.StatusCode.UNAVAILABLE, "NOT_STORED")
    assert "the disk is full" in refusal.message
    agent.store.problem = ""
    await client.reset({0: 10})
    await agent.stop()
    await agent.start()
    assert await client.load(0) == {0: 10}


async def test_of_two_resets_the_later_one_holds_and_each_is_answered(client: Client) -> None:
    await client.commit({0: 100})
    first, second = await client.reset({0: 10}), await client.reset({0: 50})
    assert second[0] > first[0]
    assert await client.load(0) == {0: 50}


async def test_an_offset_that_is_not_the_expected_one_refuses_the_whole_reset(client: Client) -> None:
    await client.commit({0: 100})
    refusal = await refusal_of(client.stub.ResetOffsets(reset_request({1: 5, 0: 10}, expected={0: 99})))
    assert (refusal.status, refusal.details.code) == (grpc.StatusCode.FAILED_PRECONDITION, "RESET_REFUSED")
    assert refusal.message == "group g is at offset 100 in queue 0 of topic orders, not at 99: nothing was reset"
    refusal = await refusal_of(client.stub.ResetOffsets(reset_request({1: 5}, expected={1: 0})))
    assert "has no committed offset in queue 1" in refusal.message
    assert await client.load(0, 1) == {0: 100}
    await client.reset({0: 10}, expected={0: 100})
    assert await client.load(0) == {0: 10}


async def test_members_are_notified_in_any_number_and_other_groups_are_not(agent: ConsumerAgent) -> None:
    operator = Client(agent.addr)
    members = [Consumer(agent.addr, f"10.0.0.{n}@1", reads("g"), reads(f"other{n}")) for n in range(3)]
    stranger = Consumer(agent.addr, "10.0.0.9@1", reads("other"))
    for each in (*members, stranger):
        await each.beat()
    await operator.reset({0: 10})
    for each in members:
        assert list((await each.answer()).reset_groups) == ["g"]
        assert (await each.beat()).reset_groups == []
    assert (await stranger.beat()).reset_groups == []
    for one in (*members, stranger):
        await one.crash()
    await operator.channel.close()


async def test_a_reset_that_a_commit_brings_from_another_agent_notifies_members_too(agent: ConsumerAgent) -> None:
    client = Client(agent.addr)
    member = Consumer(agent.addr, "10.0.0.1@1", reads("g"))
    await member.beat()
    request = wire.CommitOffsetsRequest(
        group="g", offsets=[wire.QueueOffset(topic="orders", queue_id=0, offset=7, epoch=1_000)]
    )
    await client.stub.CommitOffsets(request)
    assert list((await member.answer()).reset_groups) == ["g"]
    await client.stub.CommitOffsets(request)
    assert (await member.beat()).reset_groups == []
    await member.crash()
    await client.channel.close()


async def test_a_broadcasting_group_is_refused(agent: ConsumerAgent, client: Client) -> None:
    member = Consumer(agent.addr, "10.0.0.1@1", reads("g", model=groups_wire.MESSAGE_MODEL_BROADCASTING))
    await member.beat()
    refusal = await refusal_of(client.stub.ResetOffsets(reset_request({0: 10})))
    assert refusal.message == "group g broadcasts: each member stores its own offsets"
    await member.crash()


async def test_a_client_that_states_no_epoch_may_commit_after_it_loaded_or_an_hour(
    agent: ConsumerAgent, client: Client, clock: ManualClock
) -> None:
    older, newer = Client(agent.addr, epochs=False), Client(agent.addr, epochs=False)
    await older.commit({0: 100, 1: 100})
    await client.reset({0: 10})
    refusal = await refusal_of(older.stub.CommitOffsets(older.commit_request({1: 101, 0: 101})))
    assert (refusal.status, refusal.fields) == (grpc.StatusCode.OUT_OF_RANGE, ["offsets[1]"])
    assert "an operator has reset the offset of queue 0 of topic 'orders'" in refusal.message
    await older.commit({1: 101})
    assert await newer.load(0, 1) == {0: 10, 1: 101}
    await newer.commit({0: 11})
    assert await client.load(0) == {0: 11}
    await client.reset({0: 5})
    assert (await refusal_of(newer.stub.CommitOffsets(newer.commit_request({0: 12})))).fields == ["offsets[0]"]
    await clock.advance(REFUSED_MILLIS / 1000 + 1)
    await older.commit({0: 102})
    assert await client.load(0) == {0: 102}
    for each in (older, newer):
        await each.channel.close()


async def test_an_epoch_far_ahead_of_the_clock_is_refused(client: Client, clock: ManualClock) -> None:
    too_late = utc_millis(clock) + MAX_AHEAD_MILLIS + 1
    request = wire.CommitOffsetsRequest(
        group="g", offsets=[wire.QueueOffset(topic="orders", queue_id=0, offset=7, epoch=too_late)]
    )
    refusal = await refusal_of(client.stub.CommitOffsets(request))
    assert (refusal.status, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["offsets[0].epoch"])
    assert str(too_late) in refusal.message


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (wire.ResetOffsetsRequest(group="g", topic="orders"), "queues must have at least one entry"),
        (wire.ResetOffsetsRequest(topic="orders", queues=[wire.QueueReset()]), "group must not be empty"),
        (wire.ResetOffsetsRequest(group="g", topic="no", queues=[wire.QueueReset()]), "is not a topic of this broker"),
        (
            wire.ResetOffsetsRequest(group="g", topic="orders", queues=[wire.QueueReset(queue_id=2_000)]),
            "queues[0].queue_id is beyond the 2000 queues",
        ),
        (
            wire.ResetOffsetsRequest(group="g", topic="orders", queues=[wire.QueueReset(), wire.QueueReset()]),
            "queues[1]",
        ),
    ],
)
async def test_an_invalid_reset_is_refused_by_field(
    client: Client, request_: wire.ResetOffsetsRequest, said: str
) -> None:
    refusal = await refusal_of(client.stub.ResetOffsets(request_))
    assert refusal.status is grpc.StatusCode.INVALID_ARGUMENT
    assert said in refusal.message


async def test_a_reset_beyond_the_end_is_out_of_range(agent: ConsumerAgent, client: Client) -> None:
    agent.ends.table = {Q0: 10}
    refusal = await refusal_of(client.stub.ResetOffsets(reset_request({0: 11})))
    assert refusal.fields == ["queues[0].offset"]
    await client.reset({0: 10, 1: 99})


async def test_every_queue_of_a_topic_is_listed_with_what_is_known(agent: ConsumerAgent, client: Client) -> None:
    agent.ends.first, agent.ends.table = {Q0: 3}, {Q0: 40}
    await client.commit({0: 5, 1: 6})
    epochs = await client.reset({1: 2})
    request = wire.ListTopicOffsetsRequest(group="g", topic="orders")
    listed = (await client.stub.ListTopicOffsets(request)).queues
    assert len(listed) == 2_000
    assert listed[0] == wire.TopicQueueOffset(queue_id=0, committed=5, min_offset=3, max_offset=40)
    assert listed[1] == wire.TopicQueueOffset(queue_id=1, committed=2, epoch=epochs[1])
    assert listed[2] == wire.TopicQueueOffset(queue_id=2)
    request = wire.ListTopicOffsetsRequest(group="g", topic="nothing")
    assert (await refusal_of(client.stub.ListTopicOffsets(request))).status is grpc.StatusCode.NOT_FOUND
    request = wire.ListTopicOffsetsRequest(group="g", topic="%RETRY%g")
    assert len((await client.stub.ListTopicOffsets(request)).queues) == 16


async def test_a_slaves_agent_keeps_a_reset_on_its_disk_until_the_master_has_it(
    clock: ManualClock, tmp_path: Path
) -> None:
    def flusher_of(pending: Offsets) -> Flusher:
        store = FileStore(tmp_path / "pending.db", clock=clock)
        return Flusher(pending, store, interval=5.0, clock=clock, metrics=OffsetMetrics(CollectorRegistry()))

    slave = ReplicaOffsets(Offsets(), Offsets(), is_master=lambda: False)
    flusher = flusher_of(slave.pending)
    await flusher.refresh()
    slave.commit("g", {Q0: 500}, reset=False, now=1)
    epochs = slave.reset("g", {Q0: 10}, now=utc_millis(clock))
    await flusher.finish(3.0)
    restarted = ReplicaOffsets(Offsets(), Offsets(), is_master=lambda: False)
    again = flusher_of(restarted.pending)
    await again.refresh()
    assert restarted.commit("g", {Q0: 501}, epochs={Q0: 0}, reset=False, now=1) == {Q0: 10}
    (part,) = restarted.parts()
    assert (part.offsets, part.epochs) == ({Q0: 10}, epochs)
    await again.finish(3.0)
