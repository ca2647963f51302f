"""Run a member that an operator can pin all queues of its group to, and print when that changes, until Ctrl-C.

::

    python pinned.py 127.0.0.1:9876 orders billing --client-id trial-host@1
    pointsmanctl pin billing --to trial-host --for 1h      # in another terminal; ends by itself
"""

import argparse
import asyncio
import contextlib

from pointsman_client import PullConsumer
from pointsman_client.redis_streams import RedisStreamsTransport


async def main(arguments: argparse.Namespace) -> None:
    async with PullConsumer(
        arguments.name_servers,
        group=arguments.group,
        subscriptions={arguments.topic: "*"},
        transport=RedisStreamsTransport,
        client_id=arguments.client_id,
    ) as consumer:
        shown = ""
        while True:
            for message in await consumer.poll(timeout_seconds=1.0):
                print(message.body)
            now = consumer.describe()
            pin = f"pinned to {', '.join(now['pinned'])}" if now["pinned"] else "not pinned"
            state = f"{pin}; this member holds {len(now['queues'])} queues"
            if state != shown:
                shown = state
                print(state)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name_servers")
    parser.add_argument("topic")
    parser.add_argument("group")
    parser.add_argument("--client-id", default="")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(parser.parse_args()))
