"""Roles on a whole agent: its clients, other agents and operators, each with a token."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import StatusCode

from pointsman.service.access_settings import AccessSettings, Grant
from pointsman.service.config import ConfigError, to_toml
from pointsman.v1 import agent_service_pb2 as agent_wire
from pointsman.v1 import consumer_group_service_pb2 as groups_wire
from pointsman.v1 import offset_service_pb2 as offsets_wire
from pointsman.v1 import queue_lock_service_pb2 as locks_wire
from pointsman.v1.agent_service_pb2_grpc import AgentServiceStub
from pointsman.v1.consumer_group_service_pb2_grpc import ConsumerGroupServiceStub
from pointsman.v1.offset_service_pb2_grpc import OffsetServiceStub
from pointsman.v1.queue_lock_service_pb2_grpc import QueueLockServiceStub
from pointsman.wire.manual_clock import ManualClock
from pointsman_agent.config import OffsetsSection, RpcSection, load
from tests.fakes.access_tokens import TokenFolder
from tests.fakes.condition import eventually
from tests.fakes.refusal import refusal_of
from tests.fakes.running_agent import RunningAgent, agent_config, running_agent, until

GRANTS = (
    Grant("admin", "ops"),
    Grant("client", "app"),
    Grant("broker", "slave-of-a", cluster="c1", broker_name="a"),
    Grant("broker", "broker-b", cluster="c1", broker_name="b"),
)


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFolder:
    return TokenFolder(tmp_path, "ops", "app", "slave-of-a", "broker-b")


@pytest.fixture
async def agent(clock: ManualClock, tmp_path: Path, tokens: TokenFolder) -> AsyncIterator[RunningAgent]:
    config = replace(
        agent_config(["127.0.0.1:1"]),
        rpc=RpcSection(listen="127.0.0.1:0"),
        offsets=OffsetsSection(path=str(tmp_path / "offsets.db")),
        access=tokens.settings(*GRANTS),
    )
    async with running_agent(config, clock=clock) as running:
        await until(lambda: running.agent._agent_addr != "" and running.agent._registering is not None)
        yield running


@pytest.fixture
async def channel(agent: RunningAgent) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(agent.agent._agent_addr) as opened:
        yield opened


async def outcome(call: Any) -> StatusCode:
    """How a call ended."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return StatusCode.OK


async def test_clients_have_groups_locks_and_offsets_and_operators_the_other_calls(
    channel: grpc.aio.Channel, tokens: TokenFolder
) -> None:
    groups, agent = ConsumerGroupServiceStub(channel), AgentServiceStub(channel)
    calls: dict[str, Callable[[Any], Any]] = {
        "locks": lambda who: QueueLockServiceStub(channel).ListQueueLocks(
            locks_wire.ListQueueLocksRequest(), metadata=who
        ),
        "offsets": lambda who: OffsetServiceStub(channel).ListOffsets(offsets_wire.ListOffsetsRequest(), metadata=who),
        "groups": lambda who: groups.ListGroups(groups_wire.ListGroupsRequest(), metadata=who),
        "pin": lambda who: groups.PinGroup(groups_wire.PinGroupRequest(group="g"), metadata=who),
        "drain": lambda who: agent.Drain(agent_wire.DrainRequest(by="x" * 999), metadata=who).read(),
        "hand over": lambda who: OffsetServiceStub(channel).CommitOffsets(
            offsets_wire.CommitOffsetsRequest(group="g"), metadata=who
        ),
        "info": lambda who: agent.GetAgentInfo(agent_wire.GetAgentInfoRequest(), metadata=who),
    }
    denied = {
        name: [what for what, call in calls.items() if await outcome(call(who)) is StatusCode.PERMISSION_DENIED]
        for name, who in ((each, tokens.header(each)) for each in tokens.tokens)
    }
    assert denied == {
        "ops": [],
        "app": ["pin", "drain", "info"],
        "slave-of-a": ["locks", "offsets", "groups", "pin", "drain"],
        "broker-b": list(calls),
    }
    assert {await outcome(call(())) for call in calls.values()} == {StatusCode.UNAUTHENTICATED}


async def test_a_pin_is_logged_with_its_authenticated_author(
    channel: grpc.aio.Channel, tokens: TokenFolder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    request = groups_wire.PinGroupRequest(group="g", by="alice")
    await outcome(ConsumerGroupServiceStub(channel).PinGroup(request, metadata=tokens.header("ops")))
    [facts] = [record.facts for record in caplog.records if record.getMessage().startswith("operator ended the pin")]  # type: ignore[attr-defined]
    assert (facts["by"], facts["claimed_by"]) == ("ops", "alice")


async def test_a_membership_of_a_removed_token_ends(
    agent: RunningAgent, channel: grpc.aio.Channel, tokens: TokenFolder, clock: ManualClock
) -> None:
    stub = ConsumerGroupServiceStub(channel)
    request = groups_wire.WatchGroupRequest(group="g", client_id="10.0.0.1@1")
    watch = stub.WatchGroup(request, metadata=tokens.header("app"))
    assert await watch.read() is not grpc.aio.EOF
    tokens.remove("app")
    labels = {"method": "WatchGroup", "reason": "unknown_token"}
    sample = agent.agent.metrics.registry.get_sample_value
    await eventually(lambda: sample("pointsman_agent_denied_calls_total", labels), clock=clock, step=1.0)

    async def rest() -> None:
        while await watch.read() is not grpc.aio.EOF:
            pass

    assert (await refusal_of(rest())).status is StatusCode.UNAUTHENTICATED


def test_the_section_is_the_name_servers_and_an_address_has_no_effect_here(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    access = AccessSettings(tokens="tokens", grants=GRANTS)
    file.write_text(to_toml(replace(agent_config(["127.0.0.1:1"]), access=access)), encoding="utf-8")
    assert load(file, {}).access == access
    with file.open("a", encoding="utf-8") as more:
        more.write('\n[[access.grants]]\nrole = "client"\naddress = "10.0.0.0/8"\n')
    with pytest.raises(ConfigError, match=r"access.grants\[4\].address: '10.0.0.0/8' has no effect"):
        load(file, {})
