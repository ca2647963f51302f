"""``broker status``: agents and RocketMQ brokers, each with what it knows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.clock import SystemClock
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman_agent.core.probe_verdict import Role
from pointsman_agent.drain.agent_servicer import AgentFacts
from pointsman_agent.probe.redis_facts import RedisFacts
from tests.kit.broker.rocketmq.fake_broker import Answer
from tests.kit.ctl.both_brokers import BothBrokers, both_brokers
from tests.kit.ctl.fleet import Fleet, a_fleet
from tests.kit.ctl.keys import undocumented_keys

RUNTIME = {
    "brokerVersionDesc": "V5_3_3",
    "bootTimestamp": "1700000000000",
    "putTps": "12.5 3.0 1.0",
    "getTotalTps": "7.0 3.0 1.0",
    "commitLogDiskRatio": "0.43",
    "msgPutTotalTodayNow": "150",
    "msgPutTotalTodayMorning": "50",
}
REDIS = RedisFacts(
    run_id="run-1",
    role=Role.MASTER,
    master_replid="r",
    offset=5_000,
    master_addr="",
    link_is_up=None,
    replicas=("10.0.0.2:6379",),
    persists=True,
    used_memory_bytes=3 * 2**29,
    max_memory_bytes=2**31,
    replica_lag_bytes=2_048,
)


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[BothBrokers]:
    async with both_brokers(tmp_path) as found:
        found.rocketmq.answers[Request.GET_BROKER_RUNTIME_INFO] = Answer(body=json.dumps({"table": RUNTIME}).encode())
        yield found


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with a_fleet(SystemClock()) as found:
        yield found


def report(fleet: Fleet, redis: RedisFacts | None, put_rate: float | None) -> None:
    """Have the first agent report these."""
    known = fleet.one._agent_service._facts

    def facts() -> AgentFacts:
        return replace(known(), redis=redis, put_rate=put_rate)

    fleet.one._agent_service._facts = facts


@pytest.mark.redis
async def test_each_kind_of_broker_has_its_table(brokers: BothBrokers, capsys: pytest.CaptureFixture[str]) -> None:
    table = await brokers.ctl("broker", "status")
    found = await brokers.json("broker", "status")

    assert table.code == 0, table.err
    assert [line.split()[:3] for line in table.out.splitlines() if line.startswith("c1/")] == [
        ["c1/red/0", "master", "PASSING"],
        ["c1/rocket/0", "5.3.3", table.out.splitlines()[-1].split()[2]],
    ]
    assert table.out.splitlines()[-1].split()[-4:] == ["12", "7.0", "43%", "100"]
    by_name = {agent["brokers"][0]: agent for agent in found["agents"]}
    assert (by_name["c1/rocket/0"]["runtime"], by_name["c1/rocket/0"]["agent"]) == (RUNTIME, None)
    assert (by_name["c1/red/0"]["runtime"], by_name["c1/red/0"]["agent"]["role"]) == (None, "master")
    assert undocumented_keys(found, ["broker", "status"], capsys=capsys) == set()


async def test_an_agent_reports_its_redis_server_and_what_arrives(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    report(fleet, REDIS, 12.3)
    made, found = await fleet.ctl("broker", "status", "--cluster", "c1"), await fleet.json("broker", "status")
    (shown,) = [line for line in made.out.splitlines() if line.startswith("c1/a/0")]

    assert made.code == 0, made.err
    assert shown.split() == [
        *("c1/a/0", "master", "PASSING", "1.5", "GiB", "2.0", "GiB", "yes", "1", "2.0", "KiB", "12", "0", "1.0"),
    ]
    (agent,) = [each["agent"] for each in found.document["agents"] if each["brokers"] == ["c1/a/0"]]
    assert (agent["redis"]["replicaLagBytes"], agent["putRate"]) == (2_048, 12.3)
    assert undocumented_keys(found.document, ["broker", "status"], capsys=capsys) == set()


async def test_a_replica_shows_its_link_and_unknown_values_are_dashes(fleet: Fleet) -> None:
    report(fleet, replace(REDIS, link_is_up=False, replicas=(), persists=None, used_memory_bytes=None), None)
    made = await fleet.ctl("broker", "status", "--all")
    rows = {line.split()[0]: line for line in made.out.splitlines() if line.startswith("c1/")}

    assert rows.keys() == {"c1/a/0", "c1/a/1", "c1/b/0"}
    assert rows["c1/a/0"].split()[3:] == ["-", "2.0", "GiB", "-", "0", "link", "down", "-", "0", "1.0"]
    assert rows["c1/b/0"].split()[3:] == ["-", "-", "-", "-", "-", "-", "0", "1.0"]


async def test_a_broker_that_does_not_respond_is_not_counted(fleet: Fleet) -> None:
    await fleet.two.stop()
    made = await fleet.ctl("broker", "status")

    assert made.code == 1
    assert "c1/a/0" in made.out
    assert f"c1/b/0: not counted ({fleet.two.addr}: connection refused)" in made.out


@pytest.mark.redis
async def test_a_rocketmq_broker_that_refuses_is_named(brokers: BothBrokers) -> None:
    brokers.rocketmq.answers[Request.GET_BROKER_RUNTIME_INFO] = Answer(Code.SYSTEM_ERROR, remark="busy")
    made = await brokers.ctl("broker", "status")

    assert made.code == 1
    assert "GET_BROKER_RUNTIME_INFO (28): SYSTEM_ERROR 1: busy" in made.err
