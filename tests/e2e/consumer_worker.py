"""A consumer as a process: writes one line for each message that its listener finished, so that a SIGKILL loses none.

A line: monotonic seconds of the machine, broker name, queue id, queue offset, key, body. SIGTERM closes it in order.
With ``--leasing`` it receives leased messages, and a line ``unconfirmed BODY`` is of one whose acknowledgement failed;
with ``--popping`` too, its listener gets them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time

from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.consumer.simple_consumer import SimpleConsumer
from pointsman_client.core.allocation import to_strategy
from pointsman_client.core.lease import ConsumeMode
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.errors import PointsmanError
from pointsman_client.redis_streams import RedisStreamsTransport
from pointsman_client.rocketmq import RocketmqTransport

LEASE_SECONDS = 10.0


async def work(arguments: argparse.Namespace) -> None:
    output = os.open(arguments.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def listener(message: ReceivedMessage) -> None:
        await asyncio.sleep(arguments.work_seconds)
        queue = message.queue
        words = (queue.broker_name, queue.queue_id, message.queue_offset, "".join(message.keys), message.body.decode())
        os.write(output, (" ".join(map(str, (time.monotonic(), *words))) + "\n").encode())

    async def lease() -> None:
        async with SimpleConsumer(
            arguments.name_server,
            group=arguments.group,
            subscriptions={arguments.topic: "*"},
            transport=RocketmqTransport if arguments.rocketmq else RedisStreamsTransport,
            invisible_seconds=LEASE_SECONDS,
            renew=True,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ) as consumer:
            os.write(output, b"started\n")
            while not stop.is_set():
                messages = await consumer.receive(timeout_seconds=1.0)
                for message in messages:
                    await listener(message)
                try:
                    await consumer.ack(*messages)
                except PointsmanError:
                    for message in messages:
                        os.write(output, b"unconfirmed %s\n" % message.body)
        os.write(output, b"closed\n")

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if arguments.leasing and not arguments.popping:
        await lease()
        return
    async with PushConsumer(
        arguments.name_server,
        group=arguments.group,
        subscriptions={arguments.topic: "*"},
        listener=listener,
        transport=RocketmqTransport if arguments.rocketmq else RedisStreamsTransport,
        consume_mode=ConsumeMode.POP if arguments.popping else ConsumeMode.PULL,
        invisible_seconds=LEASE_SECONDS,
        ordered=arguments.ordered,
        strategy=None if arguments.popping else to_strategy(arguments.strategy),
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
    parser.add_argument("--leasing", action="store_true")
    parser.add_argument("--popping", action="store_true", help="a push consumer that leases its messages")
    parser.add_argument("--rocketmq", action="store_true", help="whether the brokers are RocketMQ's")
    parser.add_argument("--strategy", default="averagely")
    parser.add_argument("--work-seconds", type=float, default=0.0)
    asyncio.run(work(parser.parse_args()))
