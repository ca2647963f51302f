"""A worker without an event loop: consumes messages one by one and sends a result for each.

::

    python synchronous_worker.py 127.0.0.1:9876 orders invoices
"""

import argparse
import sys

from pointsman_client import ConsumeFrom, Message
from pointsman_client.redis_streams import RedisStreamsTransport
from pointsman_client.sync import Producer, PullConsumer


def main(name_servers: str, source: str, destination: str) -> None:
    with (
        Producer(name_servers, transport=RedisStreamsTransport) as producer,
        PullConsumer(
            name_servers,
            group="invoicing",
            subscriptions={source: "*"},
            transport=RedisStreamsTransport,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ) as consumer,
    ):
        for message in consumer:  # The previous one is finished when the next is requested.
            producer.send(Message(destination, b"invoice of " + message.body))
            print(message.body.decode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("name_servers", "source", "destination"):
        parser.add_argument(name)
    arguments = vars(parser.parse_args())
    try:
        main(**arguments)
    except KeyboardInterrupt:
        sys.exit(130)
