"""Calls to the Redis server that holds the messages, each with a deadline; needs the extra ``redis``."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from pointsman.clock import Clock
from pointsman.deadline import within
from pointsman.names import split_addr

CLOSE_SECONDS = 1.0
CONNECTIONS = 4

T = TypeVar("T")


class RedisLink:
    """Connections to ``target``, opened when needed. A failure or a call of ``timeout`` seconds raises ``failure``.

    ``texts``: responses are str, else bytes. With CONNECTIONS in use a call waits for a free one.
    """

    def __init__(
        self,
        target: str,
        *,
        clock: Clock,
        timeout: float,
        username: str,
        password: str,
        failure: type[Exception],
        texts: bool = True,
    ) -> None:
        self._target = target
        self._clock = clock
        self._timeout = timeout
        self._failure = failure
        host, port = split_addr(target)
        self.client = Redis.from_pool(
            BlockingConnectionPool(
                max_connections=CONNECTIONS,
                timeout=None,
                host=host,
                port=port,
                username=username or None,
                password=password or None,
                socket_timeout=None,
                socket_connect_timeout=None,
                decode_responses=texts,
                encoding_errors="replace",
                protocol=2,
                # For a connection that broke unnoticed; a server that is down is retried at the next interval.
                retry=Retry(NoBackoff(), 1),
            )
        )

    async def run(self, exchange: Coroutine[Any, Any, T]) -> T:
        """Return the result of an exchange, or raise a failure that names the server."""
        try:
            return await within(self._clock, self._timeout, exchange)
        except TimeoutError:
            raise self._failure(f"redis {self._target}: no response within {self._timeout:g} s") from None
        except (RedisError, OSError, ValueError, EOFError) as error:  # ValueError: the peer does not speak RESP
            raise self._failure(f"redis {self._target}: {error}") from error

    async def command(self, *arguments: object) -> Any:  # noqa: ANN401  # untyped in redis-py
        """Send one command; to be awaited within :meth:`run`."""
        return await self.client.execute_command(*arguments)  # type: ignore[no-untyped-call]  # untyped there

    async def close(self) -> None:
        """Close the connections, whatever their state."""
        with contextlib.suppress(TimeoutError, RedisError, OSError):
            await within(self._clock, CLOSE_SECONDS, self.client.aclose())
