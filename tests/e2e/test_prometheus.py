"""A real Prometheus with the shipped rules scrapes a real name server and an agent until one is killed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from pointsman_client import (
    ConsumeFrom,
    ConsumeResult,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Reject,
    TopicNotFoundError,
)
from pointsman_client.prometheus import PrometheusMetrics
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.agent.in_process import agent_config, running_agent
from tests.kit.agent.process import agent_process
from tests.kit.broker.redis.process import free_port, redis_process
from tests.kit.broker.redis.with_agent import BrokerPlan
from tests.kit.broker.redis.with_agent import agent_config as redis_agent_config
from tests.kit.name_server.process import real_name_server
from tests.kit.operations.monitoring_kit import FLEET, GROUPS, alerts
from tests.kit.operations.prometheus_process import prometheus

WITHOUT_DATA = {
    "RPC errors",
    "Remoting requests",
    "Remoting connections",
    "Rejected calls",
    "Certificate lifetime",
    "Equal name servers",
    "Age of the nightly report",
    "Changes of the expiry guard",
    "Expiry guard",
    "Watch lag",
    "Route responses built",
    # Of an observer, beside which no name server of ours runs: test_observe_process.py scrapes one.
    "Observed name servers",
    "Observed brokers by state",
    "Observed flap penalties",
    "Brokers missing at a name server",
    "Departures and returns",
    "Response time of name servers",
}
"""Panels without data here: their events do not happen in this test, or are not set up."""


GROUPS_WITHOUT_DATA = {"Growth of the lag", "Time to catch up", "Stuck queues by member", "Isolations"}
"""These need minutes, or a slow broker."""


async def test_every_panel_has_data_and_a_killed_name_server_fires_its_alerts(tmp_path: Path) -> None:
    settings = {"server.warm_up_seconds": 45.0, "snapshot.enabled": True, "snapshot.directory": tmp_path / "state"}
    async with real_name_server(tmp_path / "ns", settings=settings) as server:
        config = agent_config([server.addr])
        monitoring = replace(config.monitoring, listen=f"127.0.0.1:{free_port()}")
        targets = {"pointsman-namesrv": server.monitoring_addr, "pointsman-agent": monitoring.listen}
        async with (
            running_agent(replace(config, monitoring=monitoring)) as agent,
            prometheus(tmp_path, targets) as monitor,
        ):
            await agent.counts_beats(server.addr, 1)
            await monitor.await_series("up == 1", 2)
            await monitor.await_series("rate(process_cpu_seconds_total[1m])", 2)
            await monitor.await_series('pointsman_namesrv_brokers{state="UP"}', 1)
            loaded = (await monitor.get("rules"))["groups"]
            empty = await monitor.without_data(FLEET)

            await server.kill()
            await monitor.await_series('ALERTS{alertname="PointsmanNameServerDown", alertstate="firing"}', 1)
            await monitor.await_series('ALERTS{alertname="PointsmanAgentNotRegistered", alertstate="firing"}', 1)
            firing = (await monitor.get("alerts"))["alerts"]

    assert sorted(rule["name"] for group in loaded for rule in group["rules"]) == sorted(alerts())
    assert [rule["name"] for group in loaded for rule in group["rules"] if rule["health"] == "err"] == []
    assert empty <= WITHOUT_DATA
    texts = {alert["labels"]["alertname"]: alert["annotations"] for alert in firing}
    assert texts["PointsmanNameServerDown"]["summary"] == f"Name server {targets['pointsman-namesrv']} is down"
    assert "error" not in json.dumps(texts)


@pytest.mark.redis
@pytest.mark.timeout(240)
async def test_the_panels_of_groups_and_queues_have_data_of_a_fleet_with_a_hung_and_a_failing_listener(
    tmp_path: Path,
) -> None:
    client, registry = f"127.0.0.1:{free_port()}", CollectorRegistry()
    metrics, end = PrometheusMetrics(registry), asyncio.Event()

    async def hangs(_: ReceivedMessage) -> None:
        await end.wait()

    async def fails(message: ReceivedMessage) -> ConsumeResult:
        if message.body == b"bad":
            raise Reject("no such order")
        return ConsumeResult.SUSPEND if message.body == b"blocks" else ConsumeResult.SUCCESS

    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(real_name_server(tmp_path / "ns"))
        redis = await stack.enter_async_context(redis_process(tmp_path / "redis"))
        config = redis_agent_config(BrokerPlan("broker-a"), redis.addr, [server.addr])
        agent = f"127.0.0.1:{free_port()}"
        config = replace(
            config,
            monitoring=replace(config.monitoring, listen=agent),
            queue_stats=replace(config.queue_stats, interval_seconds=1.0),
        )
        await stack.enter_async_context(agent_process(tmp_path / "agent", config))
        served, _ = start_http_server(int(client.rpartition(":")[2]), "127.0.0.1", registry)
        stack.callback(served.server_close)
        stack.callback(served.shutdown)
        monitor = await stack.enter_async_context(prometheus(tmp_path, {"pointsman-agent": agent, "orders": client}))
        common: dict[str, Any] = {"transport": RedisStreamsTransport, "metrics_hook": metrics}
        producer = await stack.enter_async_context(Producer(server.addr, **common))
        for group, listener, ordered in (("audit", hangs, False), ("billing", fails, True)):
            consumer = PushConsumer(
                server.addr,
                group=group,
                subscriptions=["orders"],
                listener=listener,
                ordered=ordered,
                consume_from=ConsumeFrom.FIRST_OFFSET,
                close_timeout_seconds=2.0,
                **common,
            )
            await stack.enter_async_context(consumer)
        stack.callback(end.set)

        async def load() -> None:
            for number in itertools.count():
                with contextlib.suppress(TopicNotFoundError):  # until the agent has registered
                    body = {0: b"bad", 5: b"blocks"}.get(number % 20, b"good")
                    await producer.send(Message("orders", body))
                await asyncio.sleep(0.1)

        loading = asyncio.create_task(load())
        stack.callback(loading.cancel)
        await monitor.await_series("up == 1", 2)
        await monitor.await_data(GROUPS, besides=GROUPS_WITHOUT_DATA)
        assert not loading.done()
