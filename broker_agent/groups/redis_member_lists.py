"""The last lists of members in the Redis server that holds the messages and the offsets.

``pointsman:members`` is a hash: field ``<group>``, value the client ids with spaces between. The field ``.`` names the
agent's process that wrote it whole: where another value stands, the server lost data or another agent wrote.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from broker_agent.deadline import within
from broker_agent.groups.member_lists import MemberLists, MemberListsFailed, sound_list
from pointsman.service.clock import Clock
from pointsman.wire.names import split_addr

KEY = "pointsman:members"
WRITER = "."
"""No group can have this name."""
MAX_GROUPS = 100_000
CLOSE_SECONDS = 1.0

T = TypeVar("T")


class RedisMemberLists:
    """See :class:`broker_agent.groups.member_lists.MemberListStore`. ``timeout`` seconds for each exchange."""

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
        self._target = target
        self._clock = clock
        self._timeout = timeout
        self._is_master = is_master
        self._writer = secrets.token_hex(8)
        self._held: MemberLists = {}
        host, port = split_addr(target)
        self._redis = Redis(
            host=host,
            port=port,
            username=username or None,
            password=password or None,
            socket_timeout=None,
            socket_connect_timeout=None,
            decode_responses=True,
            encoding_errors="replace",
            protocol=2,
            retry=Retry(NoBackoff(), 1),
        )

    async def load(self) -> MemberLists | None:
        """See :meth:`MemberListStore.load`."""
        return await self._ask(self._load())

    async def write(self, lists: MemberLists) -> None:
        """See :meth:`MemberListStore.write`. Only what differs is sent, unless another process has written since."""
        await self._ask(self._write(lists))
        self._held = lists

    def is_ours(self) -> bool:
        """See :meth:`MemberListStore.is_ours`. A replica has its master's lists."""
        return self._is_master()

    async def close(self) -> None:
        """See :meth:`MemberListStore.close`."""
        with contextlib.suppress(TimeoutError, RedisError, OSError):
            await within(self._clock, CLOSE_SECONDS, self._redis.aclose())

    async def _load(self) -> MemberLists | None:
        count = await self._command("HLEN", KEY)
        if count > MAX_GROUPS:
            raise ValueError(f"{KEY} holds {count} groups, at most {MAX_GROUPS} are read")
        fields = await self._command("HGETALL", KEY)
        if WRITER not in fields:
            return None
        return {group: sound_list(group, ids.split()) for group, ids in fields.items() if group != WRITER}

    async def _write(self, lists: MemberLists) -> None:
        is_whole = await self._command("HGET", KEY, WRITER) == self._writer
        held = self._held if is_whole else {}
        changed = {group: " ".join(ids) for group, ids in lists.items() if held.get(group) != ids}
        gone = [group for group in held if group not in lists]
        pipeline = self._redis.pipeline(transaction=True)
        if not is_whole:
            pipeline.delete(KEY)
        elif gone:
            pipeline.hdel(KEY, *gone)
        changed[WRITER] = self._writer
        pipeline.hset(KEY, items=[word for field in changed.items() for word in field])
        await pipeline.execute()

    async def _command(self, *words: str) -> Any:  # noqa: ANN401  # untyped in redis-py
        return await self._redis.execute_command(*words)  # type: ignore[no-untyped-call]  # untyped there

    async def _ask(self, exchange: Coroutine[Any, Any, T]) -> T:
        try:
            return await within(self._clock, self._timeout, exchange)
        except TimeoutError:
            raise MemberListsFailed(f"redis {self._target}: no response in {self._timeout:g} s") from None
        except (RedisError, OSError, ValueError, EOFError) as error:
            raise MemberListsFailed(f"redis {self._target}: {error}") from error
