"""Queues as Redis streams; requires the extra ``redis``. The format of the entries is in ``entry.py``.

::

    redis_transport.py  the transport: one broker per address
    broker.py           three lanes and their users: appending.py, reading.py, blocking_reader.py, age_trim.py
    lane.py             a link, opened on demand and reopened after it broke
    link.py             one connection with pipelined requests
"""

try:
    import redis.asyncio  # noqa: F401  # fails early, with a hint what to install
except ModuleNotFoundError as error:
    raise ImportError(
        "RedisStreamsTransport needs the redis package: pip install 'pointsman-client[redis]'", name="redis"
    ) from error

from pointsman_client.redis_streams.redis_transport import RedisStreamsTransport

__all__ = ["RedisStreamsTransport"]
