"""A group that leases messages, each program a process: members join, leave and are killed, and so is a broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pointsman_client import Message, Producer, SendError
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.e2e.consumer_processes import Consumed, ConsumerProcesses, consumer_processes
from tests.kit.broker.redis.with_agent import BrokerPlan, redis_broker
from tests.kit.ctl.command import ctl
from tests.kit.name_server.process import real_name_server
from tests.kit.waiting import read_until

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(400)]

MESSAGES = 10_000
PATIENCE_SECONDS = 240.0


async def send_all(name_server: str) -> list[str]:
    bodies = [str(number) for number in range(MESSAGES)]
    async with Producer(name_server, transport=RedisStreamsTransport) as producer:
        await producer.client.wait_until_ready(["orders"])
        for begin in range(0, MESSAGES, 100):
            part = bodies[begin : begin + 100]
            await asyncio.gather(*(send(producer, body) for body in part))
    return bodies


def unconfirmed(workers: ConsumerProcesses) -> set[str]:
    """Messages whose acknowledgement failed."""
    lines = (line.split(" ") for worker in workers.all for line in worker.lines())
    return {words[1] for words in lines if words[0] == "unconfirmed"}


def place(consumed: Consumed) -> tuple[str, int, int]:
    """Where a message is stored: a send that is repeated stores a second one with the same body."""
    return consumed.broker_name, consumed.queue_id, consumed.queue_offset


async def send(producer: Producer, body: str) -> None:
    """Send until a broker has stored the message."""
    while True:
        try:
            await producer.send(Message("orders", body.encode()))
        except SendError:
            await asyncio.sleep(0.1)
        else:
            return


async def test_no_message_is_lost_and_a_second_delivery_has_a_missed_lease(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(real_name_server(tmp_path / "ns"))
        brokers = [
            await stack.enter_async_context(redis_broker(tmp_path / name, BrokerPlan(name), [server.addr]))
            for name in ("a", "b")
        ]
        workers = await stack.enter_async_context(
            consumer_processes(tmp_path / "workers", [server.addr], "--leasing", "--work-seconds", "0.002")
        )
        sending = asyncio.create_task(send_all(server.addr))
        first = [await workers.join(), await workers.join(), await workers.join("--popping")]
        await workers.have_consumed(1_000, seconds=PATIENCE_SECONDS)
        await first[0].kill()
        popping = await workers.join("--popping")
        await workers.have_consumed(2_500, seconds=PATIENCE_SECONDS)
        await first[1].leave()
        brokers[0].redis.kill()
        await workers.join()
        await asyncio.sleep(1.0)
        await brokers[0].redis.start()
        await workers.have_consumed(5_000, seconds=PATIENCE_SECONDS)
        await first[2].kill()
        await popping.leave()
        await workers.join("--popping")
        bodies = await sending
        await workers.have_consumed_all(bodies, seconds=PATIENCE_SECONDS)

        killed = {first[0].log.stem, first[2].log.stem}
        consumed, not_confirmed = workers.consumed(), unconfirmed(workers)
        deliveries = Counter(map(place, consumed))
        missed = {place(each) for each in consumed if each.worker in killed or each.body in not_confirmed}
        twice = {each for each, times in deliveries.items() if times > 1}
        print(f"{len(deliveries)} messages, {len(twice)} twice; {len(not_confirmed)} not confirmed", flush=True)
        assert twice <= missed
        assert {first[2].log.stem, popping.log.stem} <= {each.worker for each in consumed}

        async def lags() -> list[object]:
            made = await ctl("--namesrv", server.addr, "-o", "json", "offsets", "show", "billing")
            return [each for each in made.document["offsets"] if each["lag"]]

        await read_until(lags, lambda found: not found, seconds=PATIENCE_SECONDS)
