"""State of a Redis server, read from INFO and CONFIG GET save. Does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pointsman.names import join_addr
from pointsman_agent.core.probe_verdict import Role

DOES_NOT_PERSIST = (
    "does not persist (neither appendonly nor save): after a restart it is empty and empties its replicas"
)
_ROLES = {"master": Role.MASTER, "slave": Role.SLAVE}

Info = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """State of one server."""

    run_id: str
    """Id of the process."""
    role: Role
    master_replid: str
    """Id of the replication history; a promotion begins a new one."""
    offset: int
    """Bytes of that history that the server has."""
    master_addr: str
    """Its master; empty for a master."""
    link_is_up: bool | None
    """Whether the replication link is up; None for a master."""
    replicas: tuple[str, ...]
    """Connected replicas, host:port."""
    persists: bool | None
    """Whether it would still have its data after a restart; None: not reported."""
    used_memory_bytes: int | None = None
    max_memory_bytes: int | None = None
    """Its limit, 0: none; None, as for the memory in use: not reported."""
    replica_lag_bytes: int | None = None
    """What the furthest connected replica lacks; None: no replica is connected."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems, as sentences that stay the same while the problem lasts."""
        warnings = []
        if self.persists is False:
            warnings.append(DOES_NOT_PERSIST)
        if self.link_is_up is False:
            warnings.append(f"its replication link to {self.master_addr} is down")
        return tuple(warnings)


def read_facts(
    server: Info, replication: Info, persistence: Info, save: str | None, memory: Info | None = None
) -> RedisFacts:
    """Read the sections of INFO. ``save`` is the setting of that name; None if the server does not report it."""
    role = _ROLES.get(str(replication.get("role")), Role.UNKNOWN)
    is_replica = role is Role.SLAVE
    offset = replication.get("slave_repl_offset" if is_replica else "master_repl_offset")
    return RedisFacts(
        run_id=str(server.get("run_id", "")),
        role=role,
        master_replid=str(replication.get("master_replid", "")),
        offset=offset if isinstance(offset, int) else 0,
        master_addr=_addr(replication.get("master_host"), replication.get("master_port")) if is_replica else "",
        link_is_up=replication.get("master_link_status") == "up" if is_replica else None,
        replicas=tuple(_replicas(replication)),
        persists=_persists(persistence, save),
        used_memory_bytes=_bytes(memory or {}, "used_memory"),
        max_memory_bytes=_bytes(memory or {}, "maxmemory"),
        replica_lag_bytes=_lag(replication, offset),
    )


def _bytes(section: Info, name: str) -> int | None:
    value = section.get(name)
    return value if isinstance(value, int) and value >= 0 else None


def _lag(replication: Info, offset: object) -> int | None:
    offsets = [each.get("offset") for each in _entries(replication)]
    known = [each for each in offsets if isinstance(each, int)]
    return max(0, offset - min(known)) if known and isinstance(offset, int) else None


def _entries(replication: Info) -> list[Mapping[str, object]]:
    named = [value for key, value in replication.items() if key.startswith("slave") and key[5:].isdigit()]
    return [each for each in named if isinstance(each, Mapping)]


def _replicas(replication: Info) -> list[str]:
    return [addr for each in _entries(replication) if (addr := _addr(each.get("ip"), each.get("port")))]


def _addr(host: object, port: object) -> str:
    return join_addr(str(host), int(str(port))) if host and str(port).isdigit() else ""


def _persists(persistence: Info, save: str | None) -> bool | None:
    aof = persistence.get("aof_enabled")
    if aof in {1, "1"}:
        return True
    if aof is None or save is None:
        return None
    return bool(save.strip())
