"""Offsets in the Redis server that holds the messages: as durable as they are, and promoted with them.

``pointsman:offsets:<group>`` is a hash. Field ``<topic>:<queue id>`` has the offset in decimals. Field
``<topic>:begin`` has when the group first consumed the topic, and ``:seen`` when a client of it was last seen, both in
milliseconds since the epoch. The set ``pointsman:offsets`` has the group names, so that no agent scans all keys of the
server. A script compares with the stored values: during a hand-over neither of two agents of one broker overwrites a
higher offset of the other. To delete a group's offsets, delete its hash and restart the agent.

Of queues that an operator has reset, ``pointsman:epochs:<group>`` and ``pointsman:epochs`` have the epochs in the same
form: by themselves, because version 0.1.0 reads the hashes of offsets, and would take these for offsets.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from pointsman.clock import Clock
from pointsman_agent.core.offset_epoch import epoch_of, offset_of, with_epoch
from pointsman_agent.core.offsets import BEGIN_ID, OffsetChange, OffsetKey
from pointsman_agent.offsets.stored_offsets import (
    StoreFailed,
    StoreNotInstalledError,
    queue_text,
    stored_epoch,
    stored_offset,
)

try:
    from pointsman_agent.redis_link import RedisLink
except ModuleNotFoundError as error:
    raise StoreNotInstalledError(
        "offsets in redis need the redis package: pip install 'pointsman-agent[redis]'"
    ) from error

GROUPS_KEY = "pointsman:offsets"
EPOCHS_KEY = "pointsman:epochs"
BATCH = 1_000
"""Offsets in one exchange: Redis serves no other client during it, about a millisecond."""
MAX_LOADED = 1_000_000
"""An agent stops far below this limit."""
REPLICA_SECONDS = 30.0
SETTLING_SECONDS = 30.0
"""After the first load: for this time an agent that hands over to this one may still write."""

# Lua numbers are doubles; beyond 2^53 only the decimals show which is higher.
ADVANCE = """
local function is_offset(text)
  return text == '0' or (string.match(text, '^[1-9]%d*$') and
    (#text < 20 or (#text == 20 and text <= '18446744073709551615')))
end
local function is_higher(one, other)
  return #one > #other or (#one == #other and one > other)
end
local kept = {}
local has_epochs = redis.call('EXISTS', KEYS[3]) == 1
redis.call('SADD', KEYS[2], ARGV[1])
for i = 2, #ARGV, 4 do
  local field, value, rule, epoch = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local held = redis.call('HGET', KEYS[1], field)
  local held_epoch = has_epochs and redis.call('HGET', KEYS[3], field) or '0'
  if held_epoch ~= epoch and not is_offset(held_epoch) then held_epoch = '0' end
  local removes = string.sub(rule, 1, 1) == '-'
  local stays = removes and string.sub(rule, 2) or rule
  if held and is_offset(held) and (is_higher(held_epoch, epoch) or (held_epoch == epoch and
    ((stays == 'highest' and is_higher(held, value)) or (stays == 'lowest' and is_higher(value, held))))) then
    kept[#kept + 1] = field
    kept[#kept + 1] = held
    kept[#kept + 1] = held_epoch
  elseif removes then
    redis.call('HDEL', KEYS[1], field)
    if has_epochs then redis.call('HDEL', KEYS[3], field) end
  else
    redis.call('HSET', KEYS[1], field, value)
    if epoch ~= '0' and epoch ~= held_epoch then
      redis.call('HSET', KEYS[3], field, epoch)
      redis.call('SADD', KEYS[4], ARGV[1])
      has_epochs = true
    end
  end
end
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('SREM', KEYS[2], ARGV[1]) end
if has_epochs and redis.call('EXISTS', KEYS[3]) == 0 then redis.call('SREM', KEYS[4], ARGV[1]) end
return kept
"""
"""KEYS: hash of offsets, set of groups with one, hash of epochs, set of groups with one. ARGV: the group, then field,
value, rule and epoch of each. The rule is the value that remains of the same epoch, highest or lowest, or set: the new
one. With "-" before it the field is removed unless the old value prevails. A value of a later epoch prevails. Returns
the fields whose old value prevailed, with it and its epoch."""

log = logging.getLogger(__name__)


def hash_key(group: str) -> str:
    """Return the key of a group's hash."""
    return f"{GROUPS_KEY}:{group}"


def epochs_key(group: str) -> str:
    """Return the key of a group's epochs."""
    return f"{EPOCHS_KEY}:{group}"


class RedisStore:
    """See :class:`~pointsman_agent.offsets.stored_offsets.OffsetStore`.

    ``timeout`` seconds for each exchange with ``target``. ``is_master`` returns whether the server counts as a master:
    a replica's content may be changed by its master.
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
        self._is_master = is_master
        self._first_loaded_at: float | None = None
        self._loaded_at: float | None = None
        self._link = RedisLink(
            target, clock=clock, timeout=timeout, username=username, password=password, failure=StoreFailed
        )

    async def load(self) -> Mapping[OffsetKey, int]:
        """See :meth:`OffsetStore.load`. Malformed offsets are skipped and logged.

        A replica, which serves no clients, is read every 30 s only, and completely once it is a master.
        """
        now = self._clock.monotonic()
        if self._loaded_at is not None and now - self._loaded_at < REPLICA_SECONDS and not self._is_master():
            return {}
        found: dict[OffsetKey, int] = {}
        foreign = 0
        async for group in self._groups(GROUPS_KEY):
            async for queue, offset in self._fields(hash_key(group)):
                topic, _, queue_id = queue.rpartition(":")
                read = stored_offset(group, topic, queue_id, offset)
                if read is None:
                    foreign += 1
                else:
                    found[read[0]] = read[1]
                if len(found) + foreign > MAX_LOADED:
                    raise StoreFailed(f"redis {self._target}: {GROUPS_KEY}:* have more than {MAX_LOADED} offsets")
        foreign += await self._add_epochs(found)
        if foreign:
            facts = {"redis": self._target, "fields": foreign, "keys": f"{GROUPS_KEY}:*, {EPOCHS_KEY}:*"}
            log.warning("ignored fields that are not offsets", extra={"facts": facts})
        self._loaded_at = now
        if self._first_loaded_at is None:
            self._first_loaded_at = now
        return found

    async def _add_epochs(self, found: dict[OffsetKey, int]) -> int:
        """Add the epochs of offsets; return the number of malformed ones. One without an offset is ignored."""
        foreign = 0
        async for group in self._groups(EPOCHS_KEY):
            async for queue, text in self._fields(epochs_key(group)):
                topic, _, queue_id = queue.rpartition(":")
                read, epoch = stored_offset(group, topic, queue_id, "0"), stored_epoch(text)
                if read is None or epoch is None:
                    foreign += 1
                elif read[0] in found:
                    found[read[0]] = with_epoch(offset_of(found[read[0]]), epoch)
        return foreign

    async def write(self, changes: Sequence[OffsetChange]) -> Mapping[OffsetKey, int]:
        """See :meth:`OffsetStore.write`."""
        higher: dict[OffsetKey, int] = {}
        for start in range(0, len(changes), BATCH):
            higher.update(await self._link.run(self._advance(changes[start : start + BATCH])))
        return higher

    def is_ours(self) -> bool:
        """See :meth:`OffsetStore.is_ours`."""
        loaded_at = self._first_loaded_at
        is_settled = loaded_at is not None and self._clock.monotonic() - loaded_at > SETTLING_SECONDS
        return is_settled and self._is_master()

    def is_exclusive(self) -> bool:
        """See :meth:`OffsetStore.is_exclusive`. A master may become a replica, whose master others write."""
        return False

    async def close(self) -> None:
        """See :meth:`OffsetStore.close`."""
        await self._link.close()

    async def _advance(self, batch: Sequence[OffsetChange]) -> dict[OffsetKey, int]:
        of_group: dict[str, list[OffsetChange]] = {}
        for change in batch:
            of_group.setdefault(change.key.group, []).append(change)
        pipeline = self._link.client.pipeline(transaction=False)
        for group, changes in of_group.items():
            words = [word for change in changes for word in _words(change)]
            keys = (hash_key(group), GROUPS_KEY, epochs_key(group), EPOCHS_KEY)
            pipeline.eval(ADVANCE, len(keys), *keys, group, *words)
        higher: dict[OffsetKey, int] = {}
        errors: list[Exception] = []
        # Each group by itself: a key of a wrong type does not prevent the other groups from being written.
        for group, answer in zip(of_group, await pipeline.execute(raise_on_error=False), strict=True):
            if isinstance(answer, Exception):
                errors.append(answer)
                continue
            numbers = map(with_epoch, map(int, answer[1::3]), map(int, answer[2::3]))
            kept = dict(zip(answer[::3], numbers, strict=True))
            higher.update({c.key: kept[_field(c.key)] for c in of_group[group] if _field(c.key) in kept})
        if errors:
            raise errors[0]
        return higher

    async def _groups(self, key: str) -> AsyncIterator[str]:
        cursor = -1
        while cursor:
            cursor, groups = await self._link.run(self._link.command("SSCAN", key, max(cursor, 0), "COUNT", BATCH))
            for group in groups:
                yield group

    async def _fields(self, key: str) -> AsyncIterator[tuple[str, str]]:
        cursor = -1
        while cursor:
            cursor, fields = await self._link.run(self._link.command("HSCAN", key, max(cursor, 0), "COUNT", BATCH))
            for field in fields.items():
                yield field


def _field(key: OffsetKey) -> str:
    return f"{key.topic}:{queue_text(key)}"


def _words(change: OffsetChange) -> tuple[str, str, str, str]:
    return _field(change.key), str(offset_of(change.offset)), _rule(change), str(epoch_of(change.offset))


def _rule(change: OffsetChange) -> str:
    stays = "lowest" if change.key.queue_id == BEGIN_ID else "highest"
    return ("-" if change.removed else "") + ("set" if change.reset else stays)
