"""How the agent stops: it hands over a running broker, unregisters a stopped one, and ends within its timeout."""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1 import registration_service_pb2 as wire
from pointsman_agent.config import AgentConfig, StopSection
from pointsman_agent.core.probe_verdict import ProbeResult
from pointsman_agent.core.registration_session import RegistrationState
from tests.kit.agent.in_process import BROKER_ADDR, ScriptedProbe, agent_config, running_agent, with_probe
from tests.kit.broker.redis.process import free_port
from tests.kit.name_server.scripted_registration import (
    Odd,
    ScriptedRegistrationServer,
    StreamEnded,
    answer,
    scripted_registration_server,
)

ANSWERS = ProbeResult(True, "answers")
REFUSES = ProbeResult(False, "connection refused")


class FalteringProbe(ScriptedProbe):
    """Passes at first, then fails ``failures`` times, then passes again."""

    def __init__(self, failures: int) -> None:
        super().__init__(ANSWERS)
        self._failures = failures

    async def check(self) -> ProbeResult:
        self.looks += 1
        return REFUSES if 1 < self.looks <= 1 + self._failures else ANSWERS


def probed(server: ScriptedRegistrationServer, *others: str) -> AgentConfig:
    return with_probe(agent_config([server.addr, *others]), kind="tcp", interval_seconds=60.0, fall=2)


async def registered(server: ScriptedRegistrationServer) -> None:
    await server.next_registration()
    await server.next_beat()


async def test_a_broker_that_responds_is_handed_over_on_the_open_stream() -> None:
    async with (
        scripted_registration_server() as server,
        running_agent(probed(server), probe=ScriptedProbe(ANSWERS)) as agent,
    ):
        await registered(server)
        await agent.stopped()
        last = await server.next_event()
        end = await server.next_event()

        assert isinstance(last, wire.Beat)
        assert last.hand_over
        assert last.generation == server.generation
        assert end == StreamEnded()
        assert server.said_nothing_more()
        assert agent.registration_state(server.addr) is RegistrationState.LEFT


async def test_a_broker_that_stopped_too_is_unregistered_everywhere() -> None:
    async with scripted_registration_server() as one, scripted_registration_server() as two:
        probe = ScriptedProbe(ANSWERS)
        async with running_agent(probed(one, two.addr), probe=probe) as agent:
            await registered(one)
            await registered(two)
            probe.result = REFUSES
            await agent.stopped()
            leaves = [await server.next_unregister() for server in (one, two)]

    for leave, server in zip(leaves, (one, two), strict=True):
        assert leave.identity.addr == BROKER_ADDR
        assert leave.reason == wire.UNREGISTER_REASON_SHUTDOWN
        assert leave.generation == server.generation


async def test_one_failed_probe_at_the_end_unregisters_no_running_broker() -> None:
    async with scripted_registration_server() as server:
        probe = FalteringProbe(failures=1)
        async with running_agent(probed(server), probe=probe) as agent:
            await registered(server)
            await agent.stopped()
            last = await server.next_beat()

    assert last.hand_over
    assert probe.looks == 3


@pytest.mark.parametrize(
    ("unprobed", "expected"), [("hand_over", wire.Beat), ("unregister", wire.UnregisterBrokerRequest)]
)
async def test_without_a_probe_the_configuration_decides(unprobed: str, expected: type[object]) -> None:
    async with scripted_registration_server() as server:
        config = replace(agent_config([server.addr]), stop=StopSection(unprobed=unprobed))
        async with running_agent(config) as agent:
            await registered(server)
            await agent.stopped()
            last = await server.next_call()

    assert isinstance(last, expected)


async def test_a_broker_that_hangs_at_the_end_counts_as_stopped(clock: ManualClock) -> None:
    async with scripted_registration_server() as server:
        probe = ScriptedProbe(ANSWERS)
        async with running_agent(probed(server), clock=clock, probe=probe) as agent:
            await registered(server)
            await agent.counts_beats(server.addr, 1)
            probe.result = None
            agent.stop.set()
            await clock.advance(2.4)
            assert server.said_nothing_more()
            await clock.advance(0.2)
            assert isinstance(await server.next_call(), wire.UnregisterBrokerRequest)


async def test_a_name_server_that_never_responds_delays_the_stop_no_longer_than_configured(clock: ManualClock) -> None:
    async with scripted_registration_server() as deaf, scripted_registration_server() as server:
        deaf.unregister_outcomes.append(Odd.HANG)
        config = replace(
            agent_config([deaf.addr, server.addr]), stop=StopSection(timeout_seconds=2.0, unprobed="unregister")
        )
        async with running_agent(config, clock=clock) as agent:
            for each in (deaf, server):
                await registered(each)
                await agent.counts_beats(each.addr, 1)
            agent.stop.set()
            await server.next_unregister()
            await deaf.next_unregister()
            await clock.advance(1.9)
            assert not agent.task.done()
            await clock.advance(0.2)
            await agent.stopped()


async def test_a_name_server_that_refuses_to_unregister_does_not_block_the_stop() -> None:
    async with scripted_registration_server() as server:
        server.unregister_outcomes.append(grpc.StatusCode.UNAVAILABLE)
        config = replace(agent_config([server.addr]), stop=StopSection(unprobed="unregister"))
        async with running_agent(config) as agent:
            await registered(server)
            await agent.stopped()
            assert agent.registration_state(server.addr) is RegistrationState.LEFT


async def test_a_hand_over_does_not_wait_long_for_a_stream_that_the_server_keeps_open(clock: ManualClock) -> None:
    async with scripted_registration_server() as server:
        server.keeps_streams_open = True
        async with running_agent(agent_config([server.addr]), clock=clock) as agent:
            await registered(server)
            await agent.counts_beats(server.addr, 1)
            agent.stop.set()
            assert (await server.next_beat()).hand_over
            await agent.counts_beats(server.addr, 2)
            await clock.advance(3)
            await agent.stopped()


async def test_a_hand_over_without_a_response_is_not_repeated(clock: ManualClock) -> None:
    async with scripted_registration_server() as server:
        server.beat_answers += [answer(wire.BEAT_STATUS_OK), Odd.HANG]
        async with running_agent(agent_config([server.addr]), clock=clock) as agent:
            await registered(server)
            await agent.counts_beats(server.addr, 1)
            agent.stop.set()
            assert (await server.next_beat()).hand_over
            await clock.advance(3)
            await agent.stopped()
            assert await server.next_event() == StreamEnded()
            assert server.said_nothing_more()


async def test_an_agent_that_reached_no_name_server_stops_immediately(clock: ManualClock) -> None:
    addr = f"127.0.0.1:{free_port()}"
    async with running_agent(agent_config([addr]), clock=clock) as agent:
        await agent.stands(addr, RegistrationState.UNREACHABLE)
        await agent.stopped()


async def test_a_stop_during_the_first_probe_of_the_broker_registers_nothing() -> None:
    async with scripted_registration_server() as server:
        config = with_probe(agent_config([server.addr]), kind="tcp", timeout_seconds=0.05)
        async with running_agent(config, probe=ScriptedProbe(None)) as agent:
            agent.stop.set()
            await agent.stopped()

        assert server.said_nothing_more()
