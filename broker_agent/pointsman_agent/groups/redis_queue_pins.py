"""Pins of queues in the Redis server that holds the messages and the offsets: the text ``pointsman:queue-pins``."""

from __future__ import annotations

from collections.abc import Callable

from pointsman.clock import Clock
from pointsman_agent.groups.queue_pin_keeper import MAX_BYTES, QueuePinsFailed
from pointsman_agent.redis_link import RedisLink

KEY = "pointsman:queue-pins"


class RedisQueuePins:
    """See :class:`pointsman_agent.groups.queue_pin_keeper.QueuePinStore`. ``timeout`` seconds for each exchange."""

    def __init__(
        self,
        target: str,
        *,
        clock: Clock,
        timeout: float,
        username: str = "",
        password: str = "",
        is_master: Callable[[], bool] = lambda: True,
    ) -> None:
        self._is_master = is_master
        self._link = RedisLink(
            target, clock=clock, timeout=timeout, username=username, password=password, failure=QueuePinsFailed
        )

    async def load(self) -> str | None:
        """See :meth:`QueuePinStore.load`."""
        return await self._link.run(self._load())

    async def write(self, text: str) -> None:
        """See :meth:`QueuePinStore.write`. As durable as the server's settings make a write."""
        await self._link.run(self._link.command("SET", KEY, text))

    def is_ours(self) -> bool:
        """See :meth:`QueuePinStore.is_ours`. A replica has its master's pins."""
        return self._is_master()

    async def close(self) -> None:
        """See :meth:`QueuePinStore.close`."""
        await self._link.close()

    async def _load(self) -> str | None:
        size = await self._link.command("STRLEN", KEY)
        if size > MAX_BYTES:
            raise ValueError(f"{KEY} has {size} bytes, at most {MAX_BYTES} are read")
        text: str | None = await self._link.command("GET", KEY)
        return text
