"""A producer or a consumer of any version as a process, which writes a line for each message that it finished.

A script on the public API alone, so that an earlier version's environment runs it. SIGTERM closes it in order.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal

from pointsman_client import ConsumeFrom, Message, PointsmanError, Producer, PushConsumer, ReceivedMessage
from pointsman_client.redis_streams import RedisStreamsTransport

PAUSE_SECONDS = 0.02
SEND_SECONDS = 60.0
"""Longer than any pause of a busy machine: a send that fails is a fault of the mix."""


async def produce(arguments: argparse.Namespace, output: int, stop: asyncio.Event) -> None:
    """Send numbered messages, half of them by key; ``sent NAME`` once a broker has one."""
    async with Producer(
        arguments.name_server, transport=RedisStreamsTransport, send_msg_timeout_seconds=SEND_SECONDS
    ) as producer:
        number = 0
        while not stop.is_set():
            body = f"{arguments.name}-{os.getpid()}-{number}"  # unlike those of an earlier start
            message = Message("orders", body.encode(), keys=(body,))
            try:
                if number % 2:
                    await producer.send_by_key(message, str(number % 10))
                else:
                    await producer.send(message)
            except PointsmanError as error:
                os.write(output, f"failed {body} {error}\n".encode())
            else:
                os.write(output, f"sent {body}\n".encode())
            number += 1
            await asyncio.sleep(PAUSE_SECONDS)


async def consume(arguments: argparse.Namespace, output: int, stop: asyncio.Event) -> None:
    """Consume in the group; ``consumed NAME`` once the listener has finished with a message."""

    async def listener(message: ReceivedMessage) -> None:
        os.write(output, f"consumed {message.body.decode()}\n".encode())

    async with PushConsumer(
        arguments.name_server,
        group="billing",
        subscriptions={"orders": "*"},
        listener=listener,
        transport=RedisStreamsTransport,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        await stop.wait()


async def work(arguments: argparse.Namespace) -> None:
    output = os.open(arguments.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await {"produce": produce, "consume": consume}[arguments.work](arguments, output, stop)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=("produce", "consume"))
    parser.add_argument("--name", required=True)
    parser.add_argument("--name-server", action="append", required=True)
    parser.add_argument("--log", required=True)
    asyncio.run(work(parser.parse_args()))
