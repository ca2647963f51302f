"""Drains over real gRPC: an agent's service on one side, real name servers on the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pointsman.clock import SystemClock
from pointsman.manual_clock import ManualClock
from pointsman.v1 import agent_service_pb2 as wire
from pointsman.v1 import broker_pb2
from pointsman.v1 import registration_service_pb2 as registration_wire
from pointsman.v1.admin_service_pb2 import SetWritePermRequest
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman.v1.agent_service_pb2_grpc import AgentServiceStub
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from pointsman.wire.channel_opener import ChannelOpener
from pointsman_agent.agent_metrics import AgentMetrics
from pointsman_agent.core.drain import Answer
from pointsman_agent.core.drain_lag import LagReport, LagTally
from pointsman_agent.core.measured_queue_stats import QueueEnd
from pointsman_agent.core.own_state import Leave, OwnState
from pointsman_agent.core.probe_verdict import Evidence, ProbeStatus, Role, Verdict
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.registration_session import RegistrationState
from pointsman_agent.core.topic_set import TopicConfig, TopicSet
from pointsman_agent.drain.agent_servicer import AgentFacts, AgentService
from pointsman_agent.drain.drainer import DrainedAgent, Drainer
from pointsman_agent.drain.put_rate import PutRate
from pointsman_agent.drain.write_perm import WritePermissions
from pointsman_agent.observable import Observable
from pointsman_agent.queue_stats.ends import QueueEndsError
from pointsman_agent.registration.loop import RegistrationLoop, Timeouts
from pointsman_agent.registration.registration_messages import BrokerProfile
from pointsman_namesrv.app import NameServerApp
from tests.kit.agent import services as agent_services
from tests.kit.agent.in_process import PATIENCE_SECONDS
from tests.kit.broker.redis.process import free_port
from tests.kit.history.rows import rows_in
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.wire import identity, registration, topic, unregistration
from tests.kit.refusal import refusal_of
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pointsman.v1.agent_service_pb2_grpc import AgentServiceAsyncStub

    Call = grpc.aio.UnaryStreamCall[wire.DrainRequest, wire.DrainResponse]

ADDR = "10.0.0.1:10911"
OWN = OwnState(
    0, TopicSet.from_content([], state_version=3), Verdict(ProbeStatus.PASSING, "answers", "run-1", Role.MASTER)
)


NOTHING_UNREAD = LagReport()


def unread(group: str, lag: int, *, members: int | None = 1) -> LagReport:
    tally = LagTally()
    tally.add(group, QueueKey("orders", 0), 0, QueueEnd(0, lag, lag))
    return tally.finish(None if members is None else {group: members})


@dataclass
class Rig:
    """An agent's drain; the test controls everything that it depends on."""

    name_servers: list[NameServerApp]
    channels: list[grpc.aio.Channel]
    own: OwnState = OWN
    more_name_servers: list[str] = field(default_factory=list)
    rate: float | None = 0.0
    lag: LagReport | None = NOTHING_UNREAD
    lags_measured: int = 0
    hold_lag: asyncio.Event | None = None
    generations: list[int] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    on_stop_groups: Callable[[], None] = lambda: None
    hold_groups: asyncio.Event | None = None
    hold_leave: asyncio.Event | None = None
    hold_rate: asyncio.Event | None = None

    def addrs(self) -> list[str]:
        return [*(each.addr for each in self.name_servers), *self.more_name_servers]

    async def register(self) -> None:
        for channel in self.channels:
            response = await RegistrationServiceStub(channel).RegisterBroker(
                registration(topic("orders"), who=identity(addr=ADDR), incarnation="run-1")
            )
            self.generations.append(response.generation)

    async def put_rate(self) -> float | None:
        if self.hold_rate is not None:
            await self.hold_rate.wait()
        return self.rate

    async def group_lags(self) -> LagReport | None:
        self.lags_measured += 1
        if self.hold_lag is not None:
            await self.hold_lag.wait()
        return self.lag

    async def stop_groups(self) -> None:
        self.on_stop_groups()
        self.groups.append("stopped")
        if self.hold_groups is not None:
            await self.hold_groups.wait()

    async def serve_groups(self) -> None:
        self.groups.append("served")

    async def unregister(self) -> Mapping[str, Answer]:
        if self.hold_leave is not None:
            await self.hold_leave.wait()
        answers = {}
        for app, channel, generation in zip(self.name_servers, self.channels, self.generations, strict=True):
            response = await RegistrationServiceStub(channel).UnregisterBroker(
                unregistration(identity(addr=ADDR), generation, registration_wire.UNREGISTER_REASON_DRAIN)
            )
            answers[app.addr] = Answer(
                response.status == registration_wire.UNREGISTER_STATUS_UNREGISTERED, str(response.status)
            )
        return answers

    async def write_perms(self) -> list[int | None]:
        """The permission of the topic on each name server; None where it is not routed."""
        perms: list[int | None] = []
        for channel in self.channels:
            try:
                response = await RouteServiceStub(channel).GetTopicRoute(GetTopicRouteRequest(topic="orders"))
                perms.append(response.route.queue_datas[0].perm)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    raise
                perms.append(None)
        return perms


