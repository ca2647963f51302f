"""Pins of queues at an agent: stored before they are answered, there again after a restart, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pointsman.clock import SystemClock
from pointsman.daemon.rpc.calling_peer import Peer
from pointsman.manual_clock import ManualClock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.refusals import NotReady
from pointsman_agent.config import OffsetsSection, RpcSection
from pointsman_agent.core.queue_pins import MAX_QUEUE_PINS, PinnedQueue, QueuePin, QueuePins
from pointsman_agent.groups.queue_pin_keeper import QueuePinFile, QueuePinKeeper, QueuePinsFailed, QueuePinStore
from pointsman_agent.groups.redis_queue_pins import KEY, RedisQueuePins
from tests.kit.agent.group_clients import Consumer, GroupWatch, follows_pins, pin, pin_queue, reads
from tests.kit.agent.in_process import agent_config, running_agent
from tests.kit.agent.services import AgentServices
from tests.kit.broker.redis.process import redis_process
from tests.kit.refusal import refusal_of
from tests.kit.waiting import eventually, read_until

A, B = "10.0.0.1@a", "10.0.0.2@b"
ROW = {"group": "g", "topic": "t", "cluster": "c", "broker_name": "b", "queue_id": 1, "to": "x", "until_ms": 9e12}
PIN = QueuePin(PinnedQueue("orders", "c1", "a", 3), A, 60.0)


def stored(*rows: object, version: int = 1) -> str:
    """The text of a store."""
    return json.dumps({"format": "pointsman-queue-pins", "version": version, "pins": rows})


class MemoryStore:
    """Implements ``pointsman_agent.groups.queue_pin_keeper.QueuePinStore``; outlives its agent."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.problem = ""
        """While it is set, each call fails with it."""
        self.is_mine = True
        self.passes = asyncio.Event()
        """Cleared, a write waits on its way."""
        self.passes.set()

    async def load(self) -> str | None:
        self._fail()
        return self.text

    async def write(self, text: str) -> None:
        await self.passes.wait()
        self._fail()
        self.text = text

    def is_ours(self) -> bool:
        return self.is_mine

    async def close(self) -> None:
        pass

    def _fail(self) -> None:
        if self.problem:
            raise QueuePinsFailed(self.problem)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def agent(clock: ManualClock, store: MemoryStore) -> AsyncIterator[AgentServices]:
    agent = AgentServices(clock=clock, pin_store=store)
    await agent.start()
    await clock.advance(0.1)
    yield agent
    await agent.stop()


@pytest.fixture
async def consumer(agent: AgentServices) -> AsyncIterator[Consumer]:
    consumer = Consumer(agent.addr, A)
    yield consumer
    await consumer.crash()


def owners(membership: wire.GroupMembership) -> dict[int, str]:
    return {each.queue_id: each.client_id for each in membership.queue_pins}


async def membership(consumer: Consumer, group: str = "g") -> wire.GroupMembership:
    return (await consumer.stub.GetMembership(wire.GetMembershipRequest(group=group))).membership


async def test_the_pin_of_a_queue_is_sent_with_the_membership_and_ends_by_itself(
    consumer: Consumer, clock: ManualClock
) -> None:
    await consumer.beat(follows_pins(reads("g")))
    watch = GroupWatch(consumer.channel, "g")
    assert not (await watch.news()).queue_pins
    answer = await consumer.stub.PinQueue(pin_queue("g", "10.0.0.1", queue_id=3))
    news = await watch.news()
    assert list(news.queue_pins) == [answer.pin]
    assert (answer.pin.topic, answer.pin.cluster, answer.pin.broker_name) == ("orders", "c1", "a")
    assert (answer.pin.queue_id, answer.pin.to, answer.pin.client_id) == (3, "10.0.0.1", A)
    ends_at = clock.utc_now().replace(tzinfo=None).timestamp() + 60
    assert answer.pin.until.ToDatetime().timestamp() == pytest.approx(ends_at, abs=0.5)
    await clock.advance(60.0)
    later = await watch.news()
    assert not later.queue_pins
    assert later.revision.counter > news.revision.counter


