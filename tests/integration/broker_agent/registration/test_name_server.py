"""The agent against the real name server, both in this process, over real sockets."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from pointsman.config import to_toml
from pointsman_agent.config import StopSection, load
from pointsman_agent.core.probe_verdict import ProbeResult, Role
from pointsman_agent.core.registration_session import RegistrationState
from pointsman_agent.topic_source.toml import TomlTopicSource
from pointsman_client import NameServerClient
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.core.replica_state import Phase
from tests.kit.agent.in_process import ScriptedProbe, agent_config, running_agent, with_probe
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import register_at
from tests.kit.name_server.wire import identity
from tests.kit.waiting import eventually

ANSWERS = ProbeResult(True, "answers", incarnation="run-1", role=Role.MASTER)


def states(server: NameServerApp) -> list[Phase]:
    return [replica.state.phase for _, replica in server.core.replicas()]


async def test_the_registration_is_stored_as_it_was_sent() -> None:
    topics = [f"topic-{i:05}" for i in range(12_000)]
    async with running_name_server() as server:
        config = with_probe(agent_config([server.addr], topics=topics), kind="redis")
        async with running_agent(config, probe=ScriptedProbe(ANSWERS)) as agent:
            await agent.counts_beats(server.addr, 1)
            ((_, replica),) = server.core.replicas()
            phase = replica.state.phase

    assert sorted(replica.registration.topics) == topics
    assert replica.registration.incarnation == "run-1"
    assert replica.registration.host == "host-1"
    assert (replica.registration.heartbeat_interval, replica.registration.expiry) == (30.0, 120.0)
    assert phase is Phase.UP


async def test_a_broker_that_stops_responding_is_removed_from_the_routes_until_it_responds() -> None:
    async with running_name_server() as server:
        probe = ScriptedProbe(ANSWERS)
        config = with_probe(agent_config([server.addr]), kind="tcp", interval_seconds=0.05, fall=1)
        async with running_agent(config, probe=probe) as agent:
            await agent.counts_beats(server.addr, 1)
            probe.result = ProbeResult(False, "connection refused")
            await eventually(lambda: states(server) == [Phase.OUT])
            probe.result = ANSWERS
            await eventually(lambda: states(server) == [Phase.UP])


async def test_a_broker_that_stopped_is_out_of_the_routes_when_its_agent_has_stopped() -> None:
    async with running_name_server() as server:
        config = replace(agent_config([server.addr]), stop=StopSection(unprobed="unregister"))
        async with running_agent(config) as agent:
            await agent.counts_beats(server.addr, 1)
            await agent.stopped()

        assert states(server) == []


async def test_a_name_server_that_lost_its_state_gets_a_full_registration_again() -> None:
    async with AsyncExitStack() as stack:
        async with running_name_server() as server:
            addr = server.addr
            agent = await stack.enter_async_context(running_agent(agent_config([addr])))
            await agent.counts_beats(addr, 1)
        await agent.stands(addr, RegistrationState.UNREACHABLE)

        async with running_name_server(listen=addr) as restarted:
            await eventually(lambda: agent.registrations(addr) == 2)
            assert states(restarted) == [Phase.UP]
            assert agent.beats(addr, "unknown_broker") == 1


async def test_a_weight_in_the_file_reaches_running_clients_after_sighup(tmp_path: Path) -> None:
    async with running_name_server() as server:
        file = tmp_path / "agent.toml"
        config = agent_config([server.addr])
        (row,) = config.topics.topic
        # Without SIGHUP it would be read after the test.
        topics = replace(config.topics, check_interval_seconds=3_600.0)

        def write(weight: int) -> None:
            rows = (replace(row, queue_weight=weight),)
            file.write_text(to_toml(replace(config, topics=replace(topics, topic=rows))), encoding="utf-8")

        write(1)
        started_with = load(file, {})
        source = TomlTopicSource(started_with, file=file, environment={})
        await register_at(server.addr, "orders", who=identity("b", 0, "10.0.0.9:1"))
        async with (
            running_agent(started_with, topic_source=source) as agent,
            NameServerClient([server.addr]) as client,
        ):
            await agent.counts_beats(server.addr, 1)
            await client.topic_route("orders")
            await eventually(lambda: client.describe("orders")["watched"])
            for weight, weights in ((3, {("c1", "a"): 3, ("c1", "b"): 1}), (1, {})):
                write(weight)
                agent.agent.poll_now()
                await eventually(lambda: (cached := client.cached_route("orders")) and cached.queue_weights == weights)  # noqa: B023  # awaited here
