"""Bodies that pydantic validates: the serializer is one object, and a body that it refuses never reaches the listener.

::

    pip install 'pointsman-client[redis]' pydantic
    python validated_orders.py 127.0.0.1:9876 orders

It sends two orders, and a body that is none as another program might, and ends when each has been consumed or is a
dead letter.
"""

import argparse
import asyncio
from decimal import Decimal
from types import UnionType
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from pointsman_client import Message, Producer, PushConsumer, ReceivedMessage
from pointsman_client.redis_streams import RedisStreamsTransport


class Order(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)  # Logs and dead letters have the reason, not the input.

    number: int
    state: Literal["paid", "refunded"]
    amount: Decimal


class Validated:
    """A serializer of a pydantic model, or of several: ``Validated(Order | Customer)``."""

    def __init__(self, model: type[BaseModel] | UnionType) -> None:
        self._adapter: TypeAdapter[object] = TypeAdapter(model)

    def encode(self, value: object) -> bytes:
        return self._adapter.dump_json(self._adapter.validate_python(value))

    def decode(self, body: bytes) -> object:
        return self._adapter.validate_json(body)


async def main(name_servers: str, topic: str) -> None:
    ended: asyncio.Queue[str] = asyncio.Queue()

    async def bill(message: ReceivedMessage) -> None:
        order: Order = message.value
        ended.put_nowait(f"order {order.number} {order.state}: {order.amount}")

    def dead(_: ReceivedMessage, error: str) -> None:
        ended.put_nowait("dead letter: " + " ".join(error.split()))

    orders = Validated(Order)
    async with (
        Producer(name_servers, transport=RedisStreamsTransport, serializer=orders) as producer,
        PushConsumer(
            name_servers,
            group="validated",
            subscriptions={topic: "validated"},
            listener=bill,
            transport=RedisStreamsTransport,
            serializer=orders,
            max_reconsume_times=0,  # A body does not get better: no retries.
            on_dead_letter=dead,
        ),
    ):
        for order in (
            Order(number=4711, state="paid", amount=Decimal("9.90")),
            Order(number=4712, state="refunded", amount=Decimal("5.00")),
        ):
            await producer.send(producer.message(topic, order, tags="validated"))
        await producer.send(Message(topic, b'{"number": "many", "state": "lost"}', tags="validated"))
        for _ in range(3):
            print(await ended.get())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("name_servers", "topic"):
        parser.add_argument(name)
    arguments = vars(parser.parse_args())
    asyncio.run(main(**arguments))
