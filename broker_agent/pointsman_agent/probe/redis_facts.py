"""What a Redis server says of itself, read from INFO and CONFIG GET save. Does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pointsman.wire.names import join_addr
from pointsman_agent.core.probe_verdict import Role

DOES_NOT_PERSIST = "does not persist (neither appendonly nor save): restarted, it is empty and empties its replicas"
_ROLES = {"master": Role.MASTER, "slave": Role.SLAVE}

Info = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """One server at one moment."""

    run_id: str
    """Of the process."""
    role: Role
    master_replid: str
    """Of the history of data that the server is part of; a promotion begins a new one."""
    offset: int
    """Bytes of that history, as far as the server has them."""
    master_addr: str
    """Whom it copies; empty for a master."""
    link_is_up: bool | None
    """Whether it is copying; None for a master."""
    replicas: tuple[str, ...]
    """Those that are connected to it, host:port."""
    persists: bool | None
    """Whether it would still have its data after a restart; None: it does not tell."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong, as sentences that stay the same while it does."""
        warnings = []
        if self.persists is False:
            warnings.append(DOES_NOT_PERSIST)
        if self.link_is_up is False:
            warnings.append(f"its replication link to {self.master_addr} is down")
        return tuple(warnings)


def read_facts(server: Info, replication: Info, persistence: Info, save: str | None) -> RedisFacts:
    """Read the sections of INFO. ``save`` is the setting of that name; None where the server does not tell it."""
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
    )


def _replicas(replication: Info) -> list[str]:
    said = [value for key, value in replication.items() if key.startswith("slave") and key[5:].isdigit()]
    return [addr for each in said if isinstance(each, Mapping) if (addr := _addr(each.get("ip"), each.get("port")))]


def _addr(host: object, port: object) -> str:
    return join_addr(str(host), int(str(port))) if host and str(port).isdigit() else ""


def _persists(persistence: Info, save: str | None) -> bool | None:
    aof = persistence.get("aof_enabled")
    if aof in {1, "1"}:
        return True
    if aof is None or save is None:
        return None
    return bool(save.strip())
