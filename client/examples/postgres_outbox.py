"""The outbox of database_outbox.py with PostgreSQL, where any number of instances may send what is in the table.

::

    pip install 'pointsman-client[redis]' 'psycopg[binary]'
    python postgres_outbox.py 127.0.0.1:9876 orders postgresql://127.0.0.1:5432/shop

Each run pays three orders and sends what is in the table, also what an earlier run left there. A run that ends between
a send and the removal of its row sends the message again: its key is the same, by which consumers know it.
"""

import argparse
import asyncio
import sys

from psycopg import AsyncConnection

from pointsman_client import Message, PointsmanError, Producer
from pointsman_client.redis_streams import RedisStreamsTransport

TABLES = (
    "CREATE TABLE IF NOT EXISTS paid (number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS outbox (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body BYTEA NOT NULL)",
)


async def pay(database: AsyncConnection) -> None:
    async with database.transaction():  # The change and its message, or neither.
        inserted = await database.execute("INSERT INTO paid DEFAULT VALUES RETURNING number")
        ((number,),) = await inserted.fetchall()
        await database.execute("INSERT INTO outbox (body) VALUES (%s)", (b"order %d paid" % number,))


async def send_outbox(database: AsyncConnection, producer: Producer, topic: str) -> None:
    while True:
        async with database.transaction():  # Other instances skip the row that is being sent here.
            rows = await database.execute("SELECT id, body FROM outbox ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED")
            if (row := await rows.fetchone()) is None:
                return
            result = await producer.send(Message(topic, row[1], tags="paid", keys=(f"outbox-{row[0]}",)))
            await database.execute("DELETE FROM outbox WHERE id = %s", (row[0],))
        print(f"{row[1].decode()}: {result.status}")


async def main(name_servers: str, topic: str, database: str) -> None:
    async with (
        await AsyncConnection.connect(database, autocommit=True) as connection,
        Producer(name_servers, transport=RedisStreamsTransport) as producer,
    ):
        for table in TABLES:
            await connection.execute(table)
        for _ in range(3):
            await pay(connection)
        try:
            await send_outbox(connection, producer, topic)
        except PointsmanError as error:  # A service tries again after some seconds.
            print(f"stays in the outbox: {error}")
            sys.exit(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("name_servers", "topic", "database"):
        parser.add_argument(name)
    arguments = vars(parser.parse_args())
    asyncio.run(main(**arguments))
