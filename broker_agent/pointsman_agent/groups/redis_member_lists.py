"""The last member lists, in the Redis server that holds the messages and the offsets.

``pointsman:members`` is a hash: field ``<group>``, value the client ids, separated by spaces. The field ``.`` names the
agent's process that wrote the complete hash. With another value there, the server lost data or another agent wrote.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from pointsman.clock import Clock
from pointsman_agent.groups.member_lists import MemberLists, MemberListsFailed, sound_list
from pointsman_agent.redis_link import RedisLink

KEY = "pointsman:members"
WRITER = "."
"""Not a valid group name."""
MAX_GROUPS = 100_000


class RedisMemberLists:
    """See :class:`pointsman_agent.groups.member_lists.MemberListStore`. ``timeout`` seconds for each exchange."""

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
        self._writer = secrets.token_hex(8)
        self._held: MemberLists = {}
        self._link = RedisLink(
            target, clock=clock, timeout=timeout, username=username, password=password, failure=MemberListsFailed
        )

    async def load(self) -> MemberLists | None:
        """See :meth:`MemberListStore.load`."""
        return await self._link.run(self._load())

    async def write(self, lists: MemberLists) -> None:
        """See :meth:`MemberListStore.write`. Only changes are sent, unless another process has written since."""
        await self._link.run(self._write(lists))
        self._held = lists

    def is_ours(self) -> bool:
        """See :meth:`MemberListStore.is_ours`. A replica has its master's lists."""
        return self._is_master()

    async def close(self) -> None:
        """See :meth:`MemberListStore.close`."""
        await self._link.close()

    async def _load(self) -> MemberLists | None:
        count = await self._link.command("HLEN", KEY)
        if count > MAX_GROUPS:
            raise ValueError(f"{KEY} holds {count} groups, at most {MAX_GROUPS} are read")
        fields = await self._link.command("HGETALL", KEY)
        if WRITER not in fields:
            return None
        return {group: sound_list(group, ids.split()) for group, ids in fields.items() if group != WRITER}

    async def _write(self, lists: MemberLists) -> None:
        is_whole = await self._link.command("HGET", KEY, WRITER) == self._writer
        held = self._held if is_whole else {}
        changed = {group: " ".join(ids) for group, ids in lists.items() if held.get(group) != ids}
        gone = [group for group in held if group not in lists]
        pipeline = self._link.client.pipeline(transaction=True)
        if not is_whole:
            pipeline.delete(KEY)
        elif gone:
            pipeline.hdel(KEY, *gone)
        changed[WRITER] = self._writer
        pipeline.hset(KEY, items=[word for field in changed.items() for word in field])
        await pipeline.execute()
