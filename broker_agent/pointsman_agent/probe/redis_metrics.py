"""Metrics of the Redis probe."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from pointsman_agent.probe.redis_facts import RedisFacts

_UNKNOWN = float("nan")


class RedisMetrics:
    """Gauges in ``registry``; pass :meth:`set` to the probe as ``on_facts``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._persists = Gauge(
            "pointsman_agent_redis_persistence_enabled",
            "1 if Redis persists its data (appendonly or save), 0 if not, NaN if unknown.",
            registry=registry,
        )
        self._link_is_up = Gauge(
            "pointsman_agent_redis_replication_link_up",
            "Replication link to the master: 1 up, 0 down, NaN on a master.",
            registry=registry,
        )
        self._replicas = Gauge("pointsman_agent_redis_replicas", "Replicas connected to this Redis.", registry=registry)
        self._offset = Gauge(
            "pointsman_agent_redis_replication_offset_bytes",
            "Replication offset of this Redis.",
            registry=registry,
        )
        for gauge in (self._persists, self._link_is_up, self._replicas, self._offset):
            gauge.set(_UNKNOWN)

    def set(self, facts: RedisFacts) -> None:
        """Publish the facts of one probe."""
        self._persists.set(_to_number(facts.persists))
        self._link_is_up.set(_to_number(facts.link_is_up))
        self._replicas.set(len(facts.replicas))
        self._offset.set(facts.offset)


def _to_number(value: bool | None) -> float:
    return _UNKNOWN if value is None else float(value)
