"""A consumer as a process: writes one line for each message that its listener finished, so that a SIGKILL loses none.

A line: monotonic seconds of the machine, broker name, queue id, queue offset, key, body. SIGTERM closes it in order.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time

from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.allocation import to_strategy
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.redis_streams import RedisStreamsTransport


async def work(arguments: argparse.Namespace) -> None:
    output = os.open(arguments.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def listener(message: ReceivedMessage) -> None:
        await asyncio.sleep(arguments.work_seconds)
        queue = message.queue
        words = (queue.broker_name, queue.queue_id, message.queue_offset, "".join(message.keys), message.body.decode())
        os.write(output, (" ".join(map(str, (time.monotonic(), *words))) + "\n").encode())

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with PushConsumer(
        arguments.name_server,
        group=arguments.group,
        subscriptions={arguments.topic: "*"},
        listener=listener,
        transport=RedisStreamsTransport,
        ordered=arguments.ordered,
        strategy=to_strategy(arguments.strategy),
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        os.write(output, b"started\n")
        await stop.wait()
    os.write(output, b"closed\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name-server", action="append", required=True)
    parser.add_argument("--group", default="billing")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--log", required=True)
    parser.add_argument("--ordered", action="store_true")
    parser.add_argument("--strategy", default="averagely")
    parser.add_argument("--work-seconds", type=float, default=0.0)
    asyncio.run(work(parser.parse_args()))
