"""What every transport that leases messages must do, on real Redis servers and in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pointsman_client.consumer.message_popper import LeasingTransport
from pointsman_client.core.lease import GroupBacklog, Lease, LeasedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import BrokerRefusedError, BrokerTimeoutError, BrokerUnreachableError, ResponseCode
from pointsman_client.ports.leases import LeasesMessages, PoppedMessages
from pointsman_client.ports.transport import Reader
from tests.kit.broker.under_test import QUEUE, READER, BrokersUnderTest, MemoryBrokers, RedisBrokers, outgoing
from tests.kit.waiting import read_until

TIMEOUT_SECONDS = 30.0
GROUP = READER.group
OTHER_QUEUE = replace(QUEUE, queue_id=QUEUE.queue_id + 1)
SHORT_SECONDS, LONG_SECONDS = 0.2, 60.0
"""Leases that end during a test, and that do not."""


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
async def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BrokersUnderTest]:
    found: BrokersUnderTest = MemoryBrokers() if request.param == "memory" else RedisBrokers(tmp_path)
    yield found
    await found.close()
    await asyncio.sleep(0)
    left = {task.get_name() for task in asyncio.all_tasks()}
    assert [name for name in left if name.startswith("pointsman")] == []


class Group:
    """One group at one broker, through one transport."""

    def __init__(self, brokers: BrokersUnderTest, addr: str, **settings: Any) -> None:
        transport = brokers.open(**settings)
        assert isinstance(transport, LeasesMessages)
        self.transport: LeasingTransport = transport
        self.brokers = brokers
        self.addr = addr

    async def send(self, *bodies: str, queue: MessageQueue = QUEUE) -> None:
        messages = [outgoing(body, topic=queue.topic) for body in bodies]
        await self.transport.send(self.addr, queue, messages, timeout_seconds=TIMEOUT_SECONDS)

    async def begin(self, offset: int = 0, *, queue: MessageQueue = QUEUE) -> None:
        await self.transport.begin_group(self.addr, queue, offset, group=GROUP, timeout_seconds=TIMEOUT_SECONDS)

    async def pop(
        self,
        most: int = 32,
        *,
        seconds: float = LONG_SECONDS,
        queues: Sequence[MessageQueue] = (QUEUE,),
        is_ordered: bool = False,
        addr: str = "",
    ) -> PoppedMessages:
        return await self.transport.pop(
            addr or self.addr,
            queues,
            reader=READER,
            max_messages=most,
            invisible_seconds=seconds,
            is_ordered=is_ordered,
            timeout_seconds=TIMEOUT_SECONDS,
        )

    async def pop_until(self, wanted: int, *, seconds: float = LONG_SECONDS) -> list[LeasedMessage]:
        found: list[LeasedMessage] = []

        async def pop() -> int:
            found.extend((await self.pop(seconds=seconds)).messages)
            return len(found)

        await read_until(pop, lambda count: count >= wanted, seconds=TIMEOUT_SECONDS)
        return found

    async def ack(self, *leased: LeasedMessage) -> tuple[Lease, ...]:
        leases = [each.lease for each in leased]
        return await self.transport.acknowledge(self.addr, leases, group=GROUP, timeout_seconds=TIMEOUT_SECONDS)

    async def change(self, *leased: LeasedMessage, seconds: float) -> tuple[Lease | None, ...]:
        leases = [each.lease for each in leased]
        return await self.transport.change_invisible(
            self.addr, leases, group=GROUP, invisible_seconds=seconds, timeout_seconds=TIMEOUT_SECONDS
        )

    async def wait(self, seconds: float, *, is_ordered: bool = False) -> None:
        await self.transport.wait_for_messages(
            self.addr,
            [QUEUE],
            reader=READER,
            is_ordered=is_ordered,
            wait_seconds=seconds,
            timeout_seconds=TIMEOUT_SECONDS,
        )

    async def backlog(self) -> GroupBacklog | None:
        found = await self.transport.backlogs(self.addr, [QUEUE], group=GROUP, timeout_seconds=TIMEOUT_SECONDS)
        return found.get(QUEUE)


@pytest.fixture
async def group(brokers: BrokersUnderTest) -> Group:
    return Group(brokers, await brokers.add())


def bodies(popped: PoppedMessages | Sequence[LeasedMessage]) -> list[str]:
    found = popped.messages if isinstance(popped, PoppedMessages) else popped
    return [each.message.body.decode() for each in found]


async def test_a_queue_that_the_group_has_not_begun_is_named(group: Group) -> None:
    await group.send("a")
    assert await group.pop() == PoppedMessages(without_group=(QUEUE,))
    assert await group.backlog() is None
    await group.begin()
    assert bodies(await group.pop()) == ["a"]


async def test_a_group_begins_at_the_given_offset_and_only_once(group: Group) -> None:
    await group.send("a", "b", "c")
    await group.begin(1)
    await group.begin(0)
    assert bodies(await group.pop()) == ["b", "c"]


async def test_each_group_gets_every_message(group: Group) -> None:
    await group.send("a", "b")
    for name in (GROUP, "shipping"):
        await group.transport.begin_group(group.addr, QUEUE, 0, group=name, timeout_seconds=TIMEOUT_SECONDS)
        popped = await group.transport.pop(
            group.addr,
            [QUEUE],
            reader=Reader(name),
            max_messages=9,
            invisible_seconds=LONG_SECONDS,
            is_ordered=False,
            timeout_seconds=TIMEOUT_SECONDS,
        )
        assert bodies(popped) == ["a", "b"]


async def test_a_queue_can_be_begun_before_its_first_message(group: Group) -> None:
    await group.begin()
    assert await group.pop() == PoppedMessages()
    await group.send("a")
    assert [(each.lease.queue_offset, each.message.queue_offset) for each in (await group.pop()).messages] == [(0, 0)]


async def test_a_leased_message_is_invisible_and_an_acknowledged_one_does_not_come_back(group: Group) -> None:
    await group.send("a", "b", "c")
    await group.begin()
    first = await group.pop(2)
    assert (bodies(first), bodies(await group.pop()), bodies(await group.pop())) == (["a", "b"], ["c"], [])
    assert await group.ack(*first.messages) == ()
    assert await group.backlog() == GroupBacklog(3, 1)


async def test_a_message_comes_back_when_its_lease_is_over_with_one_more_failed_delivery(group: Group) -> None:
    await group.send("a")
    await group.begin()
    (first,) = (await group.pop(seconds=SHORT_SECONDS)).messages
    (second,) = await group.pop_until(1)
    assert (first.message.reconsume_times, second.message.reconsume_times) == (0, 1)
    assert second.message._replace(reconsume_times=0) == first.message
    assert first.lease != second.lease


async def test_a_later_delivery_has_its_own_time_too(group: Group) -> None:
    await group.send("a")
    await group.begin()
    await group.pop(seconds=SHORT_SECONDS)
    counts = [(await group.pop_until(1, seconds=SHORT_SECONDS))[0].message.reconsume_times for _ in range(2)]
    assert counts == [1, 2]


async def test_each_lease_has_its_own_time(group: Group) -> None:
    await group.send("a", "b")
    await group.begin()
    await group.pop(1, seconds=LONG_SECONDS)
    await group.pop(1, seconds=SHORT_SECONDS)
    assert bodies(await group.pop_until(1)) == ["b"]


async def test_a_lease_that_is_over_is_still_acknowledged_before_the_next_delivery(group: Group) -> None:
    await group.send("a")
    await group.begin()
    (late,) = (await group.pop(seconds=SHORT_SECONDS)).messages
    await asyncio.sleep(2 * SHORT_SECONDS)
    assert await group.ack(late) == ()
    assert await group.backlog() == GroupBacklog(1, 0)


async def test_an_acknowledgement_after_the_next_delivery_names_the_lease_and_changes_nothing(group: Group) -> None:
    await group.send("a", "b")
    await group.begin()
    late, kept = (await group.pop(seconds=SHORT_SECONDS)).messages
    await group.pop_until(2)
    assert await group.ack(late) == (late.lease,)
    assert await group.change(kept, seconds=SHORT_SECONDS) == (None,)
    assert await group.backlog() == GroupBacklog(2, 2)


async def test_a_second_acknowledgement_is_none_of_a_lease_that_is_over(group: Group) -> None:
    await group.send("a")
    await group.begin()
    popped = await group.pop()
    assert [await group.ack(*popped.messages) for _ in range(2)] == [(), ()]


async def test_a_changed_lease_ends_sooner_or_later(group: Group) -> None:
    await group.send("a", "b")
    await group.begin()
    sooner, later = (await group.pop(seconds=2 * SHORT_SECONDS)).messages
    assert await group.change(later, seconds=LONG_SECONDS) == (later.lease,)
    assert await group.change(sooner, seconds=SHORT_SECONDS) == (sooner.lease,)
    assert bodies(await group.pop_until(1)) == ["a"]
    await asyncio.sleep(2 * SHORT_SECONDS)
    assert bodies(await group.pop()) == []
    assert await group.ack(later) == ()


async def test_earlier_queues_are_read_first_and_together_up_to_the_number(group: Group) -> None:
    for queue in (QUEUE, OTHER_QUEUE):
        await group.begin(queue=queue)
        await group.send(*(f"{queue.queue_id}-{number}" for number in range(3)), queue=queue)
    popped = await group.pop(4, queues=[OTHER_QUEUE, QUEUE])
    assert bodies(popped) == ["4-0", "4-1", "4-2", "3-0"]
    assert {each.lease.queue for each in popped.messages} == {QUEUE, OTHER_QUEUE}


async def test_what_was_delivered_before_comes_before_what_is_new(group: Group) -> None:
    await group.send("a")
    await group.begin()
    await group.pop(seconds=SHORT_SECONDS)
    await asyncio.sleep(2 * SHORT_SECONDS)
    await group.send("b")
    assert bodies(await group.pop()) == ["a", "b"]


async def test_what_was_delivered_before_counts_for_the_number_of_messages(group: Group) -> None:
    await group.send("a", "b", "c")
    await group.begin()
    await group.pop(1, seconds=SHORT_SECONDS)
    await asyncio.sleep(2 * SHORT_SECONDS)
    assert [bodies(await group.pop(most)) for most in (1, 1, 9)] == [["a"], ["b"], ["c"]]


async def test_an_ordered_group_gets_nothing_of_a_queue_with_a_lease(group: Group) -> None:
    await group.send("a", "b", "c")
    await group.begin()
    first, second = (await group.pop(2, is_ordered=True)).messages
    assert bodies(await group.pop(is_ordered=True)) == []
    await group.ack(first)
    assert bodies(await group.pop(is_ordered=True)) == []
    await group.ack(second)
    assert bodies(await group.pop(is_ordered=True)) == ["c"]


async def test_an_ordered_group_does_not_pass_a_message_whose_lease_is_valid(group: Group) -> None:
    await group.send("a", "b")
    await group.begin()
    first, _ = (await group.pop(is_ordered=True, seconds=SHORT_SECONDS)).messages
    await group.change(first, seconds=LONG_SECONDS)
    await asyncio.sleep(2 * SHORT_SECONDS)
    assert bodies(await group.pop(is_ordered=True)) == []


async def test_an_ordered_group_repeats_from_the_first_unfinished_message(group: Group) -> None:
    await group.send("a", "b", "c")
    await group.begin()
    first, _ = (await group.pop(2, is_ordered=True, seconds=SHORT_SECONDS)).messages
    await group.ack(first)
    await asyncio.sleep(2 * SHORT_SECONDS)
    assert bodies(await group.pop(is_ordered=True)) == ["b"]


async def test_messages_removed_before_they_were_finished_are_counted_once(group: Group) -> None:
    await group.send(*"abcdef")
    await group.begin()
    await group.pop(2, seconds=SHORT_SECONDS)
    await group.brokers.trim(group.addr, QUEUE, 4)
    await asyncio.sleep(2 * SHORT_SECONDS)
    popped = await group.pop()
    assert (bodies(popped), popped.trimmed) == (["e", "f"], {QUEUE: 4})
    assert (await group.pop()).trimmed == {}
    assert await group.backlog() == GroupBacklog(6, 2)


async def test_a_removed_message_that_its_receiver_finishes_in_time_is_not_counted(group: Group) -> None:
    await group.send("a", "b")
    await group.begin()
    first = await group.pop(1, seconds=SHORT_SECONDS)
    await group.brokers.trim(group.addr, QUEUE, 1)
    assert None not in await group.change(*first.messages, seconds=LONG_SECONDS)
    await group.ack(*first.messages)
    await asyncio.sleep(2 * SHORT_SECONDS)
    popped = await group.pop()
    assert (bodies(popped), popped.trimmed) == (["b"], {})


async def test_a_removed_message_that_is_renewed_and_not_finished_is_counted(group: Group) -> None:
    await group.send("a", "b")
    await group.begin()
    first = await group.pop(1, seconds=SHORT_SECONDS)
    await group.brokers.trim(group.addr, QUEUE, 1)
    await group.change(*first.messages, seconds=SHORT_SECONDS)
    await asyncio.sleep(2 * SHORT_SECONDS)
    assert (await group.pop()).trimmed == {QUEUE: 1}


async def test_a_wait_ends_with_a_new_message(group: Group) -> None:
    await group.begin()
    waiting = asyncio.create_task(group.wait(LONG_SECONDS))
    await asyncio.sleep(SHORT_SECONDS)
    assert not waiting.done()
    await group.send("a")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await waiting


async def test_a_wait_ends_soon_after_a_lease_is_over(group: Group) -> None:
    await group.send("a")
    await group.begin()
    await group.pop(seconds=SHORT_SECONDS)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await group.wait(LONG_SECONDS)


async def test_a_wait_without_a_message_ends_in_time(group: Group) -> None:
    await group.begin()
    await group.wait(SHORT_SECONDS)
    await group.send("a")
    await group.pop()
    await group.wait(SHORT_SECONDS, is_ordered=True)


async def test_a_wait_for_a_queue_that_is_not_begun_ends_immediately(group: Group) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await group.wait(LONG_SECONDS)


async def test_leases_survive_a_crash_of_the_broker(group: Group) -> None:
    await group.send("a", "b")
    await group.begin()
    (first,) = (await group.pop(1)).messages
    await group.brokers.take_down(group.addr)
    with pytest.raises((BrokerUnreachableError, BrokerTimeoutError)):
        await group.pop()
    await group.brokers.bring_up(group.addr)
    assert bodies(await group.pop()) == ["b"]
    assert await group.ack(first) == ()
    assert await group.backlog() == GroupBacklog(2, 1)


async def test_a_replica_has_the_leases_and_gives_none_until_it_is_promoted(brokers: BrokersUnderTest) -> None:
    group = Group(brokers, await brokers.add(), wait_replicas=1)
    replica = await brokers.add()
    await brokers.replicate(group.addr, replica)
    await group.begin()
    await group.send("a")
    (leased,) = (await group.pop()).messages
    await group.send("b")
    with pytest.raises(BrokerRefusedError) as refusal:
        await group.pop(addr=replica)
    assert refusal.value.response_code == ResponseCode.NO_PERMISSION
    await brokers.take_down(group.addr)
    await brokers.promote(replica)
    group.addr = replica
    assert bodies(await group.pop()) == ["b"]
    assert await group.ack(leased) == ()


async def test_a_broker_that_lost_its_data_has_no_group_and_old_leases_are_not_over(group: Group) -> None:
    await group.send("a")
    await group.begin()
    popped = await group.pop()
    await group.brokers.lose_messages(group.addr)
    assert await group.ack(*popped.messages) == ()
    assert (await group.pop()).without_group == (QUEUE,)


async def test_many_leases_do_not_hide_the_one_that_is_over(group: Group) -> None:
    await group.send(*(str(number) for number in range(700)))
    await group.begin()
    held = (await group.pop(700)).messages
    await group.change(held[650], seconds=SHORT_SECONDS)
    assert bodies(await group.pop_until(1)) == ["650"]