async def test_of_two_pins_of_a_queue_the_later_counts_and_each_end_has_its_extent(consumer: Consumer) -> None:
    await consumer.beat(follows_pins(reads("g")), follows_pins(reads("h")))
    for order in (
        pin_queue("g", B, queue_id=1),
        pin_queue("g", A, queue_id=1),
        pin_queue("g", A, queue_id=2),
        pin_queue("g", A, queue_id=3),
        pin_queue("h", A),
    ):
        await consumer.stub.PinQueue(order)
    assert owners(await membership(consumer)) == {1: A, 2: A, 3: A}
    ended = await consumer.stub.PinQueue(pin_queue("g", "", queue_id=2, cluster=""))
    assert not ended.HasField("pin")
    assert owners(await membership(consumer)) == {1: A, 3: A}
    await consumer.stub.PinGroup(pin("g", [A], seconds=60))
    assert owners(await membership(consumer)) == {1: A, 3: A}
    await consumer.stub.PinGroup(pin("g", []))
    assert not (await membership(consumer)).queue_pins
    assert owners(await membership(consumer, "h")) == {0: A}


async def test_a_pin_of_a_queue_ends_when_it_would_have_without_the_agents_restart(
    clock: ManualClock, store: MemoryStore
) -> None:
    first = AgentServices(clock=clock, pin_store=store)
    await first.start()
    before = Consumer(first.addr, A)
    answer = await before.stub.PinQueue(pin_queue("g", A))
    await before.stub.PinQueue(pin_queue("g", A, queue_id=1, seconds=20))
    await before.crash()
    await first.stop()
    await clock.advance(30.0)
    again = AgentServices(clock=clock, pin_store=store)
    await again.start()
    after = Consumer(again.addr, A)
    await after.beat(follows_pins(reads("g")))
    [restored] = (await membership(after)).queue_pins
    assert restored.client_id == A
    assert restored.until.ToMilliseconds() == pytest.approx(answer.pin.until.ToMilliseconds(), abs=5)
    await clock.advance(29.0)
    assert owners(await membership(after)) == {0: A}
    await clock.advance(1.5)
    assert not (await membership(after)).queue_pins
    await after.crash()
    await again.stop()


async def test_the_complete_agent_has_its_pins_after_a_restart_when_its_list_is_reliable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = QueuePinFile.load

    async def load_slowly(store: QueuePinFile) -> str | None:
        await asyncio.sleep(0.3)
        return await load(store)

    monkeypatch.setattr(QueuePinFile, "load", load_slowly)
    config = replace(
        agent_config(["127.0.0.1:1"]),
        rpc=RpcSection(listen="127.0.0.1:0"),
        offsets=OffsetsSection(path=str(tmp_path / "offsets.db")),
    )
    answers = []
    for _ in range(2):
        async with running_agent(config) as running:
            await eventually(partial(getattr, running.agent, "is_serving"))
            client = Consumer(running.agent.parts.agent_addr, A)
            await client.beat(follows_pins(reads("g")))
            watch = GroupWatch(client.channel, "g")
            while (held := await watch.news()).state != wire.GROUP_STATE_RECOVERED:
                pass
            answers.append(owners(held))
            if not held.queue_pins:
                await client.stub.PinQueue(pin_queue("g", A, queue_id=3))
            await client.crash()
            await running.stopped()
    assert answers == [{}, {3: A}]


async def test_pins_that_cannot_be_read_do_not_keep_an_agent_from_its_member_lists(tmp_path: Path) -> None:
    (tmp_path / "offsets.db.pins").mkdir()
    config = replace(
        agent_config(["127.0.0.1:1"]),
        rpc=RpcSection(listen="127.0.0.1:0"),
        offsets=OffsetsSection(path=str(tmp_path / "offsets.db")),
    )
    async with running_agent(config) as running:
        await eventually(partial(getattr, running.agent, "is_serving"))
        client = Consumer(running.agent.parts.agent_addr, A)
        await client.beat(follows_pins(reads("g")))
        await eventually((tmp_path / "offsets.db.members").exists)
        refusal = await refusal_of(client.stub.PinQueue(pin_queue("g", A)))
        assert "not read yet" in refusal.message
        (tmp_path / "offsets.db.pins").rmdir()

        async def owner() -> str:
            try:
                return (await client.stub.PinQueue(pin_queue("g", A))).pin.client_id
            except grpc.aio.AioRpcError:
                return ""

        assert await read_until(owner) == A
        await client.crash()
        await running.stopped()


