"""The agent's services and its HTTP port behind TLS."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from pointsman.config import ConfigError
from pointsman.daemon.tls.server_certificates import POLL_INTERVAL_SECONDS
from pointsman.manual_clock import ManualClock
from pointsman.v1.agent_service_pb2 import GetAgentInfoRequest
from pointsman.v1.agent_service_pb2_grpc import AgentServiceStub
from pointsman_agent.app import Agent
from pointsman_agent.config import AgentConfig, MonitoringSection, RpcSection
from pointsman_agent.start import build_agent
from tests.kit.agent.in_process import agent_config, running_agent
from tests.kit.broker.redis.process import free_port
from tests.kit.certificates import Authority, Files
from tests.kit.tls_peers import channel, context, tls_config
from tests.kit.waiting import eventually


@pytest.fixture
def files(authority: Authority) -> Files:
    return authority.issue("agent")


@pytest.fixture
def config(files: Files, tmp_path: Path) -> AgentConfig:
    """Of an agent with mTLS that reaches no name server."""
    config = agent_config(["127.0.0.1:1"])
    return replace(
        config,
        rpc=RpcSection(listen="127.0.0.1:0", grace_seconds=0.1),
        offsets=replace(config.offsets, path=str(tmp_path / "offsets.db")),
        monitoring=MonitoringSection(listen=f"127.0.0.1:{free_port()}", tls=True),
        tls=tls_config(files, mutual=True),
    )


@pytest.fixture
async def agent(config: AgentConfig, clock: ManualClock) -> AsyncIterator[Agent]:
    async with running_agent(config, clock=clock) as running:
        await eventually(lambda: running.agent.is_serving and running.agent._fleet.loops)
        yield running.agent


async def is_served(peer: grpc.aio.Channel) -> bool:
    async with peer:
        try:
            await AgentServiceStub(peer).GetAgentInfo(GetAgentInfoRequest(), timeout=30)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                return False
            raise
    return True


async def test_clients_of_the_broker_need_a_certificate(agent: Agent, authority: Authority) -> None:
    addr = agent.parts.agent_addr
    assert not await is_served(grpc.aio.insecure_channel(addr))
    assert not await is_served(channel(addr, authority.file))
    assert await is_served(channel(addr, authority.file, authority.issue("client", "client.example")))


async def test_metrics_need_none_and_show_the_certificate(
    agent: Agent, config: AgentConfig, authority: Authority, clock: ManualClock, files: Files
) -> None:
    files.key.write_bytes(b"x")
    await clock.advance(POLL_INTERVAL_SECONDS)
    read = agent.metrics.registry.get_sample_value
    await eventually(lambda: read("pointsman_agent_tls_reload_failures_total"))

    def scrape() -> str:
        address = f"https://{config.monitoring.listen}/metrics"
        with urllib.request.urlopen(address, timeout=30, context=context(authority.file)) as answer:
            return str(answer.read(), "utf-8")

    text = await asyncio.to_thread(scrape)
    assert "pointsman_agent_tls_certificate_expiry_timestamp_seconds" in text
    assert "pointsman_agent_tls_reload_failures_total 1.0" in text


def test_files_that_cannot_be_used_are_a_configuration_error(config: AgentConfig, files: Files) -> None:
    files.certificate.write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"tls\.certificate: '.*agent\.pem' is not a certificate"):
        build_agent(config, file=None, flags={})


def test_beyond_loopback_its_services_need_tls(config: AgentConfig) -> None:
    open_ = replace(config, rpc=RpcSection(listen="10.0.0.1:9880"))
    assert list(open_.problems()) == []
    problem, monitoring = replace(open_, tls=replace(open_.tls, certificate="", key="")).problems()
    assert monitoring == "monitoring.tls: needs tls.certificate and tls.key"
    assert problem.startswith("rpc.listen: '10.0.0.1:9880' can be reached from other machines without TLS")
