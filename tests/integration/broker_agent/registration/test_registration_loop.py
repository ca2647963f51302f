"""One agent against name servers with scripted responses; real sockets, and the manual clock where time counts."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import socket
import urllib.request
from dataclasses import replace
from functools import partial

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1 import broker_pb2
from pointsman.v1 import registration_service_pb2 as wire
from pointsman.wire.error_details import build_status
from pointsman.wire.refusals import FieldViolation
from pointsman_agent.config import HeartbeatSection
from pointsman_agent.core.probe_verdict import ProbeFailure, ProbeResult, Role
from pointsman_agent.core.registration_session import RegistrationState
from tests.kit.agent.in_process import BROKER_ADDR, RunningAgent, ScriptedProbe, agent_config, running_agent, with_probe
from tests.kit.broker.redis.process import free_port
from tests.kit.faults.cut_proxy import cut_proxy
from tests.kit.name_server.scripted_registration import (
    Odd,
    Registration,
    ScriptedRegistrationServer,
    StreamEnded,
    StreamOpened,
    answer,
    scripted_registration_server,
)
from tests.kit.waiting import eventually

OTHER = "10.0.0.2:10911"
ANSWERS = ProbeResult(True, "answers", incarnation="run-1", role=Role.MASTER)
REFUSES = ProbeResult(False, "connection refused")
TIMED_OUT = ProbeResult(False, "no response within 2 s")
REFUSED_LOCALLY = ProbeResult(False, "connection refused", failure=ProbeFailure.CONNECTION_REFUSED_LOCALLY)
INVALID = build_status(
    grpc.StatusCode.INVALID_ARGUMENT,
    "bad registration",
    code="INVALID_REGISTRATION",
    violations=[FieldViolation("broker.zone", "'x' is not a zone"), FieldViolation("broker.host", "'y' is not a host")],
)
CONFLICT = build_status(grpc.StatusCode.ALREADY_EXISTS, "held", code="IDENTITY_HELD", facts={"holder_addr": OTHER})


async def test_a_fresh_agent_sends_all_its_topics_in_chunks_and_then_opens_its_stream() -> None:
    topics = [f"topic-{i:05}" for i in range(12_000)]
    async with scripted_registration_server() as server, running_agent(agent_config([server.addr], topics=topics)):
        registration = await server.next_registration()
        opened = await server.next_event()
        beat = await server.next_beat()

    assert registration.topics == topics
    assert registration.chunk_sizes == [5_000, 5_000, 2_000]
    assert registration.commit == wire.RegistrationCommit(topic_count=12_000, chunk_count=3)
    assert registration.broker.identity == broker_pb2.BrokerIdentity(
        cluster="c1", broker_name="a", broker_id=0, addr=BROKER_ADDR
    )
    assert (registration.broker.heartbeat_interval.seconds, registration.broker.expiry.seconds) == (30, 120)
    assert opened == StreamOpened()
    assert (beat.generation, beat.data_version) == (server.generation, registration.broker.data_version)


async def test_an_agent_without_topics_registers_with_one_empty_chunk() -> None:
    async with scripted_registration_server() as server, running_agent(agent_config([server.addr], topics=())):
        registration = await server.next_registration()

    assert registration.chunk_sizes == [0]
    assert registration.commit == wire.RegistrationCommit(topic_count=0, chunk_count=1)


async def test_the_first_registration_reports_the_result_of_the_probe(clock: ManualClock) -> None:
    async with scripted_registration_server() as server:
        config = with_probe(agent_config([server.addr]), kind="redis")
        async with running_agent(config, clock=clock, probe=ScriptedProbe(ANSWERS)):
            registration = await server.next_registration()

    assert registration.broker.incarnation == "run-1"
    assert registration.broker.health == broker_pb2.BrokerHealth(
        status=broker_pb2.PROBE_STATUS_PASSING, detail="answers", ever_passed=True
    )


async def test_a_probe_that_hangs_holds_the_first_registration_only_until_its_deadline(clock: ManualClock) -> None:
    async with scripted_registration_server() as server:
        config = with_probe(agent_config([server.addr]), kind="tcp", timeout_seconds=2.0)
        probe = ScriptedProbe(None)
        async with running_agent(config, clock=clock, probe=probe):
            await eventually(lambda: probe.looks == 1)
            await clock.advance(1.9)
            assert server.said_nothing_more()

            await clock.advance(0.1)
            registration = await server.next_registration()

    assert registration.broker.health == broker_pb2.BrokerHealth(
        status=broker_pb2.PROBE_STATUS_FAILING,
        detail="no response within 2 s",
        evidence=broker_pb2.PROBE_EVIDENCE_WEAK,
        ever_passed=False,
    )


async def test_an_unprobed_broker_is_registered_with_its_health_left_open() -> None:
    async with scripted_registration_server() as server, running_agent(agent_config([server.addr])):
        registration = await server.next_registration()

    assert registration.broker.health == broker_pb2.BrokerHealth()


async def test_a_heartbeat_carries_each_measurement_of_the_queues_once_and_the_last_after_a_registration(
    clock: ManualClock,
) -> None:
    async with scripted_registration_server() as server:
        config = replace(agent_config([server.addr]), heartbeat=HeartbeatSection(interval_seconds=10.0))
        async with running_agent(config, clock=clock) as agent:
            await server.next_registration()
            for beats in range(1, 9):
                await server.next_beat()
                await agent.counts_beats(server.addr, beats)
                if beats == 8:
                    server.beat_answers.append(answer(wire.BEAT_STATUS_UNKNOWN_BROKER))
                await clock.advance(10.0)
            await server.next_beat()
            await server.next_registration()
            await server.next_beat()

    *before, again = [wire.LiveQueues.FromString(body) for body in server.live_queues if body]
    assert [each.interval.ToSeconds() for each in before] == [30, 30, 30]
    assert again.age.ToSeconds() == 20


async def test_the_agent_sends_a_heartbeat_every_interval_on_one_stream(clock: ManualClock) -> None:
    async with (
        scripted_registration_server() as server,
        running_agent(agent_config([server.addr]), clock=clock) as agent,
    ):
        await server.next_registration()
        assert await server.next_event() == StreamOpened()
        for number in range(1, 6):
            await server.next_beat()
            await agent.counts_beats(server.addr, number)
            await clock.advance(29.9)
            assert server.said_nothing_more()
            await clock.advance(0.1)
        assert isinstance(await server.next_event(), wire.Beat)


async def test_the_agent_uses_the_heartbeat_interval_that_the_server_sets(clock: ManualClock) -> None:
    async with scripted_registration_server() as server:
        server.heartbeat_interval, server.expiry = 7.5, 40.0
        async with running_agent(agent_config([server.addr]), clock=clock) as agent:
            await server.next_registration()
            await server.next_beat()
            await agent.counts_beats(server.addr, 1)
            await clock.advance(7.5)
            await server.next_beat()


async def test_name_servers_that_are_down_or_never_respond_delay_no_other(clock: ManualClock) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        deaf_addr = f"127.0.0.1:{deaf.getsockname()[1]}"
        async with scripted_registration_server() as hanging, scripted_registration_server() as server:
            hanging.register_outcomes.append(Odd.HANG)
            addrs = [f"127.0.0.1:{free_port()}", deaf_addr, hanging.addr, server.addr]
            async with running_agent(agent_config(addrs), clock=clock) as agent:
                await server.next_registration()
                await server.next_beat()
                await agent.counts_beats(server.addr, 1)
                await clock.advance(30)
                await server.next_beat()
                await agent.stands(addrs[0], RegistrationState.UNREACHABLE)

                healthy, facts = agent.agent.health()

    assert healthy
    registration_states = {addr: facts["name_servers"][addr]["state"] for addr in addrs}  # type: ignore[index]  # JSON
    assert registration_states == dict(
        zip(addrs, ["unreachable", "unregistered", "unregistered", "registered"], strict=True)
    )


@pytest.mark.parametrize(
    "asks",
    [
        answer(wire.BEAT_STATUS_UNKNOWN_BROKER),
        answer(wire.BEAT_STATUS_TOPICS_OUT_OF_DATE),
        answer(wire.BEAT_STATUS_STALE_GENERATION, holder_addr=BROKER_ADDR),
    ],
    ids=["unknown-broker", "topics-out-of-date", "stale-and-the-holder-is-this-broker"],
)
async def test_a_response_that_requests_the_registration_gets_it_immediately(
    clock: ManualClock, asks: wire.BeatAnswer
) -> None:
    async with scripted_registration_server() as server:
        server.beat_answers.append(asks)
        async with running_agent(agent_config([server.addr]), clock=clock):
            await server.next_registration()
            await server.next_beat()
            again = await server.next_registration()
            beat = await server.next_beat()

    assert again.topics == ["orders"]
    assert beat.generation == server.generation == 102


async def test_an_identity_held_by_another_broker_is_left_alone_for_an_expiry(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_registration_server() as server:
        stale = answer(wire.BEAT_STATUS_STALE_GENERATION, holder_addr=OTHER)
        server.beat_answers += [stale, stale, answer(wire.BEAT_STATUS_UNKNOWN_BROKER)]
        with caplog.at_level(logging.INFO):
            async with running_agent(agent_config([server.addr]), clock=clock) as agent:
                await server.next_registration()
                for times in (1, 2):
                    beat = await server.next_beat()
                    await agent.counts_beats(server.addr, times, "stale_generation")
                    assert agent.registration_state(server.addr) is RegistrationState.HELD_BY_OTHER
                    await clock.advance(119.9)
                    assert server.said_nothing_more()
                    await clock.advance(0.1)
                await server.next_beat()
                await server.next_registration()

    assert beat.generation == 101
    assert any(getattr(record, "facts", {}).get("holder_addr") == OTHER for record in caplog.records)


async def test_a_refused_claim_names_the_holder_and_is_made_again_after_an_expiry(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_registration_server() as server:
        server.register_outcomes.append(CONFLICT)
        async with running_agent(agent_config([server.addr]), clock=clock) as agent:
            await server.next_registration()
            await agent.stands(server.addr, RegistrationState.HELD_BY_OTHER)
            healthy, facts = agent.agent.health()
            await clock.advance(119.9)
            assert server.said_nothing_more()
            await clock.advance(0.1)
            await server.next_registration()

    assert not healthy
    assert facts["name_servers"][server.addr]["holder_addr"] == OTHER  # type: ignore[index]  # JSON
    assert OTHER in str([getattr(record, "facts", {}) for record in caplog.records])


async def test_a_refused_registration_logs_every_violation_and_waits_an_expiry(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_registration_server() as server:
        server.register_outcomes.append(INVALID)
        async with running_agent(agent_config([server.addr]), clock=clock) as agent:
            await server.next_registration()
            await agent.stands(server.addr, RegistrationState.REFUSED)
            await clock.advance(119.9)
            assert server.said_nothing_more()
            await clock.advance(0.1)
            await server.next_registration()

    refused = next(record for record in caplog.records if record.getMessage() == "registration failed")
    assert refused.levelno == logging.WARNING
    assert refused.facts["violations"] == ["broker.zone: 'x' is not a zone", "broker.host: 'y' is not a host"]  # type: ignore[attr-defined]  # set by extra=


async def test_after_a_restart_of_the_name_server_the_agent_sends_heartbeats_and_only_what_is_requested(
    clock: ManualClock,
) -> None:
    async with (
        scripted_registration_server() as server,
        running_agent(agent_config([server.addr]), clock=clock) as agent,
    ):
        await server.next_registration()
        await server.next_beat()
        await agent.counts_beats(server.addr, 1)

        await server.stop()
        await agent.stands(server.addr, RegistrationState.UNREACHABLE)
        await server.start()
        await until_it_says(server, clock)
        first = await server.next_call()
        await agent.counts_beats(server.addr, 2)
        assert isinstance(first, wire.Beat)
        assert first.generation == 101
        assert server.said_nothing_more()

        await server.stop()
        await agent.stands(server.addr, RegistrationState.UNREACHABLE)
        server.beat_answers.append(answer(wire.BEAT_STATUS_UNKNOWN_BROKER))
        await server.start()
        await until_it_says(server, clock)
        assert isinstance(await server.next_call(), wire.Beat)
        assert isinstance(await server.next_call(), Registration)


async def until_it_says(server: ScriptedRegistrationServer, clock: ManualClock) -> None:
    """Let the agent's back-off pass until a call arrives; gRPC's own reconnecting goes by the real clock."""
    while not server.events.empty():
        assert server.events.get_nowait() == StreamEnded()
    async with asyncio.timeout(60):
        while server.said_nothing_more():
            await clock.advance(0.2)
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_a_name_server_that_returns_has_its_agent_back_in_seconds() -> None:
    async with scripted_registration_server() as server, running_agent(agent_config([server.addr])) as agent:
        await server.next_registration()
        await server.next_beat()
        await server.stop()
        await agent.stands(server.addr, RegistrationState.UNREACHABLE)
        await asyncio.sleep(3.0)  # long enough for both back-offs, the agent's and gRPC's, to reach their caps
        await server.start()
        async with asyncio.timeout(30.0):  # 3.0 + 2.4 s at worst, and a busy machine
            while not isinstance(await server.next_event(), wire.Beat):
                pass


async def test_a_heartbeat_without_a_response_times_out_and_is_sent_again(clock: ManualClock) -> None:
    async with scripted_registration_server() as server:
        server.beat_answers.append(Odd.HANG)
        async with running_agent(agent_config([server.addr]), clock=clock) as agent:
            await server.next_registration()
            await server.next_beat()
            await clock.advance(2.9)
            assert agent.beats(server.addr, "timeout") == 0
            await clock.advance(0.1)
            assert await server.next_event() == StreamEnded()
            assert agent.beats(server.addr, "timeout") == 1
            assert agent.registration_state(server.addr) is RegistrationState.UNREACHABLE

            await clock.advance(0.2)
            assert await server.next_event() == StreamOpened()
            await server.next_beat()
            await agent.stands(server.addr, RegistrationState.REGISTERED)


async def test_a_connection_that_broke_silently_is_replaced_and_not_waited_for() -> None:
    async with scripted_registration_server() as server, cut_proxy(server.addr) as proxy:
        config = replace(
            agent_config([proxy.addr]),
            # A connection that a busy machine opens within the timeout: one that is late would be replaced as well.
            heartbeat=HeartbeatSection(interval_seconds=0.3, expiry_seconds=60.0, timeout_seconds=3.0),
        )
        async with running_agent(config) as agent:
            await server.next_registration()
            await server.next_beat()
            await eventually(lambda: agent.beats(proxy.addr) >= 1)

            proxy.cut()
            proxy.repair()
            await eventually(lambda: agent.beats(proxy.addr, "timeout") >= 1)
            before = agent.beats(proxy.addr)
            await eventually(lambda: agent.beats(proxy.addr) > before)

            assert proxy.connections == 2
            assert agent.registrations(proxy.addr) == 1


async def test_a_stream_starts_with_the_agents_wall_clock_and_sends_it_every_five_minutes(clock: ManualClock) -> None:
    with_clock = []
    async with scripted_registration_server() as server:
        server.beat_answers.extend([answer(wire.BEAT_STATUS_OK)] * 13 + [Odd.END])
        async with running_agent(agent_config([server.addr]), clock=clock) as agent:
            await server.next_registration()
            for number in range(1, 14):
                beat = await server.next_beat()
                with_clock.append(beat.sent_at_millis == clock.utc_now().timestamp() * 1_000)
                assert with_clock[-1] or not beat.sent_at_millis
                await agent.counts_beats(server.addr, number)
                await clock.advance(30)
            await server.next_beat()
            await agent.counts_beats(server.addr, 1, "stream_broken")
            await clock.advance(0.2)
            on_the_next_stream = await server.next_beat()

    assert [n for n, each in enumerate(with_clock) if each] == [0, 10]
    assert on_the_next_stream.sent_at_millis > 0


async def test_a_stream_that_the_server_ends_is_opened_again(clock: ManualClock) -> None:
    async with scripted_registration_server() as server:
        server.beat_answers.append(Odd.END)
        async with running_agent(agent_config([server.addr]), clock=clock) as agent:
            await server.next_registration()
            await server.next_beat()
            await agent.counts_beats(server.addr, 1, "stream_broken")
            await clock.advance(0.2)
            await server.next_beat()
            await agent.counts_beats(server.addr, 1)


async def test_an_unsolicited_response_is_applied(clock: ManualClock) -> None:
    async with scripted_registration_server() as server:
        server.unasked_answers.put_nowait(answer(wire.BEAT_STATUS_UNKNOWN_BROKER))
        async with running_agent(agent_config([server.addr]), clock=clock):
            await server.next_registration()
            await server.next_beat()
            await server.next_registration()


async def test_a_failed_probe_is_sent_immediately_in_a_heartbeat_and_changes_no_registration(
    clock: ManualClock,
) -> None:
    async with scripted_registration_server() as server:
        probe = ScriptedProbe(ANSWERS)
        config = with_probe(agent_config([server.addr]), kind="tcp", interval_seconds=5.0, fall=2)
        async with running_agent(config, clock=clock, probe=probe) as agent:
            await server.next_registration()
            await server.next_beat()
            await agent.counts_beats(server.addr, 1)

            probe.result = REFUSES
            await clock.advance(5)
            assert server.said_nothing_more()
            await clock.advance(5)
            ill = await server.next_beat()
            await agent.counts_beats(server.addr, 2)

            probe.result = ANSWERS
            await clock.advance(5)
            well = await server.next_beat()

    assert ill.health == broker_pb2.BrokerHealth(
        status=broker_pb2.PROBE_STATUS_FAILING,
        detail="connection refused",
        evidence=broker_pb2.PROBE_EVIDENCE_WEAK,
        ever_passed=True,
    )
    assert well.health.status == broker_pb2.PROBE_STATUS_PASSING


async def test_evidence_that_becomes_strong_is_sent_immediately_and_stays_the_same_bytes(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pointsman_agent.app")
    async with scripted_registration_server() as server:
        probe = ScriptedProbe(ANSWERS)
        config = with_probe(agent_config([server.addr]), kind="tcp", interval_seconds=5.0, fall=2)
        async with running_agent(config, clock=clock, probe=probe) as agent:
            await server.next_registration()
            beats = [await server.next_beat()]
            await agent.counts_beats(server.addr, 1)

            for result, beat_number in ((TIMED_OUT, 2), (REFUSED_LOCALLY, 3)):
                probe.result = result
                await clock.advance(5)
                assert server.said_nothing_more()
                await clock.advance(5)
                beats.append(await server.next_beat())
                await agent.counts_beats(server.addr, beat_number)

            for beat_number in (4, 5):  # at their time, six checks later each
                probe.result = TIMED_OUT
                await clock.advance(29.9)
                assert server.said_nothing_more()
                await clock.advance(0.1)
                beats.append(await server.next_beat())
                await agent.counts_beats(server.addr, beat_number)

    assert [beat.health.evidence for beat in beats[:3]] == [
        broker_pb2.PROBE_EVIDENCE_UNSPECIFIED,
        broker_pb2.PROBE_EVIDENCE_WEAK,
        broker_pb2.PROBE_EVIDENCE_STRONG,
    ]
    assert all(beat.health.ever_passed for beat in beats)
    assert beats[3].health.evidence == broker_pb2.PROBE_EVIDENCE_STRONG
    assert beats[3].SerializeToString() == beats[4].SerializeToString()
    changes = [
        record.__dict__["facts"] for record in caplog.records if record.msg == "broker health or identity changed"
    ]
    assert [(facts["probe"], facts["evidence"]) for facts in changes] == [("failing", "weak"), ("failing", "strong")]


async def test_a_probe_that_hangs_delays_no_heartbeat(clock: ManualClock) -> None:
    async with scripted_registration_server() as server:
        probe = ScriptedProbe(ANSWERS)
        config = with_probe(agent_config([server.addr]), kind="tcp", interval_seconds=29.0, timeout_seconds=60.0)
        async with running_agent(config, clock=clock, probe=probe) as agent:
            await server.next_registration()
            await server.next_beat()
            await agent.counts_beats(server.addr, 1)
            probe.result = None
            await clock.advance(29)
            assert probe.looks == 2
            await clock.advance(1)
            beat = await server.next_beat()

    assert beat.health.status == broker_pb2.PROBE_STATUS_PASSING


@pytest.mark.parametrize(
    ("seen", "incarnation", "detail"),
    [
        pytest.param(replace(ANSWERS, incarnation="run-2"), "run-2", "answers", id="new-incarnation"),
        pytest.param(
            replace(ANSWERS, role=Role.SLAVE),
            "run-1",
            "configured as broker id 0 (master), but the broker reports that it is a replica; answers",
            id="changed-role",
        ),
    ],
)
async def test_another_process_or_role_of_the_broker_is_registered_again(
    clock: ManualClock, seen: ProbeResult, incarnation: str, detail: str
) -> None:
    async with scripted_registration_server() as server:
        probe = ScriptedProbe(ANSWERS)
        config = with_probe(agent_config([server.addr]), kind="redis", interval_seconds=5.0)
        async with running_agent(config, clock=clock, probe=probe) as agent:
            await server.next_registration()
            await server.next_beat()
            await agent.counts_beats(server.addr, 1)
            probe.result = seen
            await clock.advance(5)
            again = await server.next_registration()

    assert again.broker.incarnation == incarnation
    assert again.broker.health == broker_pb2.BrokerHealth(
        status=broker_pb2.PROBE_STATUS_PASSING, detail=detail, ever_passed=True
    )
    assert again.broker.identity.broker_id == 0


async def test_monitoring_serves_registration_states_and_counts_over_http() -> None:
    async with scripted_registration_server() as server:
        port = free_port()
        base = agent_config([server.addr])
        config = replace(base, monitoring=replace(base.monitoring, listen=f"127.0.0.1:{port}"))
        async with running_agent(config) as agent:
            await agent.counts_beats(server.addr, 1)
            health = json.loads(await fetch(port, "/healthz"))
            metrics = await fetch(port, "/metrics")

    assert health["healthy"] is True
    assert health["name_servers"][server.addr]["state"] == "registered"
    assert f'pointsman_agent_registration_state{{name_server="{server.addr}",state="registered"}} 1.0' in metrics
    assert f'pointsman_agent_registrations_total{{name_server="{server.addr}",result="accepted"}} 1.0' in metrics
    assert "pointsman_agent_topics 1.0" in metrics
    assert math.isnan(agent.agent.metrics.registry.get_sample_value("pointsman_agent_broker_up") or 0)


async def fetch(port: int, path: str) -> str:
    def get() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as response:
            return str(response.read().decode())

    return await asyncio.to_thread(get)


async def test_an_agent_logs_the_earlier_name_that_its_registration_ended_and_a_conflict_at_its_address(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    old, foreign = (
        broker_pb2.BrokerIdentity(cluster="c1", broker_name=name, broker_id=0, addr=BROKER_ADDR)
        for name in ("old", "foreign")
    )

    def logged(message: str) -> list[object]:
        return [record.facts for record in caplog.records if record.getMessage() == message]  # type: ignore[attr-defined]

    def beaten(agent: RunningAgent, addr: str, count: int) -> bool:
        return agent.beats(addr) >= count

    async with scripted_registration_server() as server:
        server.superseded.append(old)
        conflict = answer(wire.BEAT_STATUS_OK)
        conflict.group.also_at_addr.append(foreign)
        server.beat_answers += [conflict, conflict]
        with caplog.at_level(logging.INFO):
            async with running_agent(agent_config([server.addr]), clock=clock) as agent:
                await server.next_registration()
                for count in range(1, 4):
                    await server.next_beat()
                    await eventually(partial(beaten, agent, server.addr, count))
                    await clock.advance(30.0)

    (earlier,) = logged("the broker had another name or cluster; its earlier registration ended")
    assert earlier == {"name_server": server.addr, "superseded": ["c1/old/0"]}
    facts = {"name_server": server.addr, "addr": BROKER_ADDR, "also_at_addr": ["c1/foreign/0"]}
    assert logged("another broker is registered at this broker's address") == [facts]
    assert logged("no other broker is registered at this broker's address") == [facts | {"also_at_addr": []}]
