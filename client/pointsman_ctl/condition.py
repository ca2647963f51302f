"""What is wrong with a replica group, said by name so that no reader has to infer it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pointsman.v1 import broker_pb2
from pointsman_client.core.route import MASTER_ID

FLAPPING_ABOVE = 3_000.0
"""Flap penalty above which a name server says that a broker flaps: ``suppress_above`` of its rules; a test holds
them together."""


def is_flapping(status: broker_pb2.BrokerStatus) -> bool:
    """Whether a broker comes and goes; one restart or outage makes no such broker."""
    return round(status.penalty, 6) > FLAPPING_ABOVE


def missing_masters(brokers: Iterable[broker_pb2.BrokerStatus]) -> list[tuple[str, str]]:
    """Return (cluster, broker name) of each group without a master in the routes, sorted."""
    groups: dict[tuple[str, str], bool] = {}
    for status in brokers:
        key = (status.identity.cluster, status.identity.broker_name)
        is_routed_master = status.identity.broker_id == MASTER_ID and status.state != broker_pb2.BROKER_STATE_OUT
        groups[key] = groups.get(key, False) or is_routed_master
    return sorted(key for key, has_master in groups.items() if not has_master)
