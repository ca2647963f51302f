"""A message for each change of a database, sent if the change is committed, and only then: a table is the outbox.

::

    python database_outbox.py 127.0.0.1:9876 orders shop.db

Each run pays three orders and sends what is in the table, also what an earlier run left there. A run that ends between
a send and the removal of its row sends the message again: its key is the same, by which consumers know it.
"""

import argparse
import asyncio
import sqlite3
import sys

from pointsman_client import Message, PointsmanError, Producer
from pointsman_client.redis_streams import RedisStreamsTransport

TABLES = """
CREATE TABLE IF NOT EXISTS paid (number INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL);
"""


def pay(database: sqlite3.Connection) -> None:
    with database:  # One transaction: the change and its message, or neither.
        number = database.execute("INSERT INTO paid DEFAULT VALUES").lastrowid
        database.execute("INSERT INTO outbox (body) VALUES (?)", (b"order %d paid" % (number or 0),))


async def send_outbox(database: sqlite3.Connection, producer: Producer, topic: str) -> None:
    for row, body in database.execute("SELECT id, body FROM outbox ORDER BY id").fetchall():
        result = await producer.send(Message(topic, body, tags="paid", keys=(f"outbox-{row}",)))
        with database:
            database.execute("DELETE FROM outbox WHERE id = ?", (row,))
        print(f"{body.decode()}: {result.status}")


async def main(name_servers: str, topic: str, file: str) -> None:
    database = sqlite3.connect(file)
    database.executescript(TABLES)
    for _ in range(3):
        pay(database)
    async with Producer(name_servers, transport=RedisStreamsTransport) as producer:
        try:
            await send_outbox(database, producer, topic)
        except PointsmanError as error:  # A service tries again after some seconds.
            print(f"stays in the outbox: {error}")
            sys.exit(1)
        finally:
            database.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("name_servers", "topic", "file"):
        parser.add_argument(name)
    arguments = vars(parser.parse_args())
    asyncio.run(main(**arguments))
