"""This project's client, with the arguments and the output of Client.java.

::

    produce NAMESRV TOPIC GROUP COUNT MILLIS
    consume NAMESRV TOPIC GROUP
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from pointsman_client import ConsumeFrom, Message, PointsmanError, Producer, PushConsumer, ReceivedMessage

MOST_FAILURES = 20


async def produce(name_servers: str, topic: str, _group: str, count: int, millis: int) -> None:
    """Send numbered messages, again when that failed, until there is a file ``stop`` in this folder."""
    failures, number = 0, 0
    async with Producer(name_servers) as producer:
        print("started", flush=True)
        while number < count and failures < MOST_FAILURES and not Path("stop").exists():  # noqa: ASYNC240  # a local folder
            try:
                result = await producer.send(Message(topic, f"m{number}".encode()))
            except PointsmanError as error:
                print(f"failed m{number} {' '.join(str(error).split())}", flush=True)
                failures += 1
            else:
                print(f"sent m{number} {result.queue.broker_name} {result.queue.queue_id}", flush=True)
                number += 1
            await asyncio.sleep(millis / 1000)


async def consume(name_servers: str, topic: str, group: str) -> None:
    """Read from the first message until killed."""

    async def got(message: ReceivedMessage) -> None:
        print(f"got {message.body.decode()}", flush=True)

    async with PushConsumer(
        name_servers, group=group, subscriptions=[topic], listener=got, consume_from=ConsumeFrom.FIRST_OFFSET
    ):
        print("started", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    if what == "produce":
        asyncio.run(produce(given[0], given[1], given[2], int(given[3]), int(given[4])))
    else:
        asyncio.run(consume(*given))
