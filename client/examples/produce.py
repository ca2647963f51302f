"""Send ten messages and print the queue of each.

::

    python produce.py 127.0.0.1:9876 orders
"""

import argparse
import asyncio

from pointsman_client import Message, Producer, SendError
from pointsman_client.redis_streams import RedisStreamsTransport


async def main(name_servers: str, topic: str) -> None:
    async with Producer(name_servers, transport=RedisStreamsTransport) as producer:
        for number in range(10):
            message = Message(topic, f"order {number}".encode(), tags="paid", keys=(str(number),))
            try:
                result = await producer.send(message)
            except SendError as error:  # The text contains every broker tried, with its error.
                print(f"not sent: {error}")
            else:
                print(f"{result.status}: {result.queue.broker_name} queue {result.queue.queue_id}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("name_servers", "topic"):
        parser.add_argument(name)
    arguments = vars(parser.parse_args())
    asyncio.run(main(**arguments))
