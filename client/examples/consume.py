"""Consume a topic as a member of a group, until Ctrl-C; start it more than once, and the members share the queues.

::

    python consume.py 127.0.0.1:9876 orders billing
"""

import argparse
import asyncio
import signal

from pointsman_client import ConsumeFrom, ConsumeResult, PushConsumer, ReceivedMessage
from pointsman_client.redis_streams import RedisStreamsTransport


async def listener(message: ReceivedMessage) -> ConsumeResult:
    print(f"{message.queue.broker_name} queue {message.queue.queue_id} offset {message.queue_offset}: {message.body!r}")
    # After RECONSUME_LATER or an exception it is retried after 10 s, 30 s, 1 min ..., then moved to the dead letters.
    return ConsumeResult.SUCCESS


async def main(name_servers: str, topic: str, group: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with PushConsumer(
        name_servers,
        group=group,
        subscriptions={topic: "paid || refunded"},
        listener=listener,
        transport=RedisStreamsTransport,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        await stop.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("name_servers", "topic", "group"):
        parser.add_argument(name)
    arguments = vars(parser.parse_args())
    asyncio.run(main(**arguments))