async def test_a_pin_that_cannot_be_stored_is_refused_and_has_no_effect(
    agent: AgentServices, consumer: Consumer, store: MemoryStore
) -> None:
    await consumer.stub.PinQueue(pin_queue("g", A))
    store.problem = "disk full"
    for call in (consumer.stub.PinQueue(pin_queue("g", A, queue_id=1)), consumer.stub.PinGroup(pin("g", []))):
        refusal = await refusal_of(call)
        assert (refusal.status, refusal.details.code) == (grpc.StatusCode.UNAVAILABLE, "BACKEND_UNAVAILABLE")
        assert "disk full" in refusal.message
    assert list(owners(await membership(consumer))) == [0]
    store.problem, store.is_mine = "a replica cannot write", False
    await consumer.stub.PinQueue(pin_queue("g", A, queue_id=1))
    assert agent.groups.core.pinned_count == 1


async def test_a_pin_applies_only_when_it_is_stored_and_also_if_its_operator_hangs_up(
    agent: AgentServices, consumer: Consumer, store: MemoryStore
) -> None:
    store.passes.clear()
    call = asyncio.ensure_future(agent.groups.pin_queue(pin_queue("g", A), Peer("10.9.9.9:1", "")))
    await eventually(agent.groups._pins.changing.locked)
    other = asyncio.ensure_future(consumer.stub.PinQueue(pin_queue("g", A, queue_id=1)))
    assert not (await membership(consumer)).queue_pins
    call.cancel()
    await asyncio.sleep(0)
    store.passes.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert list(owners(await membership(consumer)))[:1] == [0]
    await other
    assert list(owners(await membership(consumer))) == [0, 1]


@pytest.mark.parametrize(
    ("order", "fields"),
    [
        pytest.param(pin_queue("", A), ["group"], id="no-group"),
        pytest.param(pin_queue("g", A, topic="a.b"), ["topic"], id="topic"),
        pytest.param(pin_queue("g", A, cluster=""), ["cluster"], id="no-cluster"),
        pytest.param(pin_queue("g", A, broker_name=""), ["broker_name"], id="no-broker"),
        pytest.param(pin_queue("g", A, queue_id=65_535), ["queue_id"], id="queue"),
        pytest.param(pin_queue("g", "a b"), ["to"], id="odd-member"),
        pytest.param(pin_queue("g", A, seconds=None), ["duration"], id="no-duration"),
        pytest.param(pin_queue("g", A, seconds=0), ["duration"], id="no-time"),
        pytest.param(pin_queue("g", A, seconds=7 * 86_400 + 1), ["duration"], id="too-long"),
        pytest.param(
            wire.PinQueueRequest(group="g", topic="t", broker_name="a", duration=Duration(seconds=1)),
            ["duration"],
            id="duration-of-an-end",
        ),
        pytest.param(pin_queue("g", A, by="x\n"), ["by"], id="by"),
    ],
)
async def test_a_pin_of_a_queue_that_cannot_be_is_refused_by_field(
    agent: AgentServices, consumer: Consumer, order: wire.PinQueueRequest, fields: list[str]
) -> None:
    refusal = await refusal_of(consumer.stub.PinQueue(order))
    assert (refusal.status, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, fields)
    assert agent.groups.core.pinned_count == 0


async def test_a_client_that_does_not_follow_pins_is_named_and_suspends_them(
    agent: AgentServices, consumer: Consumer
) -> None:
    await consumer.beat(follows_pins(reads("g")))
    await consumer.stub.PinQueue(pin_queue("g", A))
    older = Consumer(agent.addr, B)
    await older.beat(reads("g"))
    refusal = await refusal_of(consumer.stub.PinQueue(pin_queue("g", A, queue_id=1)))
    assert (refusal.status, refusal.details.code) == (grpc.StatusCode.FAILED_PRECONDITION, "PIN_REFUSED")
    assert B in refusal.message
    held = await membership(consumer)
    assert (owners(held), list(held.not_following_queue_pins)) == ({0: ""}, [B])
    await older.leave()
    held = await membership(consumer)
    assert (owners(held), list(held.not_following_queue_pins)) == ({0: A}, [])
    await older.crash()