@dataclass
class Served:
    rig: Rig
    drainer: Drainer
    channel: grpc.aio.Channel

    @property
    def stub(self) -> AgentServiceAsyncStub:
        return AgentServiceStub(self.channel)

    async def drained(self, **request: object) -> list[tuple[str, str]]:
        """Drain to the end; return each step with its state, without RUNNING."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            call = self.stub.Drain(wire.DrainRequest(**request))  # type: ignore[arg-type]  # the test's fields
            return [step_and_state(progress) async for progress in call if not runs(progress)]


def step_and_state(progress: wire.DrainResponse) -> tuple[str, str]:
    step = wire.DrainStep.Name(progress.step).removeprefix("DRAIN_STEP_")
    return step, wire.DrainStepState.Name(progress.state).removeprefix("DRAIN_STEP_STATE_")


def runs(progress: wire.DrainResponse) -> bool:
    return progress.state == wire.DRAIN_STEP_STATE_RUNNING


@asynccontextmanager
async def served(clock: ManualClock, *, name_servers: int = 1, knows_lag: bool = False) -> AsyncIterator[Served]:
    """Serve a drain, with ``name_servers`` real name servers at which the broker is registered."""
    async with AsyncExitStack() as stack:
        apps = [await stack.enter_async_context(running_name_server()) for _ in range(name_servers)]
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(app.addr)) for app in apps]
        rig = Rig(apps, channels)
        await rig.register()
        permissions = WritePermissions(
            cluster="c1", broker_name="a", agent_addr="10.0.0.1:9880", timeout=1.0, opener=ChannelOpener()
        )
        agent = DrainedAgent(
            is_master=lambda: rig.own.broker_id == 0,
            name_servers=rig.addrs,
            put_rate=rig.put_rate,
            group_lags=rig.group_lags if knows_lag else None,
            stop_groups=rig.stop_groups,
            serve_groups=rig.serve_groups,
            unregister=rig.unregister,
        )
        drainer = Drainer(agent, permissions, clock=clock)
        facts = AgentFacts(version="1.0", cluster="c1", broker_name="a", addr=ADDR, own=rig.own)
        service = AgentService(
            drainer,
            facts=lambda: replace(
                facts, own=rig.own, registration_states=dict.fromkeys(rig.addrs(), ("registered", ""))
            ),
            clock=clock,
        )
        async with agent_services.served(service.service()) as channel:
            try:
                yield Served(rig, drainer, channel)
            finally:
                await drainer.close(seconds=PATIENCE_SECONDS)


async def test_a_drain_wipes_waits_stops_groups_and_unregisters_everywhere(clock: ManualClock) -> None:
    async with served(clock, name_servers=2) as agent:
        assert await agent.drained(quiet=Duration(seconds=0)) == [
            ("WIPE_WRITE_PERM", "DONE"),
            ("WAIT_FOR_PRODUCERS", "DONE"),
            ("WAIT_FOR_CONSUMERS", "SKIPPED"),
            ("STOP_GROUPS", "DONE"),
            ("UNREGISTER", "DONE"),
        ]
        assert await agent.rig.write_perms() == [None, None]
        assert agent.rig.groups == ["stopped"]
        assert agent.drainer.state == "drained"


async def test_write_permission_is_wiped_before_the_drain_waits_for_producers(clock: ManualClock) -> None:
    async with served(clock) as agent:
        agent.rig.rate = 12.5
        call = agent.stub.Drain(wire.DrainRequest(by="alice"))
        progress = [await next_progress(call) for _ in range(4)]
        assert [step_and_state(each) for each in progress] == [
            ("WIPE_WRITE_PERM", "RUNNING"),
            ("WIPE_WRITE_PERM", "DONE"),
            ("WAIT_FOR_PRODUCERS", "RUNNING"),
            ("WAIT_FOR_PRODUCERS", "RUNNING"),
        ]
        assert progress[3].detail == "12.5 messages/s are written"
        assert [(each.addr, each.done) for each in progress[1].name_servers] == [(agent.rig.addrs()[0], True)]
        assert await agent.rig.write_perms() == [4]
        assert agent.rig.groups == []

        agent.rig.rate = 0.0
        await clock.advance(4.0)
        assert step_and_state(await next_progress(call)) == ("WAIT_FOR_PRODUCERS", "DONE")
        assert agent.drainer.state in {"draining", "drained"}
        assert step_and_state((await left_over(call))[-1]) == ("UNREGISTER", "DONE")


async def test_producers_that_never_stop_delay_a_drain_no_longer_than_its_timeout(clock: ManualClock) -> None:
    async with served(clock) as agent:
        agent.rig.rate = 1.0
        draining = asyncio.create_task(agent.drained(producers_timeout=Duration(seconds=20)))
        await eventually(lambda: agent.drainer.state == "draining")
        await eventually(lambda: bool(clock._sleepers))
        await clock.advance(19.9)
        assert agent.rig.groups == []
        await clock.advance(0.2)

        assert ("WAIT_FOR_PRODUCERS", "TIMED_OUT") in await draining


async def test_a_drain_shows_the_lag_of_each_group_as_it_falls_and_ends_when_nothing_is_unread(
    clock: ManualClock,
) -> None:
    async with served(clock, knows_lag=True) as agent:
        agent.rig.lag = unread("billing", 296)
        request = wire.DrainRequest(quiet=Duration(seconds=0), consumers_timeout=Duration(seconds=600))
        call = agent.stub.Drain(request)
        while (progress := await next_progress(call)).step != wire.DRAIN_STEP_WAIT_FOR_CONSUMERS or not progress.groups:
            pass
        assert progress.groups == [wire.UnreadGroup(group="billing", lag=296, member_count=1)]
        assert progress.detail == "296 unread messages of 1 group; at most 600 s more"
        agent.rig.lag = unread("billing", 12)
        await clock.advance(5.5)
        assert (await next_progress(call)).groups[0].lag == 12
        assert agent.rig.groups == []

        agent.rig.lag = NOTHING_UNREAD
        await clock.advance(2.5)
        assert step_and_state(await next_progress(call)) == ("WAIT_FOR_CONSUMERS", "DONE")
        assert step_and_state((await left_over(call))[-1]) == ("UNREGISTER", "DONE")


async def test_one_measurement_without_lag_ends_no_wait_for_consumers(clock: ManualClock) -> None:
    async with served(clock, knows_lag=True) as agent:
        call = agent.stub.Drain(wire.DrainRequest(quiet=Duration(seconds=0)))
        await eventually(lambda: agent.rig.lags_measured == 1 and bool(clock._sleepers))
        agent.rig.lag = unread("billing", 1)
        await clock.advance(1.5)
        assert agent.rig.groups == []
        call.cancel()
        await eventually(lambda: agent.drainer.state == "")


async def test_groups_that_do_not_read_hold_a_drain_to_its_deadline_and_are_named_with_their_numbers(
    clock: ManualClock,
) -> None:
    async with served(clock, knows_lag=True) as agent:
        agent.rig.lag = unread("billing", 7)
        call = agent.stub.Drain(wire.DrainRequest(quiet=Duration(seconds=0), consumers_timeout=Duration(seconds=20)))
        await eventually(lambda: agent.rig.lags_measured == 1 and bool(clock._sleepers))
        await clock.advance(19.9)
        assert agent.rig.groups == []
        await clock.advance(0.2)
        progress = [each for each in await left_over(call) if each.step == wire.DRAIN_STEP_WAIT_FOR_CONSUMERS][-1]

        assert step_and_state(progress) == ("WAIT_FOR_CONSUMERS", "TIMED_OUT")
        assert progress.detail == "7 unread messages of 1 group; continuing"
        assert [(each.group, each.lag) for each in progress.groups] == [("billing", 7)]
        assert agent.drainer.state == "drained"


async def test_a_group_without_a_member_is_named_immediately_and_not_waited_for(clock: ManualClock) -> None:
    async with served(clock, knows_lag=True) as agent:
        agent.rig.lag = unread("old", 9, members=0)
        call = agent.stub.Drain(wire.DrainRequest(quiet=Duration(seconds=0)))
        await eventually(lambda: agent.rig.lags_measured == 1 and bool(clock._sleepers))
        await clock.advance(1.5)
        progress = [each for each in await left_over(call) if each.step == wire.DRAIN_STEP_WAIT_FOR_CONSUMERS]

        named = wire.UnreadGroup(group="old", lag=9, member_count=0)
        assert [(step_and_state(each)[1], list(each.groups)) for each in progress] == [
            ("RUNNING", []),
            ("RUNNING", [named]),
            ("FAILED", [named]),
        ]
        assert progress[-1].detail.endswith("9 of 1 group without a member, not waited for; continuing")


async def test_a_lag_that_cannot_be_measured_is_waited_for_until_the_deadline(clock: ManualClock) -> None:
    async with served(clock, knows_lag=True) as agent:
        agent.rig.hold_lag = asyncio.Event()
        request = wire.DrainRequest(quiet=Duration(seconds=0), consumers_timeout=Duration(seconds=5))
        draining = asyncio.create_task(left_over(agent.stub.Drain(request)))
        await eventually(lambda: agent.rig.lags_measured == 1)
        await clock.advance(31.0)
        progress = [each for each in await draining if each.step == wire.DRAIN_STEP_WAIT_FOR_CONSUMERS][-1]

        assert step_and_state(progress) == ("WAIT_FOR_CONSUMERS", "TIMED_OUT")
        assert "is unknown" in progress.detail


async def test_a_replica_that_is_drained_leaves_its_master_writable(clock: ManualClock) -> None:
    async with served(clock) as agent:
        agent.rig.own = replace(OWN, configured_id=1)
        # The broker of the rig is the master of the name that this replica would wipe.
        agent.rig.hold_leave = asyncio.Event()
        draining = asyncio.create_task(agent.drained())
        await eventually(lambda: agent.rig.groups == ["stopped"])

        assert await agent.rig.write_perms() == [6]
        agent.rig.hold_leave.set()
        assert (await draining)[:2] == [("WIPE_WRITE_PERM", "SKIPPED"), ("WAIT_FOR_PRODUCERS", "SKIPPED")]


async def test_a_caller_that_disconnects_aborts_the_drain_and_writes_are_restored(clock: ManualClock) -> None:
    async with served(clock, name_servers=2) as agent:
        agent.rig.rate = 1.0
        call = agent.stub.Drain(wire.DrainRequest())
        while step_and_state(await next_progress(call)) != ("WAIT_FOR_PRODUCERS", "RUNNING"):
            pass
        assert await agent.rig.write_perms() == [4, 4]

        call.cancel()
        await eventually(lambda: agent.drainer.state == "")

        assert await agent.rig.write_perms() == [6, 6]
        assert agent.rig.groups == []


async def test_an_abort_while_groups_stop_serves_them_again(clock: ManualClock) -> None:
    async with served(clock) as agent:
        agent.rig.hold_groups = asyncio.Event()
        call = agent.stub.Drain(wire.DrainRequest(quiet=Duration(seconds=0)))
        while step_and_state(await next_progress(call)) != ("STOP_GROUPS", "RUNNING"):
            pass
        await eventually(lambda: agent.rig.groups == ["stopped"])

        call.cancel()
        await eventually(lambda: agent.drainer.state == "")

        assert agent.rig.groups == ["stopped", "served"]
        assert await agent.rig.write_perms() == [6]


async def test_an_abort_gives_back_no_permission_that_an_operator_had_wiped_before(clock: ManualClock) -> None:
    async with served(clock) as agent:
        wipe = SetWritePermRequest(cluster="c1", broker_name="a", writable=False, by="bob")
        await AdminServiceStub(agent.rig.channels[0]).SetWritePerm(wipe)
        agent.rig.rate = 1.0
        call = agent.stub.Drain(wire.DrainRequest())
        while step_and_state(await next_progress(call)) != ("WAIT_FOR_PRODUCERS", "RUNNING"):
            pass

        call.cancel()
        await eventually(lambda: agent.drainer.state == "")

        assert await agent.rig.write_perms() == [4]


async def test_a_caller_that_disconnects_during_the_last_step_aborts_nothing(clock: ManualClock) -> None:
    async with served(clock) as agent:
        agent.rig.hold_leave = asyncio.Event()
        call = agent.stub.Drain(wire.DrainRequest(quiet=Duration(seconds=0)))
        while step_and_state(await next_progress(call)) != ("UNREGISTER", "RUNNING"):
            pass
        call.cancel()
        agent.rig.hold_leave.set()
        await eventually(lambda: agent.drainer.state == "drained")

        assert await agent.rig.write_perms() == [None]


async def test_the_stop_of_the_agent_undoes_a_drain_that_has_not_come_to_its_end(clock: ManualClock) -> None:
    async with served(clock) as agent:
        agent.rig.rate = 1.0
        call = agent.stub.Drain(wire.DrainRequest())
        while step_and_state(await next_progress(call)) != ("WAIT_FOR_PRODUCERS", "RUNNING"):
            pass

        await agent.drainer.close(seconds=PATIENCE_SECONDS)

        assert await agent.rig.write_perms() == [6]
        left = [step_and_state(progress) for progress in await left_over(call)]
        assert left[-1] == ("UNDO", "DONE")


async def test_a_drain_that_no_name_server_accepts_changes_nothing_and_reports_it(clock: ManualClock) -> None:
    async with served(clock, name_servers=0) as agent:
        agent.rig.more_name_servers = [f"127.0.0.1:{free_port()}"]
        call = agent.stub.Drain(wire.DrainRequest())
        progress = await left_over(call)

    assert await call.code() is grpc.StatusCode.UNAVAILABLE
    assert [step_and_state(each) for each in progress if not runs(each)] == [
        ("WIPE_WRITE_PERM", "FAILED"),
        ("UNDO", "FAILED"),
    ]
    assert not progress[1].name_servers[0].done
    assert progress[1].name_servers[0].answer.startswith("UNAVAILABLE")
    assert agent.rig.groups == []


async def test_one_name_server_that_is_down_is_named_and_does_not_block_the_drain(clock: ManualClock) -> None:
    async with served(clock) as agent:
        away = f"127.0.0.1:{free_port()}"
        agent.rig.more_name_servers = [away]
        call = agent.stub.Drain(wire.DrainRequest(quiet=Duration(seconds=0)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            progress = [each async for each in call]

    assert step_and_state(progress[1]) == ("WIPE_WRITE_PERM", "FAILED")
    assert away in progress[1].detail
    assert step_and_state(progress[-1]) == ("UNREGISTER", "DONE")


async def test_a_second_drain_is_refused_while_the_first_runs_and_repeats_the_result_of_a_finished_one(
    clock: ManualClock,
) -> None:
    async with served(clock) as agent:
        agent.rig.rate = 1.0
        first = agent.stub.Drain(wire.DrainRequest(by="alice"))
        while step_and_state(await next_progress(first)) != ("WAIT_FOR_PRODUCERS", "RUNNING"):
            pass
        refusal = await refusal_of(agent.drained(by="bob"))
        assert refusal.status is grpc.StatusCode.FAILED_PRECONDITION
        assert "alice" in refusal.message
        assert agent.drainer.state == "draining"

        agent.rig.rate = 0.0
        await clock.advance(5.0)
        assert step_and_state((await left_over(first))[-1]) == ("UNREGISTER", "DONE")
        assert (await agent.drained())[-1] == ("UNREGISTER", "DONE")
        assert agent.rig.groups == ["stopped"]


async def test_when_stopping_groups_fails_the_drain_is_undone_and_reported_as_an_internal_error(
    clock: ManualClock,
) -> None:
    def fail() -> None:
        raise RuntimeError("no such luck")

    async with served(clock) as agent:
        agent.rig.on_stop_groups = fail
        refusal = await refusal_of(agent.drained(quiet=Duration(seconds=0)))

        assert refusal.status is grpc.StatusCode.INTERNAL
        assert "no such luck" not in refusal.message
        assert await agent.rig.write_perms() == [6]


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (wire.DrainRequest(quiet=Duration(seconds=-1)), ["quiet"]),
        (wire.DrainRequest(quiet=Duration(seconds=301)), ["quiet"]),
        (wire.DrainRequest(producers_timeout=Duration(seconds=3_601)), ["producers_timeout"]),
        (wire.DrainRequest(consumers_timeout=Duration(seconds=86_401)), ["consumers_timeout"]),
        (wire.DrainRequest(by="x" * 129), ["by"]),
        (wire.DrainRequest(by="a\nb", quiet=Duration(seconds=999)), ["quiet", "by"]),
    ],
)
async def test_bounds_that_cannot_be_are_refused_by_name(
    clock: ManualClock, request_: wire.DrainRequest, fields: list[str]
) -> None:
    async with served(clock) as agent:
        refusal = await refusal_of(left_over(agent.stub.Drain(request_)))

        assert refusal.status is grpc.StatusCode.INVALID_ARGUMENT
        assert refusal.fields == fields
        assert await agent.rig.write_perms() == [6]


async def test_the_agent_reports_its_identity_and_its_registration_states(clock: ManualClock) -> None:
    async with served(clock) as agent:
        agent.rig.own = replace(
            OWN,
            replica_id=2,
            verdict=replace(
                OWN.verdict,
                status=ProbeStatus.FAILING,
                master_epoch=4,
                warnings=("does not persist",),
                evidence=Evidence.STRONG,
                ever_passed=True,
            ),
        )
        await clock.advance(61.0)

        info = await agent.stub.GetAgentInfo(wire.GetAgentInfoRequest())

    assert (info.version, info.role, info.incarnation) == ("1.0", "master", "run-1")
    assert (info.identity.broker_id, info.identity.addr) == (0, ADDR)
    assert info.data_version.state_version == 7
    assert list(info.warnings) == ["does not persist"]
    assert info.health == broker_pb2.BrokerHealth(
        status=broker_pb2.PROBE_STATUS_FAILING,
        detail="answers; does not persist",
        evidence=broker_pb2.PROBE_EVIDENCE_STRONG,
        ever_passed=True,
    )
    assert [(each.addr, each.standing) for each in info.name_servers] == [(agent.rig.addrs()[0], "registered")]
    assert info.uptime.seconds == 61
    assert info.drain == ""


async def test_the_agent_names_no_position_while_the_broker_has_not_reported_its_role(clock: ManualClock) -> None:
    async with served(clock) as agent:
        agent.rig.own = replace(OWN, replica_id=2, verdict=Verdict())

        info = await agent.stub.GetAgentInfo(wire.GetAgentInfoRequest())

    assert not info.HasField("identity")
    assert info.role == "unknown"


async def next_progress(call: Call) -> wire.DrainResponse:
    async with asyncio.timeout(PATIENCE_SECONDS):
        progress = await call.read()
    assert isinstance(progress, wire.DrainResponse), "the drain ended"
    return progress


async def left_over(call: Call) -> list[wire.DrainResponse]:
    """Read the stream to its end; callers check the final status where it matters."""
    progress: list[wire.DrainResponse] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        try:
            while (each := await call.read()) is not grpc.aio.EOF:
                assert isinstance(each, wire.DrainResponse)
                progress.append(each)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
    return progress


async def test_a_loop_whose_broker_is_drained_unregisters_with_that_reason(tmp_path: Path) -> None:
    async with running_name_server(history=tmp_path) as app:
        own = Observable(OWN)
        loop = RegistrationLoop(
            app.addr,
            profile=BrokerProfile(cluster="c1", broker_name="a", addr=ADDR),
            own=own,
            opener=ChannelOpener(),
            clock=SystemClock(),
            metrics=AgentMetrics(version="test"),
            timeouts=Timeouts(),
        )
        running = asyncio.create_task(loop.run())
        await eventually(lambda: loop.report.state is RegistrationState.REGISTERED)

        own.set(replace(own.value, leave=Leave.DRAIN))

        async with asyncio.timeout(PATIENCE_SECONDS):
            await running
        await eventually(lambda: any(row["event"] == "UNREGISTERED" for row in rows_in(tmp_path)))
    (left,) = [row for row in rows_in(tmp_path) if row["event"] == "UNREGISTERED"]
    assert left["reason"] == "DRAIN"


QUEUES = [QueueKey("orders", 0), QueueKey("orders", 1)]


class ScriptedEnds:
    """Queue ends that the test sets; None: the broker does not respond."""

    def __init__(self) -> None:
        self.offsets: dict[QueueKey, int] | None = dict.fromkeys(QUEUES, 0)
        self.asked: list[Collection[QueueKey]] = []

    async def ends(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, QueueEnd]:
        raise NotImplementedError

    async def max_offsets(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, int]:
        self.asked.append(queues)
        if self.offsets is None:
            raise QueueEndsError("not now")
        return self.offsets


async def test_the_put_rate_is_what_was_written_between_two_polls(clock: ManualClock) -> None:
    ends = ScriptedEnds()
    topics = TopicSet.from_content([TopicConfig("orders", 4, 2, 6)], state_version=0)
    rate = PutRate(ends, topics=lambda: topics, clock=clock)

    assert await rate.measure() is None
    ends.offsets = {QUEUES[0]: 6, QUEUES[1]: 4}
    await clock.advance(2.0)
    assert await rate.measure() == 5.0
    await clock.advance(1.0)
    assert await rate.measure() == 0.0
    assert [list(asked) for asked in ends.asked] == [QUEUES] * 3


async def test_a_queue_that_appears_or_starts_over_adds_nothing_to_the_put_rate(clock: ManualClock) -> None:
    ends = ScriptedEnds()
    rate = PutRate(ends, topics=lambda: OWN.topics, clock=clock)
    ends.offsets = {QUEUES[0]: 100}
    await rate.measure()
    await clock.advance(1.0)
    ends.offsets = {QUEUES[0]: 3, QUEUES[1]: 1_000}

    assert await rate.measure() == 0.0


async def test_the_put_rate_is_unknown_where_the_broker_does_not_report_its_queue_ends(clock: ManualClock) -> None:
    ends = ScriptedEnds()
    rate = PutRate(ends, topics=lambda: OWN.topics, clock=clock)
    await rate.measure()
    await clock.advance(1.0)
    ends.offsets = None
    assert await rate.measure() is None
    ends.offsets = {}
    assert await rate.measure() is None


async def test_a_put_rate_that_never_comes_is_not_waited_for(clock: ManualClock) -> None:
    async with served(clock) as agent:
        agent.rig.hold_rate = asyncio.Event()
        draining = asyncio.create_task(agent.drained(producers_timeout=Duration(seconds=5)))
        await eventually(lambda: bool(clock._sleepers))
        await clock.advance(20.0)

        assert ("WAIT_FOR_PRODUCERS", "TIMED_OUT") in await draining
