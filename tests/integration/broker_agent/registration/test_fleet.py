"""Registration loops that follow a list, and what each sends to its name server; real sockets."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1 import broker_pb2
from pointsman.v1 import registration_service_pb2 as wire
from pointsman.wire.error_details import build_status
from pointsman_agent.core.own_state import Leave
from pointsman_agent.core.probe_verdict import Role
from pointsman_agent.core.registration_session import RegistrationState
from pointsman_agent.registration.loop import Timeouts
from tests.kit.agent.beat_clock import LoopClock
from tests.kit.agent.in_process import BROKER_ADDR
from tests.kit.agent.registration_loops import PASSING, PROFILE, own_state, running_fleet
from tests.kit.broker.redis.process import free_port
from tests.kit.faults.cut_proxy import cut_proxy
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.scripted_registration import (
    Odd,
    Registration,
    ScriptedRegistrationServer,
    StreamEnded,
    answer,
    scripted_registration_server,
)
from tests.kit.waiting import eventually

FIVE = ["a", "b", "c", "d", "e"]
SIX = [*FIVE, "f"]
STALE_BASE = build_status(grpc.StatusCode.FAILED_PRECONDITION, "another base", code="STALE_DATA_VERSION")
STALE_GENERATION = build_status(
    grpc.StatusCode.FAILED_PRECONDITION, "over", code="STALE_GENERATION", facts={"holder_addr": "10.0.0.2:10911"}
)


async def until_confirmed(server: ScriptedRegistrationServer) -> Registration:
    """Receive the registration and the heartbeat that opens the stream."""
    registration = await server.next_registration()
    await server.next_beat()
    return registration


# --- the list ------------------------------------------------------------------------------------------------------


async def test_a_name_server_added_to_the_list_gets_the_registration_and_the_others_get_nothing() -> None:
    async with (
        scripted_registration_server() as first,
        scripted_registration_server() as second,
        running_fleet([first.addr]) as fleet,
    ):
        await until_confirmed(first)
        fleet.listed.set((first.addr, second.addr))
        await until_confirmed(second)

        assert first.said_nothing_more()
        assert set(fleet.fleet.reports) == {first.addr, second.addr}


async def test_a_name_server_removed_from_the_list_keeps_the_registration_and_gets_nothing_more(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        scripted_registration_server() as first,
        scripted_registration_server() as second,
        running_fleet([first.addr, second.addr], clock=clock) as fleet,
    ):
        for server in (first, second):
            await until_confirmed(server)
            await fleet.counts_beats(server.addr, 1)
        with caplog.at_level(logging.INFO):
            fleet.listed.set((second.addr,))
            last = await first.next_beat()
            assert last.hand_over
            assert await first.next_event() == StreamEnded()
        await eventually(lambda: fleet.forgotten == [first.addr])

        await clock.advance(30)
        await second.next_beat()
        assert first.said_nothing_more()
        assert set(fleet.fleet.reports) == {second.addr}
    logged = [
        record for record in caplog.records if record.getMessage().startswith("name server removed from the list")
    ]
    assert [record.facts["name_server"] for record in logged] == [first.addr]  # type: ignore[attr-defined]  # set by extra=


async def test_a_name_server_listed_again_while_its_loop_is_stopping_gets_a_new_loop(
    clock: ManualClock,
) -> None:
    async with scripted_registration_server() as server, running_fleet([server.addr], clock=clock) as fleet:
        await until_confirmed(server)
        await fleet.counts_beats(server.addr, 1)
        server.beat_answers.append(Odd.HANG)
        fleet.listed.set(())
        assert (await server.next_beat()).hand_over
        fleet.listed.set((server.addr,))
        await clock.advance(Timeouts().beat)

        await until_confirmed(server)
        assert fleet.forgotten == [server.addr]


async def test_a_dead_name_server_is_removed_from_the_list_without_waiting_for_it(clock: ManualClock) -> None:
    dead = f"127.0.0.1:{free_port()}"
    async with running_fleet([dead], clock=clock) as fleet:
        await fleet.stands(dead, RegistrationState.UNREACHABLE)
        fleet.listed.set(())
        await eventually(lambda: fleet.forgotten == [dead])
        assert fleet.fleet.reports == {}


@pytest.mark.parametrize(
    ("leave", "reason"),
    [(Leave.UNREGISTER, wire.UNREGISTER_REASON_SHUTDOWN), (Leave.DRAIN, wire.UNREGISTER_REASON_DRAIN)],
)
async def test_an_unregistration_is_sent_to_all_with_its_reason_and_ends_the_fleet(
    leave: Leave, reason: wire.UnregisterReason.ValueType
) -> None:
    async with (
        scripted_registration_server() as first,
        scripted_registration_server() as second,
        running_fleet([first.addr, second.addr]) as fleet,
    ):
        for server in (first, second):
            await until_confirmed(server)
            await fleet.counts_beats(server.addr, 1)
        fleet.set_leave(leave)
        for server in (first, second):
            assert (await server.next_unregister()).reason == reason
        async with asyncio.timeout(60):
            await fleet.task
        assert fleet.fleet.unfinished == []


async def test_queue_statistics_go_out_under_the_present_registration_and_not_without_one(clock: ManualClock) -> None:
    stats = wire.QueueStats(queue_count=3)
    async with scripted_registration_server() as server:
        server.register_outcomes.append(STALE_BASE)
        async with running_fleet([server.addr], clock=clock) as fleet:
            await fleet.stands(server.addr, RegistrationState.REFUSED)
            (loop,) = fleet.fleet.loops
            assert await loop.report_queue_stats(stats) is None

            await server.next_registration()
            await clock.advance(120)
            await until_confirmed(server)
            await fleet.counts_beats(server.addr, 1)
            assert await loop.report_queue_stats(stats) is not None
            request = await server.next_call()

    assert request == wire.ReportQueueStatsRequest(
        identity=PROFILE.to_identity(0), generation=server.generation, stats=stats
    )


# --- deltas --------------------------------------------------------------------------------------------------------


async def test_a_change_of_few_topics_is_sent_as_that() -> None:
    async with scripted_registration_server() as server, running_fleet([server.addr], own=own_state(FIVE)) as fleet:
        registration = await until_confirmed(server)
        await fleet.counts_beats(server.addr, 1)
        fleet.set_topics(SIX)
        update = await server.next_update()
        await eventually(lambda: fleet.registrations(server.addr, "updated") == 1)

    assert update.identity == registration.broker.identity
    assert update.generation == server.generation
    assert update.base_data_version == registration.broker.data_version
    assert [each.topic for each in update.changed] == ["f"]
    assert update.data_version.counter == own_state(SIX).data_version.counter


async def test_a_delta_that_does_not_apply_at_the_server_is_sent_as_a_full_registration() -> None:
    async with scripted_registration_server() as server, running_fleet([server.addr], own=own_state(FIVE)) as fleet:
        await until_confirmed(server)
        await fleet.counts_beats(server.addr, 1)
        server.update_outcomes.append(STALE_BASE)
        fleet.set_topics(SIX)
        await server.next_update()
        again = await server.next_registration()

    assert again.topics == SIX


async def test_a_change_in_a_superseded_generation_does_not_claim_the_identity_again(clock: ManualClock) -> None:
    async with (
        scripted_registration_server() as server,
        running_fleet([server.addr], own=own_state(FIVE), clock=clock) as fleet,
    ):
        await until_confirmed(server)
        await fleet.counts_beats(server.addr, 1)
        server.update_outcomes.append(STALE_GENERATION)
        fleet.set_topics(SIX)
        await server.next_update()
        await fleet.stands(server.addr, RegistrationState.HELD_BY_OTHER)
        assert fleet.fleet.reports[server.addr].holder_addr == "10.0.0.2:10911"
        await clock.advance(119)
        assert server.said_nothing_more()


async def test_a_server_that_holds_the_previous_set_is_updated_with_a_delta() -> None:
    async with scripted_registration_server() as server, running_fleet([server.addr], own=own_state(FIVE)) as fleet:
        registration = await until_confirmed(server)
        await fleet.counts_beats(server.addr, 1)
        fleet.set_topics(SIX)
        await server.next_update()
        await eventually(lambda: fleet.registrations(server.addr, "updated") == 1)
        await server.stop()
        await fleet.stands(server.addr, RegistrationState.UNREACHABLE)
        server.beat_answers.append(answer(wire.BEAT_STATUS_TOPICS_OUT_OF_DATE, held=registration.broker.data_version))
        await server.start()
        await server.next_beat()
        update = await server.next_update()

    assert update.base_data_version == registration.broker.data_version
    assert [each.topic for each in update.changed] == ["f"]


async def test_a_real_name_server_holds_what_deltas_make_of_a_registration() -> None:
    async with running_name_server() as server:
        topics = [f"t{i:03}" for i in range(100)]
        async with running_fleet([server.addr], own=own_state(topics)) as fleet:
            await fleet.counts_beats(server.addr, 1)
            for count in range(1, 4):
                topics = [*topics[2:], f"new-{count}"]
                fleet.set_topics(topics)
                await eventually(lambda: fleet.registrations(server.addr, "updated") == count)  # noqa: B023  # awaited here
            ((_, replica),) = server.core.replicas()
            held = replica.registration

            assert sorted(held.topics) == sorted(topics)
            assert held.data_version.counter == own_state(topics).data_version.counter
            assert fleet.registrations(server.addr) == 1


async def test_a_promoted_replica_is_registered_as_the_master_in_place_of_its_old_position() -> None:
    replica = replace(own_state(["orders"], verdict=replace(PASSING, role=Role.SLAVE)), configured_id=1, replica_id=1)
    async with running_name_server() as server, running_fleet([server.addr], own=replica) as fleet:
        await fleet.counts_beats(server.addr, 1)
        assert [each.identity.broker_id for _, each in server.core.replicas()] == [1]

        promoted = replace(PASSING, role=Role.MASTER, master_epoch=1)
        fleet.own.set(replace(fleet.own.value, verdict=promoted))
        await eventually(lambda: fleet.registrations(server.addr) == 2)
        assert [(each.identity.broker_id, each.identity.addr) for _, each in server.core.replicas()] == [
            (0, BROKER_ADDR)
        ]


# --- servers that receive and do not respond -----------------------------------------------------------------------


async def test_a_server_that_accepts_connections_and_never_responds_gets_one_registration_and_then_heartbeats(
    clock: ManualClock,
) -> None:
    async with scripted_registration_server() as server:
        server.register_outcomes += [Odd.HANG] * 100
        server.beat_answers += [Odd.HANG] * 100
        timeouts = Timeouts(beat=3.0, register=0.2)  # gRPC's deadline uses the real clock, heartbeats the manual one
        async with running_fleet([server.addr], clock=clock, timeouts=timeouts) as fleet:
            whole = 0
            ends_at = clock.now + 120
            while clock.now < ends_at:
                await clock.advance(1.0)
                await asyncio.sleep(0.005)
                while not server.events.empty():
                    whole += isinstance(server.events.get_nowait(), Registration)
            await eventually(lambda: fleet.beats(server.addr, "timeout") >= 10)
            assert whole == 1
            assert fleet.registration_state(server.addr) is RegistrationState.UNREACHABLE


async def test_a_server_whose_responses_are_lost_gets_no_second_registration(clock: ManualClock) -> None:
    """F6: requests of the agent arrive, responses do not."""
    timeouts = Timeouts(register=0.5)  # gRPC's deadline uses the real clock, heartbeats the manual one
    async with running_name_server() as server, cut_proxy(server.addr) as proxy:
        changed = 0

        async with running_fleet([proxy.addr], own=own_state(FIVE), clock=clock, timeouts=timeouts) as fleet:
            await fleet.counts_beats(proxy.addr, 1)
            proxy.deafen()
            fleet.set_topics(["x", "y", "z"])  # requires a full registration: sent once
            await eventually(lambda: fleet.registrations(proxy.addr, "unreachable") == 1)
            await eventually(
                lambda: fleet.beats(proxy.addr, "timeout") + fleet.beats(proxy.addr, "stream_broken") >= 4, clock=clock
            )
            changed = fleet.registrations(proxy.addr, "unreachable")
            ((_, replica),) = server.core.replicas()

    assert changed == 1
    assert sorted(replica.registration.topics) == ["x", "y", "z"]


async def test_a_server_that_stops_is_probed_by_heartbeats_and_gets_a_registration_once_it_is_back() -> None:
    async with scripted_registration_server() as server:
        unavailable = build_status(
            grpc.StatusCode.UNAVAILABLE, "draining", code="NOT_READY", facts={"node_state": "DRAINING"}
        )
        server.register_outcomes.append(unavailable)
        server.beat_answers += [grpc.StatusCode.UNAVAILABLE] * 3 + [answer(wire.BEAT_STATUS_UNKNOWN_BROKER)]
        async with running_fleet([server.addr]) as fleet:
            calls = [await server.next_call() for _ in range(6)]
            await fleet.counts_beats(server.addr, 1, "unknown_broker")

    assert [type(call) for call in calls] == [Registration, *[wire.Beat] * 4, Registration]
    assert calls[1].identity == broker_pb2.BrokerIdentity(  # type: ignore[union-attr]  # a heartbeat, see above
        cluster="c1", broker_name="a", broker_id=0, addr=BROKER_ADDR
    )


# --- two agents with one identity ----------------------------------------------------------------------------------


@pytest.mark.parametrize("second_addr", [BROKER_ADDR, "10.0.0.2:10911"], ids=["one-address", "two-addresses"])
async def test_two_agents_with_one_identity_do_not_fight_over_several_expiries(
    second_addr: str,
) -> None:
    expiries, clock = 4, ManualClock()
    clocks = LoopClock(clock), LoopClock(clock)
    async with running_name_server(clock=clock) as server:
        twin = replace(PROFILE, addr=second_addr)
        async with running_fleet([server.addr], clock=clocks[0], timeouts=LoopClock.TIMEOUTS) as first:
            await first.counts_beats(server.addr, 1)
            async with running_fleet(
                [server.addr], clock=clocks[1], timeouts=LoopClock.TIMEOUTS, profile=twin
            ) as second:
                await second.counts_beats(server.addr, 1)
                for _ in range(expiries * 12):
                    await clock.advance(10)
                    await eventually(lambda: all(each.is_waiting for each in clocks))
                    assert len(list(server.core.replicas())) == 1
                registrations = first.registrations(server.addr) + second.registrations(server.addr)
                registration_states = {first.registration_state(server.addr), second.registration_state(server.addr)}

    assert RegistrationState.REGISTERED in registration_states  # the displaced agent learns it with its next heartbeat
    assert registrations <= (2 if second_addr != BROKER_ADDR else 2 + 4 * expiries)
