"""Values of INFO, in the forms of different servers."""

from __future__ import annotations

import math

import pytest
from prometheus_client import CollectorRegistry

from pointsman_agent.core.probe_verdict import Role
from pointsman_agent.probe.redis_facts import DOES_NOT_PERSIST, Info, read_facts
from pointsman_agent.probe.redis_metrics import RedisMetrics

NAMES = ("persistence_enabled", "replication_link_up", "replicas", "replication_offset_bytes")

SERVER: Info = {"run_id": "abc"}
MASTER: Info = {
    "role": "master",
    "connected_slaves": 2,
    "slave0": {"ip": "10.0.0.2", "port": 6379, "state": "online", "offset": 14, "lag": 1},
    "slave1": {"ip": "fd00::3", "port": 6380, "state": "wait_bgsave", "offset": 0, "lag": 0},
    "master_replid": "f" * 40,
    "master_repl_offset": 14,
}
REPLICA: Info = {
    "role": "slave",
    "master_host": "10.0.0.1",
    "master_port": 6379,
    "master_link_status": "down",
    "slave_repl_offset": 12,
    "slave_priority": 100,
    "slave_read_only": 1,
    "master_repl_offset": 99,
}
AOF: Info = {"aof_enabled": 1}
NO_AOF: Info = {"aof_enabled": 0}


def test_a_master_reports_its_replicas_and_its_replication_offset() -> None:
    facts = read_facts(SERVER, MASTER, AOF, "")

    assert (facts.run_id, facts.role, facts.offset, facts.master_replid) == ("abc", Role.MASTER, 14, "f" * 40)
    assert facts.replicas == ("10.0.0.2:6379", "[fd00::3]:6380")
    assert (facts.master_addr, facts.link_is_up) == ("", None)
    assert facts.warnings == ()


def test_a_replica_reports_its_master_and_that_the_link_is_down() -> None:
    facts = read_facts(SERVER, REPLICA, AOF, "")

    assert (facts.role, facts.offset, facts.master_addr) == (Role.SLAVE, 12, "10.0.0.1:6379")
    assert facts.warnings == ("its replication link to 10.0.0.1:6379 is down",)
    assert read_facts(SERVER, {**REPLICA, "master_link_status": "up"}, AOF, "").warnings == ()


@pytest.mark.parametrize(
    ("persistence", "save", "persists"),
    [
        (AOF, "", True),
        (AOF, None, True),
        (NO_AOF, "3600 1", True),
        (NO_AOF, "", False),
        (NO_AOF, " ", False),
        (NO_AOF, None, None),
        ({}, "", None),
    ],
)
def test_a_server_persists_in_either_way_and_missing_values_are_not_guessed(
    persistence: Info, save: str | None, persists: bool | None
) -> None:
    facts = read_facts(SERVER, MASTER, persistence, save)

    assert facts.persists is persists
    assert (DOES_NOT_PERSIST in facts.warnings) is (persists is False)


def test_a_server_that_reports_nothing_gives_empty_facts() -> None:
    facts = read_facts({}, {}, {}, None)

    assert (facts.run_id, facts.role, facts.offset, facts.replicas, facts.warnings) == ("", Role.UNKNOWN, 0, (), ())


def test_facts_become_metrics_and_unknown_values_are_nan() -> None:
    registry = CollectorRegistry()
    metrics = RedisMetrics(registry)

    def gauges() -> list[float | None]:
        return [registry.get_sample_value(f"pointsman_agent_redis_{name}") for name in NAMES]

    assert all(value is not None and math.isnan(value) for value in gauges())
    metrics.set(read_facts(SERVER, REPLICA, NO_AOF, ""))
    assert gauges() == [0.0, 0.0, 0.0, 12.0]
    metrics.set(read_facts(SERVER, MASTER, AOF, ""))
    persists, link, *rest = gauges()
    assert (persists, rest) == (1.0, [2.0, 14.0])
    assert link is not None
    assert math.isnan(link)


@pytest.mark.parametrize(
    ("memory", "used", "limit"),
    [
        ({"used_memory": 1_000, "maxmemory": 0}, 1_000, 0),
        ({"used_memory": "1000", "maxmemory": -1}, None, None),
        ({}, None, None),
        (None, None, None),
    ],
)
def test_memory_is_known_where_it_is_reported(memory: Info | None, used: int | None, limit: int | None) -> None:
    facts = read_facts(SERVER, MASTER, AOF, "", memory)
    assert (facts.used_memory_bytes, facts.max_memory_bytes) == (used, limit)


@pytest.mark.parametrize(
    ("replication", "lag"),
    [
        (MASTER, 14),
        ({**MASTER, "slave1": {"ip": "10.0.0.3", "port": 1, "offset": 11}}, 3),
        ({**MASTER, "master_repl_offset": 0}, 0),
        ({**MASTER, "slave0": "?", "slave1": {"offset": "?"}}, None),
        (REPLICA, None),
    ],
)
def test_the_lag_is_that_of_the_replica_furthest_behind(replication: Info, lag: int | None) -> None:
    assert read_facts(SERVER, replication, AOF, "").replica_lag_bytes == lag
