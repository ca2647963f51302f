"""RocketMQ's wire of the installed program, on uvloop as it runs for users."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.broker.rocketmq.frames import register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import remoting_peer
from tests.kit.name_server.process import real_name_server

pytestmark = pytest.mark.e2e


async def test_a_broker_registers_and_a_client_finds_it(tmp_path: Path) -> None:
    settings = {"remoting.listen": "127.0.0.1:0"}
    async with real_name_server(tmp_path, settings=settings) as server:
        addr = [line for line in server.said() if line["message"] == "serving"][-1]["remoting"]
        table = {f"topic-{i}": topic_config(f"topic-{i}") for i in range(3_000)}
        async with remoting_peer(addr) as broker, remoting_peer(addr) as client:
            broker.send(register(body=register_body(table)))
            assert (await broker.answer()).code == 0
            assert (await client.ask(105, {"topic": "topic-2999"})).json()["queueDatas"][0]["brokerName"] == "broker-a"
            assert await server.metric("pointsman_namesrv_remoting_connections") == 2
        assert not [line for line in server.said() if line["level"] == "ERROR"]