async def test_a_groups_pins_are_bounded(consumer: Consumer) -> None:
    for number in range(MAX_QUEUE_PINS):
        await consumer.stub.PinQueue(pin_queue("g", A, queue_id=number))
    refusal = await refusal_of(consumer.stub.PinQueue(pin_queue("g", A, queue_id=MAX_QUEUE_PINS)))
    assert refusal.status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert f"{MAX_QUEUE_PINS} pinned queues of one group" in refusal.message


# Stores


async def check_store(store: QueuePinStore, other: QueuePinStore, clock: ManualClock) -> None:
    """What one keeper stores, another one reads."""
    pins = QueuePins().with_pin("g", PIN._replace(until=clock.monotonic() + 60.0))
    keeper = QueuePinKeeper(store, clock=clock)
    assert await keeper.load() == QueuePins()
    await keeper.store(pins)
    [restored] = (await QueuePinKeeper(other, clock=clock).load()).of("g")
    assert (restored.queue, restored.target) == (PIN.queue, PIN.target)
    assert restored.until == pytest.approx(clock.monotonic() + 60.0, abs=0.01)
    await keeper.store(QueuePins())
    assert await QueuePinKeeper(other, clock=clock).load() == QueuePins()


async def test_a_file_returns_the_pins(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "state" / "offsets.db.pins"
    stores = [QueuePinFile(path, clock=SystemClock()) for _ in range(2)]
    await check_store(stores[0], stores[1], clock)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


async def test_redis_returns_the_pins_and_fails_with_its_address(tmp_path: Path, clock: ManualClock) -> None:
    async with redis_process(tmp_path) as redis:
        one, other = (RedisQueuePins(redis.addr, clock=SystemClock(), timeout=5.0) for _ in range(2))
        await check_store(one, other, clock)
        await one._link.client.delete(KEY)
        await one._link.client.lpush(KEY, "a list")
        with pytest.raises(QueuePinsFailed, match=redis.addr):
            await one.load()
        redis.kill()
        with pytest.raises(QueuePinsFailed, match=redis.addr):
            await one.write("")
        await one.close()
        await other.close()


async def test_a_file_that_cannot_be_written_fails_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(QueuePinsFailed, match="file"):
        await QueuePinFile(tmp_path / "file" / "pins", clock=SystemClock()).write("")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        stored(version=2),
        stored({}),
        stored({**ROW, "group": "a.b"}),
        stored({**ROW, "queue_id": -1}),
        stored({**ROW, "to": ""}),
    ],
)
async def test_damaged_pins_count_as_none_and_are_logged(
    text: str, store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store.text = stored(ROW)
    assert len((await QueuePinKeeper(store, clock=clock).load()).of("g")) == 1
    store.text = text
    assert await QueuePinKeeper(store, clock=clock).load() == QueuePins()
    assert "damaged" in caplog.text


async def test_pins_that_have_ended_are_not_read_again(store: MemoryStore, clock: ManualClock) -> None:
    store.text = stored({**ROW, "until_ms": 1})
    assert await QueuePinKeeper(store, clock=clock).load() == QueuePins()


async def test_pins_that_cannot_be_read_are_read_later_and_none_is_stored_before(
    store: MemoryStore, clock: ManualClock
) -> None:
    keeper = QueuePinKeeper(store, clock=clock)
    await keeper.load()
    await keeper.store(QueuePins().with_pin("g", PIN._replace(until=clock.monotonic() + 60.0)))
    store.problem = "it is away"
    agent = AgentServices(clock=clock, pin_store=store)
    starting = asyncio.ensure_future(agent.start())
    await clock.advance(5.0)
    with pytest.raises(NotReady, match="not read yet"):
        await agent.groups._pins.store(QueuePins())
    assert not starting.done()
    store.problem = ""
    await clock.advance(1.5)
    await starting
    assert agent.groups.core.pinned_count == 1
    await agent.stop()
