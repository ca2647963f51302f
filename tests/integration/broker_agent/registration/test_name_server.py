"""The agent against the real name server, both in this process, over real sockets."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

from pointsman_agent.config import StopSection
from pointsman_agent.core.probe_verdict import ProbeResult, Role
from pointsman_agent.core.registration_session import RegistrationState
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.core.replica_state import Phase
from tests.kit.agent.in_process import ScriptedProbe, agent_config, running_agent, with_probe
from tests.kit.name_server.in_process import running_name_server
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
