"""The lag of a group while one of two brokers hangs, is down or is gone, with every program as a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from pointsman.v1 import offset_service_pb2 as wire
from pointsman.v1.offset_service_pb2_grpc import OffsetServiceStub
from tests.kit.broker.redis.with_agent import BrokerPlan, RedisBroker, redis_broker
from tests.kit.ctl.command import Ended, ctl
from tests.kit.name_server.process import RealNameServer, real_name_server

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(240)]

PATIENCE_SECONDS = 60.0
QUEUES = 2
AT_A, AT_B = 3, 70
"""Unread messages of the group in each queue of a broker."""


async def command(server: RealNameServer, *arguments: str) -> Ended:
    return await ctl("--namesrv", server.addr, "--timeout", "2", "-o", "json", *arguments)


async def repeated_until(server: RealNameServer, condition: Callable[[Ended], bool], *arguments: str) -> Ended:
    """Repeat a command until its outcome is the expected one."""
    made = None
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while made is None or not condition(made):
                await asyncio.sleep(0.2 if made else 0.0)
                made = await command(server, *arguments)
    except TimeoutError:
        pytest.fail(f"still {made}")
    return made


async def behind(broker: RedisBroker, agent_addr: str, *, unread: int) -> None:
    """Put messages into its queues and commit an offset of the group below their end."""
    for queue in range(QUEUES):
        for _ in range(unread + 1):
            await broker.redis.command("XADD", f"orders:queue:{queue}", "0-*", "k", "v")
    offsets = [wire.QueueOffset(topic="orders", queue_id=queue, offset=1) for queue in range(QUEUES)]
    async with grpc.aio.insecure_channel(agent_addr) as channel:
        request = wire.CommitOffsetsRequest(group="billing", offsets=offsets)
        await OffsetServiceStub(channel).CommitOffsets(request, wait_for_ready=True, timeout=PATIENCE_SECONDS)


def state_of(made: Ended, name: str) -> Any:
    (node,) = made.document["nodes"]
    return next((each["state"] for each in node["brokers"] if each["brokerName"] == name), None)


async def test_the_lag_never_falls_because_a_broker_hangs_is_down_or_is_gone(tmp_path: Path) -> None:
    plans = [BrokerPlan(name, {"orders": QUEUES}) for name in ("broker-a", "broker-b")]
    async with (
        real_name_server(tmp_path / "namesrv") as server,
        redis_broker(tmp_path / "a", plans[0], [server.addr]) as a,
        redis_broker(tmp_path / "b", plans[1], [server.addr]) as b,
    ):
        both = lambda made: made.code == 0 and len(made.document["nodes"][0]["brokers"]) == 2  # noqa: E731
        (node,) = (await repeated_until(server, both, "brokers")).document["nodes"]
        agents = {each["brokerName"]: each["agentAddr"] for each in node["brokers"]}
        await behind(a, agents["broker-a"], unread=AT_A)
        await behind(b, agents["broker-b"], unread=AT_B)
        known = QUEUES * (AT_A + AT_B)
        healthy = lambda made: made.code == 0 and made.document["totals"][0]["lag"] == known  # noqa: E731
        await repeated_until(server, healthy, "offsets", "billing")

        b.agent.pause()
        hung = await command(server, "offsets", "billing")
        b.agent.resume()
        await repeated_until(server, healthy, "offsets", "billing")

        b.redis.kill()
        await repeated_until(server, lambda made: state_of(made, "broker-b") == "OUT", "brokers")
        out = await command(server, "offsets", "billing")

        await b.agent.kill()
        await repeated_until(server, lambda made: state_of(made, "broker-b") is None, "brokers")
        gone = {name: await command(server, *name.split()) for name in ("offsets billing", "groups", "locks")}

    assert hung.code == 1
    assert [(each["broker"], each["addr"]) for each in hung.document["notCounted"]] == [
        ("c1/broker-b/0", agents["broker-b"])
    ]
    assert out.code == 1
    assert out.document["totals"][0] | {"group": ""} == {
        "group": "",
        "queues": 2 * QUEUES,
        "lag": QUEUES * AT_A,
        "queuesWithoutEnd": QUEUES,
        "retryQueues": 0,
        "retryQueuesWithoutEnd": 0,
    }
    assert f"c1/broker-b/0 OUT: the lag of {QUEUES} queues is unknown" in out.err
    assert [made.code for made in gone.values()] == [1, 1, 1]
    for made in gone.values():
        (missing,) = made.document["notCounted"]
        assert (missing["broker"], missing["state"]) == ("c1/broker-b/0", "GONE")
