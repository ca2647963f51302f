"""Process the messages of each customer in order: sent by key, consumed one at a time per queue, under its lock.

::

    python ordered_by_key.py 127.0.0.1:9876 orders shipping
"""

import argparse
import asyncio

from pointsman_client import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage
from pointsman_client.redis_streams import RedisStreamsTransport

STEPS = ("created", "paid", "packed", "shipped")
CUSTOMERS = ("ann", "bob", "cleo")


async def main(name_servers: str, topic: str, group: str) -> None:
    seen: dict[str, list[str]] = {customer: [] for customer in CUSTOMERS}
    all_seen = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        customer, _, step = message.body.decode().partition(" ")
        if customer in seen:
            seen[customer].append(step)
        if all(len(steps) == len(STEPS) for steps in seen.values()):
            all_seen.set()

    async with Producer(name_servers, transport=RedisStreamsTransport) as producer:
        for step in STEPS:
            for customer in CUSTOMERS:
                # Keys stay assigned to a broker that is down: sends of them fail, unless on_unavailable is set.
                await producer.send_by_key(Message(topic, f"{customer} {step}".encode()), customer)
    async with PushConsumer(
        name_servers,
        group=group,
        subscriptions={topic: "*"},
        listener=listener,
        transport=RedisStreamsTransport,
        ordered=True,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        await asyncio.wait_for(all_seen.wait(), timeout=60)
    for customer, steps in seen.items():
        print(customer, " ".join(steps))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("name_servers", "topic", "group"):
        parser.add_argument(name)
    arguments = vars(parser.parse_args())
    asyncio.run(main(**arguments))
