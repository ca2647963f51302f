"""Queues as Redis streams; needs the extra ``redis``. ``entry.py`` has the format of the entries.

::

    transport.py     the transport: one broker for each address
    broker.py        three lanes, and what uses them: appending.py, reading.py, waiting_room.py, age_trim.py
    lane.py          a link, opened when needed and anew after it broke
    link.py          one connection with many requests under way
"""

try:
    import redis.asyncio  # noqa: F401  # says what to install, before anything runs
except ModuleNotFoundError as error:
    raise ImportError(
        "RedisStreamsTransport needs the redis package: pip install 'pointsman-client[redis]'", name="redis"
    ) from error

from pointsman_client.transports.redis_streams.redis_transport import RedisStreamsTransport

__all__ = ["RedisStreamsTransport"]
