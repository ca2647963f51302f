"""Loads a Kafka broker with ``aiokafka`` and uvloop; runs in an environment that has them.

Argument: the broker's address. Each line of its input is ``send TOPIC SECONDS IN_FLIGHT BATCH``; see Load.java.
"""

import asyncio
import logging
import sys
import time
from typing import Any

import uvloop
from aiokafka import AIOKafkaProducer

BODY = bytes(100)
PARTITIONS = 4


async def _send(producer: Any, topic: str, seconds: float, in_flight: int, batch: int) -> None:
    cpu, began, sent = time.process_time(), time.monotonic(), 0

    async def repeat(number: int) -> None:
        nonlocal sent
        while time.monotonic() - began < seconds:
            if batch == 1:
                await producer.send_and_wait(topic, BODY)
            else:
                messages = producer.create_batch()
                for _ in range(batch):
                    messages.append(key=None, value=BODY, timestamp=None)
                await (await producer.send_batch(messages, topic, partition=number % PARTITIONS))
            sent += batch

    await asyncio.gather(*map(repeat, range(in_flight)))
    print("measured", sent, 0, time.process_time() - cpu, time.monotonic() - began, flush=True)


async def main() -> None:
    logging.disable()  # it warns until the topic is created
    producer = AIOKafkaProducer(bootstrap_servers=sys.argv[1])
    await producer.start()
    while line := await asyncio.to_thread(sys.stdin.readline):
        _, topic, seconds, in_flight, batch = line.split()
        await _send(producer, topic, float(seconds), int(in_flight), int(batch))
    await producer.stop()


if __name__ == "__main__":
    uvloop.run(main())
