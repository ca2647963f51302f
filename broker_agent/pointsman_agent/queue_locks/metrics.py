"""What is told of the queue locks."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from pointsman_agent.core.queue_locks import QueueLocks


def register(locks: QueueLocks, registry: CollectorRegistry) -> None:
    """Register the gauges of ``locks``; a scrape on another thread reads two numbers."""
    held = Gauge("agent_queue_locks", "Queue locks of all groups, expired ones too.", registry=registry)
    held.set_function(lambda: len(locks))
    groups = Gauge("agent_queue_lock_groups", "Groups that have queue locks.", registry=registry)
    groups.set_function(lambda: locks.group_count)
