"""Roles on a whole agent: its clients, other agents and operators, each with a token."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import StatusCode

from pointsman.config import ConfigError, to_toml
from pointsman.daemon.access.access_settings import AccessSettings, Grant
from pointsman.manual_clock import ManualClock
from pointsman.v1 import agent_service_pb2 as agent_wire
from pointsman.v1 import consumer_group_service_pb2 as groups_wire
from pointsman.v1 import offset_service_pb2 as offsets_wire
from pointsman.v1 import queue_lock_service_pb2 as locks_wire
from pointsman.v1 import topic_service_pb2 as topics_wire
from pointsman.v1.agent_service_pb2_grpc import AgentServiceStub
from pointsman.v1.consumer_group_service_pb2_grpc import ConsumerGroupServiceStub
from pointsman.v1.offset_service_pb2_grpc import OffsetServiceStub
from pointsman.v1.queue_lock_service_pb2_grpc import QueueLockServiceStub
from pointsman.v1.topic_service_pb2_grpc import TopicServiceStub
from pointsman_agent.config import OffsetsSection, RpcSection, load
from pointsman_agent.groups.group_servicer import RULES as GROUP_RULES
from pointsman_agent.offsets.servicer import RULES as OFFSET_RULES
from pointsman_agent.queue_locks.queue_lock_servicer import RULES as LOCK_RULES
from tests.kit.access_tokens import TokenFolder
from tests.kit.agent.group_clients import reads
from tests.kit.agent.in_process import RunningAgent, agent_config, running_agent
from tests.kit.refusal import refusal_of
from tests.kit.waiting import eventually

GRANTS = (
    Grant("admin", "ops"),
    Grant("client", "app"),
    Grant("viewer", "eyes"),
    Grant("broker", "slave-of-a", cluster="c1", broker_name="a"),
    Grant("broker", "broker-b", cluster="c1", broker_name="b"),
    Grant("client", "billing", group="billing*"),
    Grant("client", "audit", group="audit"),
)


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFolder:
    return TokenFolder(tmp_path, "ops", "app", "eyes", "slave-of-a", "broker-b", "billing", "audit")


@pytest.fixture
async def agent(clock: ManualClock, tmp_path: Path, tokens: TokenFolder) -> AsyncIterator[RunningAgent]:
    config = replace(
        agent_config(["127.0.0.1:1"]),
        rpc=RpcSection(listen="127.0.0.1:0"),
        offsets=OffsetsSection(path=str(tmp_path / "offsets.db")),
        access=tokens.settings(*GRANTS),
    )
    async with running_agent(config, clock=clock) as running:
        await eventually(lambda: running.agent.is_serving and bool(running.agent._fleet.loops))
        yield running


@pytest.fixture
async def channel(agent: RunningAgent) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(agent.agent.parts.agent_addr) as opened:
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
    groups, agent, topics = ConsumerGroupServiceStub(channel), AgentServiceStub(channel), TopicServiceStub(channel)
    topic_changes = ["write topic", "remove topic", "remove queues"]
    calls: dict[str, Callable[[Any], Any]] = {
        "locks": lambda who: QueueLockServiceStub(channel).ListQueueLocks(
            locks_wire.ListQueueLocksRequest(), metadata=who
        ),
        "offsets": lambda who: OffsetServiceStub(channel).ListOffsets(offsets_wire.ListOffsetsRequest(), metadata=who),
        "groups": lambda who: groups.ListGroups(groups_wire.ListGroupsRequest(), metadata=who),
        "pin": lambda who: groups.PinGroup(groups_wire.PinGroupRequest(group="g"), metadata=who),
        "pin queue": lambda who: groups.PinQueue(groups_wire.PinQueueRequest(group="g"), metadata=who),
        "drain": lambda who: agent.Drain(agent_wire.DrainRequest(by="x" * 999), metadata=who).read(),
        "hand over": lambda who: OffsetServiceStub(channel).CommitOffsets(
            offsets_wire.CommitOffsetsRequest(group="g"), metadata=who
        ),
        "topic": lambda who: topics.GetTopic(topics_wire.GetTopicRequest(topic="t"), metadata=who),
        "write topic": lambda who: topics.WriteTopic(topics_wire.WriteTopicRequest(), metadata=who),
        "remove topic": lambda who: topics.RemoveTopic(topics_wire.RemoveTopicRequest(), metadata=who),
        "remove queues": lambda who: topics.RemoveQueues(topics_wire.RemoveQueuesRequest(), metadata=who),
        "info": lambda who: agent.GetAgentInfo(agent_wire.GetAgentInfoRequest(), metadata=who),
        "reset": lambda who: OffsetServiceStub(channel).ResetOffsets(
            offsets_wire.ResetOffsetsRequest(group="g", topic="orders", queues=[offsets_wire.QueueReset()]),
            metadata=who,
        ),
        "delete": lambda who: OffsetServiceStub(channel).DeleteOffsets(
            offsets_wire.DeleteOffsetsRequest(group="g"), metadata=who
        ),
    }
    denied = {
        name: [what for what, call in calls.items() if await outcome(call(who)) is StatusCode.PERMISSION_DENIED]
        for name, who in ((each, tokens.header(each)) for each in tokens.tokens)
    }
    assert denied == {
        "ops": [],
        "app": ["pin", "pin queue", "drain", *topic_changes, "info"],
        "eyes": ["pin", "pin queue", "drain", "hand over", *topic_changes, "reset", "delete"],
        "slave-of-a": [
            "locks",
            "offsets",
            "groups",
            "pin",
            "pin queue",
            "drain",
            "topic",
            *topic_changes,
            "reset",
            "delete",
        ],
        "broker-b": list(calls),
        # Lists of all groups, and a group that is not theirs.
        "billing": [
            "locks",
            "offsets",
            "pin",
            "pin queue",
            "drain",
            "hand over",
            *topic_changes,
            "info",
            "reset",
            "delete",
        ],
        "audit": [
            "locks",
            "offsets",
            "pin",
            "pin queue",
            "drain",
            "hand over",
            *topic_changes,
            "info",
            "reset",
            "delete",
        ],
    }
    assert {await outcome(call(())) for call in calls.values()} == {StatusCode.UNAUTHENTICATED}


def consumer(channel: grpc.aio.Channel, tokens: TokenFolder, who: str, client_id: str, group: str) -> Any:
    """The first response to a heartbeat of a new stream, which stays open with the channel."""

    async def beat() -> groups_wire.KeepMembershipResponse:
        stream = ConsumerGroupServiceStub(channel).KeepMembership(metadata=tokens.header(who))
        await stream.write(groups_wire.KeepMembershipRequest(client_id=client_id, groups=[reads(group)]))
        answer = await stream.read()
        assert isinstance(answer, groups_wire.KeepMembershipResponse)
        streams.append(stream)
        return answer

    return beat()


streams: list[Any] = []
"""Open streams; gRPC ends a stream that nothing refers to."""


@pytest.fixture(autouse=True)
def no_streams() -> Iterator[None]:
    yield
    streams.clear()


async def test_a_client_with_groups_may_make_no_call_about_another_group(
    channel: grpc.aio.Channel, tokens: TokenFolder, agent: RunningAgent
) -> None:
    groups, offsets = ConsumerGroupServiceStub(channel), OffsetServiceStub(channel)
    locks = QueueLockServiceStub(channel)
    locked: dict[str, Any] = {"client_id": "10.0.0.1@1", "queues": [locks_wire.LockedQueue(topic="orders", queue_id=0)]}
    calls: dict[str, Callable[[str, Any], Any]] = {
        "KeepMembership": lambda group, _: consumer(channel, tokens, "billing", "10.0.0.1@1", group),
        "LeaveGroups": lambda group, who: groups.LeaveGroups(
            groups_wire.LeaveGroupsRequest(client_id="10.0.0.1@1", groups=[group]), metadata=who
        ),
        "WatchGroup": lambda group, who: groups.WatchGroup(
            groups_wire.WatchGroupRequest(group=group, client_id="10.0.0.1@1"), metadata=who
        ).read(),
        "GetMembership": lambda group, who: groups.GetMembership(
            groups_wire.GetMembershipRequest(group=group), metadata=who
        ),
        "GetGroup": lambda group, who: groups.GetGroup(groups_wire.GetGroupRequest(group=group), metadata=who),
        "ListGroupQueues": lambda group, who: groups.ListGroupQueues(
            groups_wire.ListGroupQueuesRequest(group=group), metadata=who
        ),
        "LockQueues": lambda group, who: locks.LockQueues(
            locks_wire.LockQueuesRequest(group=group, **locked), metadata=who
        ),
        "UnlockQueues": lambda group, who: locks.UnlockQueues(
            locks_wire.UnlockQueuesRequest(group=group, **locked), metadata=who
        ),
        "ListQueueLocks": lambda group, who: locks.ListQueueLocks(
            locks_wire.ListQueueLocksRequest(group=group), metadata=who
        ),
        "CommitOffsets": lambda group, who: offsets.CommitOffsets(
            offsets_wire.CommitOffsetsRequest(group=group), metadata=who
        ),
        "GetOffsets": lambda group, who: offsets.GetOffsets(offsets_wire.GetOffsetsRequest(group=group), metadata=who),
        "BeginTopics": lambda group, who: offsets.BeginTopics(
            offsets_wire.BeginTopicsRequest(group=group), metadata=who
        ),
        "ListOffsets": lambda group, who: offsets.ListOffsets(
            offsets_wire.ListOffsetsRequest(group=group), metadata=who
        ),
        "ListTopicOffsets": lambda group, who: offsets.ListTopicOffsets(
            offsets_wire.ListTopicOffsetsRequest(group=group, topic="orders"), metadata=who
        ),
        "ResetOffsets": lambda group, who: offsets.ResetOffsets(
            offsets_wire.ResetOffsetsRequest(group=group, topic="orders", queues=[offsets_wire.QueueReset()]),
            metadata=who,
        ),
        "DeleteOffsets": lambda group, who: offsets.DeleteOffsets(
            offsets_wire.DeleteOffsetsRequest(group=group), metadata=who
        ),
    }
    methods = {each for rules in (GROUP_RULES, LOCK_RULES, OFFSET_RULES) for each, rule in rules.items() if rule.roles}
    assert calls.keys() == methods - {"ListGroups"}
    who = tokens.header("billing")
    for method, call in calls.items():
        assert await outcome(call("audit", who)) is StatusCode.PERMISSION_DENIED, method
        labels = {"method": method, "reason": "other_group"}
        assert agent.agent.metrics.registry.get_sample_value("pointsman_agent_denied_calls_total", labels) == 1
        for group in ("billing-eu", "%RETRY%billing-eu"):
            assert await outcome(call(group, who)) is not StatusCode.PERMISSION_DENIED, method


async def test_leaving_every_group_is_a_call_about_each_of_them(
    channel: grpc.aio.Channel, tokens: TokenFolder, agent: RunningAgent
) -> None:
    """Before an agent's restart they were members, and no stream has made their client ids anyone's since."""
    assert agent.agent.parts.services is not None
    agent.agent.parts.services.groups.recall({"audit": ["10.0.0.2@2"], "billing-eu": ["10.0.0.3@3"]}, with_offsets=())

    async def leave(client_id: str) -> StatusCode:
        request = groups_wire.LeaveGroupsRequest(client_id=client_id)
        return await outcome(ConsumerGroupServiceStub(channel).LeaveGroups(request, metadata=tokens.header("billing")))

    core = agent.agent.parts.services.groups.core
    assert await leave("10.0.0.2@2") is StatusCode.PERMISSION_DENIED
    assert core.groups_of("10.0.0.2@2") == {"audit"}
    assert await leave("10.0.0.3@3") is StatusCode.OK
    assert core.groups_of("10.0.0.3@3") == set()


async def test_groups_are_listed_to_those_who_may_use_them(channel: grpc.aio.Channel, tokens: TokenFolder) -> None:
    await consumer(channel, tokens, "billing", "10.0.0.1@1", "billing-eu")
    await consumer(channel, tokens, "audit", "10.0.0.2@2", "audit")

    async def listed(who: str) -> list[str]:
        request = groups_wire.ListGroupsRequest()
        answer = await ConsumerGroupServiceStub(channel).ListGroups(request, metadata=tokens.header(who))
        return [each.group for each in answer.groups]

    assert [await listed(each) for each in ("billing", "audit", "app", "ops")] == [
        ["billing-eu"],
        ["audit"],
        ["audit", "billing-eu"],
        ["audit", "billing-eu"],
    ]


async def test_a_client_id_and_its_locks_belong_to_the_identity_that_made_them(
    channel: grpc.aio.Channel, tokens: TokenFolder, agent: RunningAgent
) -> None:
    groups, locks = ConsumerGroupServiceStub(channel), QueueLockServiceStub(channel)
    member = "10.0.0.1@1"
    named: dict[str, Any] = {
        "group": "billing",
        "client_id": member,
        "queues": [locks_wire.LockedQueue(topic="orders", queue_id=0)],
    }

    async def attacks(who: str) -> set[StatusCode]:
        header = tokens.header(who)
        return {
            await outcome(consumer(channel, tokens, who, member, "billing")),
            await outcome(
                groups.LeaveGroups(
                    groups_wire.LeaveGroupsRequest(client_id=member, groups=["billing"]), metadata=header
                )
            ),
            await outcome(locks.UnlockQueues(locks_wire.UnlockQueuesRequest(**named), metadata=header)),
            await outcome(locks.LockQueues(locks_wire.LockQueuesRequest(**named), metadata=header)),
        }

    async def lock() -> list[int]:
        request = locks_wire.LockQueuesRequest(**named)
        answer = await locks.LockQueues(request, metadata=tokens.header("billing"))
        return [each.queue_id for each in answer.granted]

    await consumer(channel, tokens, "billing", member, "billing")
    assert await attacks("app") == {StatusCode.PERMISSION_DENIED}
    assert await lock() == [0]
    await groups.LeaveGroups(groups_wire.LeaveGroupsRequest(client_id=member), metadata=tokens.header("billing"))
    assert agent.agent.parts.services is not None
    assert agent.agent.parts.services.groups.core.names() == []
    assert await attacks("app") == {StatusCode.PERMISSION_DENIED}
    await locks.UnlockQueues(locks_wire.UnlockQueuesRequest(**named), metadata=tokens.header("billing"))
    assert await attacks("app") == {StatusCode.OK}
    assert await outcome(consumer(channel, tokens, "billing", member, "billing")) is StatusCode.PERMISSION_DENIED
    assert await outcome(consumer(channel, tokens, "ops", member, "billing")) is StatusCode.OK


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
    with pytest.raises(ConfigError, match=r"access.grants\[7\].address: '10.0.0.0/8' has no effect"):
        load(file, {})
