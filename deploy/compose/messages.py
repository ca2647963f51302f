"""Send messages to topic orders through the brokers of compose.yaml, and consume them."""

from __future__ import annotations

import argparse
import asyncio
import uuid
from collections import Counter

from pointsman_client import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage
from pointsman_client.redis_streams import RedisStreamsTransport

SECONDS = 120.0


async def run(name_servers: list[str], count: int) -> None:
    """Print how many messages each broker stored, and return when a new group has consumed all of them."""
    run_id = uuid.uuid4().hex
    expected = {f"{run_id} {number}".encode() for number in range(count)}
    seen: set[bytes] = set()
    done = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        seen.add(message.body)
        if expected <= seen:
            done.set()

    async with Producer(name_servers, transport=RedisStreamsTransport) as producer:
        stored = Counter(
            [(await producer.send(Message("orders", body))).queue.broker_name for body in sorted(expected)]
        )
    print("sent:", ", ".join(f"{number} to {broker}" for broker, number in sorted(stored.items())))

    async with PushConsumer(
        name_servers,
        group=f"try-{run_id[:8]}",
        subscriptions={"orders": "*"},
        listener=listener,
        transport=RedisStreamsTransport,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        await done.wait()
    print(f"consumed: all {count}")


def main() -> None:
    """Run within two minutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name_servers", nargs="+", metavar="NAME_SERVER", help="host:port of each name server")
    parser.add_argument("--count", type=int, default=100, help="how many messages (100)")
    given = parser.parse_args()
    asyncio.run(asyncio.wait_for(run(given.name_servers, given.count), SECONDS))


if __name__ == "__main__":
    main()
