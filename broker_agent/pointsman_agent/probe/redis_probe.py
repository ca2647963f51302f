"""Check a Redis server: whether it responds, its process, its role, and whether it may serve.

An empty master may not serve. A master that restarts without its data, while another member of its group still has
them, would be given to clients as if nothing had ever been written. The probe knows these members: replicas that this
agent saw connected, now or before the restart; the master that it copied before its promotion; the configured peers.
It checks once for each process that becomes a master whether they hold streams. While one does, the broker fails.
Unreachable members do not count. Once the master had a stream, or no member has one, the check is over for that
process: streams that clients delete later do not matter. An agent that starts together with such a master, without
configured peers, knows only the replicas that are already connected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pointsman.clock import Clock, SystemClock
from pointsman.deadline import finish, within
from pointsman.names import split_addr
from pointsman_agent.core.mastership import Mastership, MastershipKeeper, NoMastership
from pointsman_agent.core.probe_verdict import ProbeFailure, ProbeResult, Role
from pointsman_agent.probe import ProbeNotInstalledError
from pointsman_agent.probe.failed_connection import classify_failed_connection
from pointsman_agent.probe.redis_facts import RedisFacts, read_facts

try:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import BusyLoadingError, MasterDownError, RedisError, ResponseError
except ModuleNotFoundError as error:
    raise ProbeNotInstalledError(
        "a probe of kind redis needs the redis package: pip install 'pointsman-agent[redis]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MASTERSHIP_KEY = "pointsman:mastership"
PEER_SECONDS = 0.5
"""Deadline for all peers, which are checked in parallel."""
MAX_PEERS = 16
"""Maximum number of remembered members, the latest ones."""
MAX_KEYS_SCANNED = 20_000
"""A server with more keys counts as not empty."""
SCAN_COUNT = 1_000

_REFUSALS = (BusyLoadingError, MasterDownError)
"""LOADING, and MASTERDOWN of a replica that does not serve stale data: the server refuses its clients as well."""
_ERRORS = (RedisError, OSError, ValueError, EOFError)
"""ValueError: the response is not RESP."""

log = logging.getLogger(__name__)


class RedisProbe:
    """PING decides; INFO reports process and role. Each probe uses a new connection, like a new client.

    A server that responds to PING with an error (still loading, a replica without its master, a wrong password) does
    not serve its clients either: it fails. One that only refuses INFO passes, and its process is unknown.

    ``peers``: other members of its group (host:port), in addition to those that it reports. ``member``: the name in its
    group of a broker that may be promoted and demoted. With it the epoch is stored in the server itself, under
    ``pointsman:mastership``. ``on_facts`` is called with the server's state, for metrics.
    """

    def __init__(
        self,
        target: str,
        *,
        username: str = "",
        password: str = "",
        clock: Clock | None = None,
        peers: Sequence[str] = (),
        member: str = "",
        on_facts: Callable[[RedisFacts], None] | None = None,
    ) -> None:
        self._target = target
        self._username = username or None
        self._password = password or None
        self._clock = clock or SystemClock()
        self._peers = tuple(peers)
        self._seen_peers: dict[str, None] = {}
        self._mastership = MastershipKeeper(member) if member else None
        self._on_facts = on_facts
        self._accepted_run = ""
        """The process that may serve as a master, even if it becomes empty."""
        self._warned: frozenset[str] = frozenset()
        self.facts: RedisFacts | None = None
        """See :class:`pointsman_agent.probe.ReadsRedis`."""

    async def check(self) -> ProbeResult:
        """See :meth:`pointsman_agent.probe.Probe.check`."""
        try:
            async with self._connected(self._target) as redis:
                await redis.ping()
                try:
                    facts = await _read_facts(redis)
                except RedisError as error:
                    self.facts = None
                    return ProbeResult(passed=True, detail=f"redis {self._target}: responds, but INFO failed: {error}")
                return await self._judge(redis, facts)
        except _REFUSALS as error:
            return self._failed(error, ProbeFailure.REFUSED_TO_SERVE)
        except _ERRORS as error:
            return self._failed(error, await classify_failed_connection(self._target))

    def _failed(self, error: Exception, failure: ProbeFailure) -> ProbeResult:
        self.facts = None
        return ProbeResult(passed=False, detail=f"redis {self._target}: {error}", failure=failure)

    async def _judge(self, redis: Redis, facts: RedisFacts) -> ProbeResult:
        self.facts = facts
        if self._on_facts is not None:
            self._on_facts(facts)
        full_peer = await self._peer_with_more(redis, facts)
        # After the check, so that members of the time before a restart are still known during it.
        self._remember([facts.master_addr, *facts.replicas])
        warnings = [*facts.warnings]
        if full_peer:
            detail = (
                f"redis {self._target}: is an empty master while {full_peer} still holds streams: promote that one, or "
                "restore the data, before its replicas are emptied"
            )
            self._warn([*warnings, detail])
            return ProbeResult(
                passed=False,
                detail=detail,
                warnings=tuple(warnings),
                is_certain=True,
                failure=ProbeFailure.REFUSED_TO_SERVE,
            )
        epoch = 0
        if self._mastership is not None:
            epoch, problem = await self._follow(redis, facts, self._mastership)
            warnings += [problem] if problem else []
        self._warn(warnings)
        return ProbeResult(
            passed=True,
            detail=f"redis {self._target}: responds",
            incarnation=facts.run_id,
            role=facts.role,
            master_epoch=epoch,
            warnings=tuple(warnings),
        )

    async def _peer_with_more(self, redis: Redis, facts: RedisFacts) -> str:
        """Return a peer that holds streams while this server is a new master without any; empty if there is none."""
        if facts.role is not Role.MASTER:
            self._accepted_run = ""
            return ""
        if facts.run_id and facts.run_id == self._accepted_run:
            return ""
        if await self._is_empty(redis):
            peers = dict.fromkeys((*self._peers, *self._seen_peers, *facts.replicas))
            for peer, holds in zip(peers, await asyncio.gather(*map(self._peer_holds_streams, peers)), strict=True):
                if holds:
                    return peer
        self._accepted_run = facts.run_id
        return ""

    async def _is_empty(self, redis: Redis) -> bool:
        try:
            return not await _holds_streams(redis)
        except ResponseError:
            return False  # without the permission to scan, emptiness is unknown

    async def _peer_holds_streams(self, peer: str) -> bool:
        try:
            return await within(self._clock, PEER_SECONDS, self._query_streams(peer))
        except (TimeoutError, *_ERRORS):
            return False

    async def _query_streams(self, addr: str) -> bool:
        async with self._connected(addr) as redis:
            return await _holds_streams(redis)

    async def _follow(self, redis: Redis, facts: RedisFacts, mastership: MastershipKeeper) -> tuple[int, str]:
        """Return the epoch that this server may claim, and the problem of storing it, if any."""
        if facts.role is not Role.MASTER:
            mastership.on_replica(facts.run_id)
            return 0, ""
        try:
            text = await redis.get(MASTERSHIP_KEY)
            held = None if text is None else Mastership.from_text(str(text))
        except (ResponseError, NoMastership) as error:
            problem = f"cannot read its epoch as a master from {MASTERSHIP_KEY}: {error}"
            return mastership.claimed(facts.run_id), problem
        claim = mastership.on_master(facts.run_id, held, now=self._clock.monotonic())
        if claim.to_keep is not None:
            try:
                await redis.set(MASTERSHIP_KEY, claim.to_keep.to_text())
            except ResponseError as error:
                return claim.epoch, f"cannot store its epoch as a master in {MASTERSHIP_KEY}: {error}"
        return claim.epoch, ""

    def _remember(self, addrs: Iterable[str]) -> None:
        for addr in filter(None, addrs):
            self._seen_peers.pop(addr, None)
            self._seen_peers[addr] = None
        for addr in list(self._seen_peers)[:-MAX_PEERS]:
            del self._seen_peers[addr]

    def _warn(self, warnings: Iterable[str]) -> None:
        """Log new warnings."""
        now = frozenset(warnings)
        for warning in sorted(now - self._warned):
            log.warning("%s", warning, extra={"facts": {"redis": self._target}})
        self._warned = now

    @asynccontextmanager
    async def _connected(self, addr: str) -> AsyncIterator[Redis]:
        host, port = split_addr(addr)
        # The caller has the deadline. A retry would hide a failure that clients have as well.
        redis = Redis(
            host=host,
            port=port,
            username=self._username,
            password=self._password,
            socket_timeout=None,
            socket_connect_timeout=None,
            decode_responses=True,
            # No HELLO: it is unknown before Redis 6, and gives a misleading error for a missing password.
            protocol=2,
            retry=Retry(NoBackoff(), 0),
        )
        try:
            yield redis
        finally:
            await finish(redis.aclose())


async def _read_facts(redis: Redis) -> RedisFacts:
    server, replication = await redis.info("server"), await redis.info("replication")
    persistence = await redis.info("persistence")
    try:
        save = (await redis.config_get("save")).get("save")
    except RedisError:
        save = None  # CONFIG is disabled for this user, as on managed servers
    return read_facts(server, replication, persistence, save, await redis.info("memory"))


async def _holds_streams(redis: Redis) -> bool:
    """Return whether there is a stream, or more keys than are scanned."""
    keys = await redis.dbsize()
    if keys == 0 or keys > MAX_KEYS_SCANNED:
        return bool(keys)
    cursor = 0
    # Twice: SCAN may need more steps than the number of keys suggests, when keys come and go.
    for _ in range(2 * MAX_KEYS_SCANNED // SCAN_COUNT):
        cursor, found = await redis.scan(cursor, count=SCAN_COUNT, _type="stream")
        if found:
            return True
        if cursor == 0:
            return False
    return True
