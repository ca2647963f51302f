"""Offsets in the Redis server that holds the messages: as durable as they are, and promoted with them.

``pointsman:offsets:<group>`` is a hash: field ``<topic>:<queue id>``, value the offset in decimals; field
``<topic>:begin``, when the group first consumed the topic, and ``:seen``, when a client of it was last seen, both in
milliseconds since the epoch. The set ``pointsman:offsets`` names the groups, so that no agent has to walk over all keys
of the server. A script compares with what is there, so of two agents of one broker, in a hand-over, neither writes
backwards what the other wrote. Deleting a group's hash deletes its offsets, once the agent is restarted.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from broker_agent.core.offsets import BEGIN_ID, OffsetChange, OffsetKey
from broker_agent.deadline import within
from broker_agent.offsets.store import StoreFailed, StoreNotInstalledError, queue_text, stored_offset
from pointsman.service.clock import Clock
from pointsman.wire.names import split_addr

try:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError
except ModuleNotFoundError as error:
    raise StoreNotInstalledError("offsets in redis need the redis package: pip install 'pointsman[redis]'") from error

GROUPS_KEY = "pointsman:offsets"
BATCH = 1_000
"""Offsets in one exchange: Redis serves nobody else meanwhile, for about a millisecond."""
MAX_LOADED = 1_000_000
"""More cannot come from an agent, which stops far earlier."""
CLOSE_SECONDS = 1.0
REPLICA_SECONDS = 30.0
SETTLING_SECONDS = 30.0
"""After the first load: an agent that hands over to this one may still write so long."""

# Numbers of Lua are doubles; beyond 2^53 only the decimals tell which is higher.
ADVANCE = """
local function is_offset(text)
  return text == '0' or (string.match(text, '^[1-9]%d*$') and
    (#text < 20 or (#text == 20 and text <= '18446744073709551615')))
end
local function is_higher(one, other)
  return #one > #other or (#one == #other and one > other)
end
local kept = {}
redis.call('SADD', KEYS[2], ARGV[1])
for i = 2, #ARGV, 3 do
  local field, value, rule = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local held = redis.call('HGET', KEYS[1], field)
  if rule == 'remove' then
    if held == value then redis.call('HDEL', KEYS[1], field) end
  elseif held and is_offset(held) and ((rule == 'highest' and is_higher(held, value)) or
    (rule == 'lowest' and is_higher(value, held))) then
    kept[#kept + 1] = field
    kept[#kept + 1] = held
  else
    redis.call('HSET', KEYS[1], field, value)
  end
end
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('SREM', KEYS[2], ARGV[1]) end
return kept
"""
"""KEYS: hash, set of groups. ARGV: the group, then field, value and rule of each: which of two values stays, highest or
lowest; set, whatever is there; remove, if it is there. Answers the fields that keep their value, with it."""

log = logging.getLogger(__name__)

T = TypeVar("T")


def hash_key(group: str) -> str:
    """The key of a group's hash."""
    return f"{GROUPS_KEY}:{group}"


class RedisStore:
    """See :class:`broker_agent.offsets.store.OffsetStore`. ``timeout`` seconds for each exchange with ``target``.

    ``is_master`` tells whether the server is believed to be one: what a replica holds, its master may change.
    """

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
        self._first_loaded_at: float | None = None
        self._loaded_at: float | None = None
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
            # Of a connection that broke unnoticed; a server that is away is tried again at the next interval.
            retry=Retry(NoBackoff(), 1),
        )

    async def load(self) -> Mapping[OffsetKey, int]:
        """See :meth:`OffsetStore.load`. What cannot be an offset is left out, and said in the log.

        A replica, to which no client is sent, is read each 30 s only, and whole once it is a master.
        """
        now = self._clock.monotonic()
        if self._loaded_at is not None and now - self._loaded_at < REPLICA_SECONDS and not self._is_master():
            return {}
        found: dict[OffsetKey, int] = {}
        foreign = 0
        async for group in self._groups():
            async for queue, offset in self._fields(hash_key(group)):
                topic, _, queue_id = queue.rpartition(":")
                read = stored_offset(group, topic, queue_id, offset)
                if read is None:
                    foreign += 1
                else:
                    found[read[0]] = read[1]
                if len(found) + foreign > MAX_LOADED:
                    raise StoreFailed(f"redis {self._target}: {GROUPS_KEY}:* hold over {MAX_LOADED} offsets")
        if foreign:
            facts = {"redis": self._target, "fields": foreign, "keys": f"{GROUPS_KEY}:*"}
            log.warning("what cannot be an offset is left out", extra={"facts": facts})
        self._loaded_at = now
        if self._first_loaded_at is None:
            self._first_loaded_at = now
        return found

    async def write(self, changes: Sequence[OffsetChange]) -> Mapping[OffsetKey, int]:
        """See :meth:`OffsetStore.write`."""
        higher: dict[OffsetKey, int] = {}
        for start in range(0, len(changes), BATCH):
            higher.update(await self._ask(self._advance(changes[start : start + BATCH])))
        return higher

    def is_ours(self) -> bool:
        """See :meth:`OffsetStore.is_ours`."""
        loaded_at = self._first_loaded_at
        is_settled = loaded_at is not None and self._clock.monotonic() - loaded_at > SETTLING_SECONDS
        return is_settled and self._is_master()

    def stays_ours(self) -> bool:
        """See :meth:`OffsetStore.stays_ours`. A master may become a replica, of one that others write."""
        return False

    async def close(self) -> None:
        """See :meth:`OffsetStore.close`."""
        with contextlib.suppress(TimeoutError, RedisError, OSError):
            await within(self._clock, CLOSE_SECONDS, self._redis.aclose())

    async def _advance(self, batch: Sequence[OffsetChange]) -> dict[OffsetKey, int]:
        of_group: dict[str, list[OffsetChange]] = {}
        for change in batch:
            of_group.setdefault(change.key.group, []).append(change)
        pipeline = self._redis.pipeline(transaction=False)
        for group, changes in of_group.items():
            words = [word for change in changes for word in (_field(change.key), str(change.offset), _rule(change))]
            pipeline.eval(ADVANCE, 2, hash_key(group), GROUPS_KEY, group, *words)
        higher: dict[OffsetKey, int] = {}
        errors: list[Exception] = []
        # Each group by itself: a key of another type in one's place keeps no other from being written.
        for group, answer in zip(of_group, await pipeline.execute(raise_on_error=False), strict=True):
            if isinstance(answer, Exception):
                errors.append(answer)
                continue
            kept = dict(zip(answer[::2], answer[1::2], strict=True))
            higher.update({c.key: int(kept[_field(c.key)]) for c in of_group[group] if _field(c.key) in kept})
        if errors:
            raise errors[0]
        return higher

    async def _groups(self) -> AsyncIterator[str]:
        cursor = -1
        while cursor:
            cursor, groups = await self._ask(self._scan("SSCAN", GROUPS_KEY, max(cursor, 0)))
            for group in groups:
                yield group

    async def _fields(self, key: str) -> AsyncIterator[tuple[str, str]]:
        cursor = -1
        while cursor:
            cursor, fields = await self._ask(self._scan("HSCAN", key, max(cursor, 0)))
            for field in fields.items():
                yield field

    async def _scan(self, command: str, key: str, cursor: int) -> Any:  # noqa: ANN401  # redis-py says no more
        return await self._redis.execute_command(command, key, cursor, "COUNT", BATCH)  # type: ignore[no-untyped-call]  # untyped there

    async def _ask(self, exchange: Coroutine[Any, Any, T]) -> T:
        try:
            return await within(self._clock, self._timeout, exchange)
        except TimeoutError:
            raise StoreFailed(f"redis {self._target}: no answer in {self._timeout:g} s") from None
        except (RedisError, OSError, ValueError, EOFError) as error:  # ValueError: what answers does not speak RESP
            raise StoreFailed(f"redis {self._target}: {error}") from error


def _field(key: OffsetKey) -> str:
    return f"{key.topic}:{queue_text(key)}"


def _rule(change: OffsetChange) -> str:
    if change.removed:
        return "remove"
    if change.reset:
        return "set"
    return "lowest" if change.key.queue_id == BEGIN_ID else "highest"
