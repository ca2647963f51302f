"""ListGroupQueues: what members report with their heartbeats, beside committed offsets and measurements."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from prometheus_client import CollectorRegistry, generate_latest

from pointsman.manual_clock import ManualClock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.v1 import offset_service_pb2 as offset_wire
from pointsman.v1.offset_service_pb2_grpc import OffsetServiceStub
from pointsman_agent.core.group_membership import MembershipBeat
from pointsman_agent.core.group_progress import Standing
from pointsman_agent.core.measured_queue_stats import QueueEnd
from pointsman_agent.core.offsets import OffsetKey
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.groups import group_codec
from pointsman_agent.groups.stuck_queues import StuckQueue
from tests.kit.agent.group_clients import Consumer, reads
from tests.kit.agent.services import AgentServices, agent_services
from tests.kit.refusal import refusal_of

A, B = "10.0.0.1@a", "10.0.0.2@b"
Q0, Q1 = QueueKey("orders", 0), QueueKey("orders", 1)


@pytest.fixture
async def agent(clock: ManualClock) -> AsyncIterator[AgentServices]:
    async with agent_services(clock=clock) as agent:
        await clock.advance(0.1)
        yield agent


@pytest.fixture
async def consumer(agent: AgentServices) -> AsyncIterator[Consumer]:
    consumer = Consumer(agent.addr, A)
    yield consumer
    await consumer.crash()


def queue(number: int, *, position: int = 5, call: int | None = None, is_waiting: bool = False) -> wire.QueueReading:
    oldest_call = None if call is None else Duration(seconds=call)
    return wire.QueueReading(
        queue_id=number, position=position, committed=4, in_flight=1, oldest_call=oldest_call, is_waiting=is_waiting
    )


def reading(*queues: wire.QueueReading, topic: str = "orders", released: tuple[int, ...] = ()) -> wire.GroupReading:
    return wire.GroupReading(
        group="g",
        topics=[wire.TopicReading(topic=topic, queues=queues, released=released)],
        retries=3,
        dead_letters=1,
        rebalances=[wire.RebalanceCount(trigger="members", count=2)],
    )


async def report(consumer: Consumer, *readings: wire.GroupReading) -> wire.KeepMembershipResponse:
    return await consumer.beat(reads("g"), readings=readings)


async def listed(consumer: Consumer) -> dict[QueueKey, wire.GroupQueue]:
    response = await consumer.stub.ListGroupQueues(wire.ListGroupQueuesRequest(group="g"))
    return {QueueKey(each.topic, each.reading.queue_id): each for each in response.queues}


def measure(agent: AgentServices, number: QueueKey, committed: int, end: int) -> None:
    """As the agent measures a queue and the offset of the group in it."""
    now = agent.clock.monotonic()
    agent.offsets.commit("g", {number: committed})
    agent.ends.table[number] = end
    agent.meter.take({number: QueueEnd(0, end, end)}, now=now)
    agent.progress.take(OffsetKey("g", *number), committed, max_offset=end, now=now)


async def test_a_queue_has_its_reader_its_lag_and_its_rates(
    agent: AgentServices, consumer: Consumer, clock: ManualClock
) -> None:
    await report(consumer, reading(queue(0, position=12, call=2), queue(1)))
    measure(agent, Q0, 10, 40)
    await clock.advance(10.0)
    measure(agent, Q0, 30, 140)

    response = await consumer.stub.ListGroupQueues(wire.ListGroupQueuesRequest(group="g"))
    first, second = response.queues
    assert (first.topic, first.client_id, first.committed, first.max_offset) == ("orders", A, 30, 140)
    assert (first.put_rate, first.commit_rate) == (10.0, 2.0)
    assert (first.reading.queue_id, first.reading.position, first.reading.in_flight) == (0, 12, 1)
    assert first.reading.oldest_call.ToTimedelta().total_seconds() == pytest.approx(12.0)
    assert first.standing == wire.QUEUE_STANDING_UNSPECIFIED
    assert (second.client_id, second.HasField("committed"), second.HasField("put_rate")) == (A, False, False)
    (member,) = response.members
    assert (member.client_id, member.retries, member.dead_letters) == (A, 3, 1)
    assert [(each.trigger, each.count) for each in member.rebalances] == [("members", 2)]


async def test_a_call_that_does_not_end_is_stuck_until_the_member_reports_its_end(
    agent: AgentServices, consumer: Consumer, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()
    registry.register(agent.groups.collector())
    caplog.set_level(logging.INFO, logger="pointsman_agent.groups.stuck_queues")
    await report(consumer, reading(queue(0, call=10), queue(1)))
    await clock.advance(45.0)
    assert {each.standing for each in (await listed(consumer)).values()} == {wire.QUEUE_STANDING_UNSPECIFIED}
    await clock.advance(10.0)
    standings = {key: each.standing for key, each in (await listed(consumer)).items()}
    assert standings == {Q0: wire.QUEUE_STANDING_STUCK_CALL, Q1: wire.QUEUE_STANDING_UNSPECIFIED}
    await clock.advance(15.0)
    assert agent.groups.stuck.named == (StuckQueue("g", Q0, A, Standing.STUCK_CALL),)
    place = 'client_id="10.0.0.1@a",group="g",queue="0",topic="orders",why="stuck_call"'
    assert f"pointsman_agent_stuck_queue{{{place}}} 1.0" in generate_latest(registry).decode()

    await report(consumer, reading(queue(0, position=6)))
    assert (await listed(consumer))[Q0].standing == wire.QUEUE_STANDING_UNSPECIFIED
    await clock.advance(15.0)
    assert agent.groups.stuck.count == 0
    assert "pointsman_agent_stuck_queue{" not in generate_latest(registry).decode()
    stuck = [each for each in caplog.records if "stuck" in each.getMessage()]
    assert [each.getMessage() for each in stuck] == ["a queue is stuck", "a queue is no longer stuck"]


async def test_a_queue_has_the_time_since_its_last_commit(
    agent: AgentServices, consumer: Consumer, clock: ManualClock
) -> None:
    await report(consumer, reading(queue(0), queue(1)))
    agent.ends.table[Q0] = 40
    offset = offset_wire.QueueOffset(topic="orders", queue_id=0, offset=7)
    async with grpc.aio.insecure_channel(agent.addr) as channel:
        for _ in range(2):
            await clock.advance(30.0)
            await report(consumer)
            request = offset_wire.CommitOffsetsRequest(group="g", offsets=[offset])
            await OffsetServiceStub(channel).CommitOffsets(request)
    await clock.advance(4.0)
    found = await listed(consumer)
    assert found[Q0].since_commit.ToTimedelta().total_seconds() == pytest.approx(4.0)
    assert not found[Q1].HasField("since_commit")


async def test_an_offset_that_does_not_move_is_stuck_unless_the_queue_is_waiting(
    agent: AgentServices, consumer: Consumer, clock: ManualClock
) -> None:
    await report(consumer, reading(queue(0), queue(1, is_waiting=True)))
    for end in (40, 50):
        measure(agent, Q0, 10, end)
        measure(agent, Q1, 10, end)
        await clock.advance(70.0)
        await report(consumer)

    found = await listed(consumer)
    assert {key: each.standing for key, each in found.items()} == {
        Q0: wire.QUEUE_STANDING_STUCK_OFFSET,
        Q1: wire.QUEUE_STANDING_UNSPECIFIED,
    }
    assert found[Q0].still_for.ToTimedelta().total_seconds() == pytest.approx(140.0)
    await clock.advance(15.0)
    assert agent.groups.stuck.named == (StuckQueue("g", Q0, A, Standing.STUCK_OFFSET),)


async def test_a_reading_ends_with_its_stream_and_its_queue_has_no_reader(
    agent: AgentServices, consumer: Consumer, clock: ManualClock
) -> None:
    other = Consumer(agent.addr, B)
    await report(other, reading(queue(0)))
    await report(consumer, reading(queue(1)))
    measure(agent, Q0, 4, 9)
    await clock.advance(1.0)
    measure(agent, Q0, 4, 9)
    assert (await listed(consumer))[Q0].client_id == B
    await other.crash()
    for _ in range(70):
        await clock.advance(1.0)
        if Q0 in (found := await listed(consumer)) and found[Q0].standing:
            break
    assert (found[Q0].client_id, found[Q0].standing) == ("", wire.QUEUE_STANDING_NO_READER)
    assert found[Q1].client_id == A
    assert agent.groups.readings.count == 1


async def test_a_member_that_reports_nothing_may_be_the_reader(
    agent: AgentServices, consumer: Consumer, clock: ManualClock
) -> None:
    await consumer.beat(reads("g"))
    measure(agent, Q0, 4, 9)
    await clock.advance(90.0)
    measure(agent, Q0, 4, 9)
    assert (await listed(consumer))[Q0].standing == wire.QUEUE_STANDING_UNSPECIFIED


async def test_the_later_report_of_a_queue_that_is_handed_over_counts(
    agent: AgentServices, consumer: Consumer, clock: ManualClock
) -> None:
    other = Consumer(agent.addr, B)
    await report(other, reading(queue(0)))
    await clock.advance(1.0)
    await report(consumer, reading(queue(0)))
    assert (await listed(consumer))[Q0].client_id == A
    await report(other, reading(queue(0, position=7)))
    await clock.advance(1.0)
    await report(consumer, reading(released=(0,)))
    assert (await listed(consumer))[Q0].client_id == B
    await other.crash()


async def test_a_member_with_a_call_that_does_not_end_counts_before_a_later_report(
    agent: AgentServices, consumer: Consumer, clock: ManualClock
) -> None:
    other = Consumer(agent.addr, B)
    await report(consumer)
    await report(other, reading(queue(0, call=50)))
    await clock.advance(11.0)
    await report(consumer, reading(queue(0)))
    found = (await listed(consumer))[Q0]
    assert (found.client_id, found.standing) == (B, wire.QUEUE_STANDING_STUCK_CALL)
    await other.crash()


async def test_readings_change_no_membership_and_what_makes_a_member_is_read_once(
    agent: AgentServices, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[str]()
    beat = group_codec.beat

    def counted(message: wire.KeepMembershipRequest) -> MembershipBeat:
        read.append(message.client_id)
        return beat(message)

    monkeypatch.setattr(group_codec, "beat", counted)
    await report(consumer)
    before = agent.groups.core.revision("g")
    await report(consumer, reading(queue(0)))
    await report(consumer, reading(queue(0, position=6)))
    assert agent.groups.core.revision("g") == before
    assert (agent.groups.readings.count, read) == (1, [A])


async def test_the_queues_come_in_pages(consumer: Consumer) -> None:
    await report(consumer, reading(*map(queue, range(5))))
    numbers, token = list[list[int]](), ""
    while True:
        request = wire.ListGroupQueuesRequest(group="g", page_size=2, page_token=token)
        response = await consumer.stub.ListGroupQueues(request)
        numbers.append([each.reading.queue_id for each in response.queues])
        assert bool(response.members) == (not token)
        token = response.next_page_token
        if not token:
            break
    assert numbers == [[0, 1], [2, 3], [4]]


async def test_a_group_without_members_and_offsets_has_no_queues(consumer: Consumer) -> None:
    assert await listed(consumer) == {}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (wire.GroupReading(group="other"), "readings[0].group"),
        (reading(topic="a b"), "readings[0].topics[0].topic"),
        (reading(queue(0, call=-1)), "readings[0].topics[0].queues[0].oldest_call"),
        (reading(*map(queue, range(1_025))), "readings[0].topics"),
        (wire.GroupReading(group="g", rebalances=[wire.RebalanceCount()] * 17), "readings[0].rebalances"),
        (
            wire.GroupReading(group="g", rebalances=[wire.RebalanceCount(trigger="x" * 33)]),
            "readings[0].rebalances[0].trigger",
        ),
    ],
)
async def test_a_wrong_reading_is_refused_with_its_field(
    consumer: Consumer, wrong: wire.GroupReading, field: str
) -> None:
    refusal = await refusal_of(report(consumer, wrong))
    assert (refusal.status, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, [field])
