"""Whether a Redis server answers, which process it is, and whether it is a master or a replica."""

from __future__ import annotations

from collections.abc import Mapping

from broker_agent.core.probe_verdict import ProbeResult, Role
from broker_agent.probe import ProbeNotInstalledError
from pointsman.wire.names import split_addr

try:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError
except ModuleNotFoundError as error:
    raise ProbeNotInstalledError(
        "a probe of kind redis needs the redis package: pip install 'pointsman[redis]'"
    ) from error


class RedisProbe:
    """PING decides; INFO tells ``run_id`` and ``role``. A new connection each time, as a new client would make one.

    A server that answers PING with an error (still loading, a replica without its master, a wrong password) does not
    answer its clients either: it fails. One that only refuses INFO passes, and nothing is known of its process.
    """

    def __init__(self, target: str, *, username: str = "", password: str = "") -> None:
        self._target = target
        self._host, self._port = split_addr(target)
        self._username = username or None
        self._password = password or None

    async def look(self) -> ProbeResult:
        """See :meth:`broker_agent.probe.Probe.look`."""
        # The caller has the deadline, and a retry would only hide what a client meets.
        redis = Redis(
            host=self._host,
            port=self._port,
            username=self._username,
            password=self._password,
            socket_timeout=None,
            socket_connect_timeout=None,
            decode_responses=True,
            # No HELLO: it is unknown before Redis 6, and hides a missing password behind a riddle.
            protocol=2,
            retry=Retry(NoBackoff(), 0),
        )
        try:
            await redis.ping()
            try:
                server, replication = await redis.info("server"), await redis.info("replication")
            except RedisError as error:
                return ProbeResult(passed=True, detail=f"redis {self._target}: answers, but not INFO: {error}")
        except (RedisError, OSError, ValueError, EOFError) as error:  # ValueError: what answers does not speak RESP
            return ProbeResult(passed=False, detail=f"redis {self._target}: {error}")
        finally:
            await redis.aclose()
        return ProbeResult(
            passed=True,
            detail=f"redis {self._target}: answers",
            incarnation=str(server.get("run_id", "")),
            role=_role(replication),
        )


def _role(replication: Mapping[str, object]) -> Role:
    said = replication.get("role")
    return {"master": Role.MASTER, "slave": Role.SLAVE}.get(str(said), Role.UNKNOWN)
