"""Queues of Redis brokers, removed with their messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pointsman.names import split_addr
from pointsman_client import BrokerUnreachableError
from pointsman_ctl.servers.stored_messages import RedisAccess, RedisPackageMissingError


async def remove_streams(access: RedisAccess, addr: str, keys: Sequence[str], *, timeout_seconds: float) -> int:
    """Remove streams; return how many were there. Raises BrokerUnreachableError, and RedisPackageMissingError."""
    try:
        from redis.asyncio import Redis  # noqa: PLC0415  # an extra
        from redis.exceptions import RedisError  # noqa: PLC0415
    except ImportError:
        raise RedisPackageMissingError from None
    host, port = split_addr(addr)
    options: dict[str, Any] = {"ssl": access.ssl is not None, **(access.ssl or {})}
    client = Redis(
        host=host,
        port=port,
        username=access.username or None,
        password=access.password or None,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=timeout_seconds,
        **options,
    )
    try:
        return int(await client.unlink(*keys))
    except (RedisError, OSError) as error:
        raise BrokerUnreachableError(addr, str(error)) from error
    finally:
        await client.aclose()
