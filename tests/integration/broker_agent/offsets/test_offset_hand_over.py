"""Offsets that a slave's agent accepted without a master go to the master's agent, and are only dropped after that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from pointsman.clock import utc_millis
from pointsman.manual_clock import ManualClock
from pointsman.wire.channel_opener import ChannelOpener
from pointsman_agent.core.offsets import Offsets
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.replica_offsets import ReplicaOffsets
from pointsman_agent.offsets.file_store import FileStore
from pointsman_agent.offsets.flusher import Flusher, OffsetMetrics
from pointsman_agent.offsets.offset_hand_over import HandOver, HandOverMetrics
from tests.kit.agent.in_route import WholeAgent, whole_agents

Q0, Q1 = QueueKey("orders", 0), QueueKey("orders", 1)


class Slave:
    """A slave's agent: its offsets, their file and the hand-over."""

    def __init__(self, clock: ManualClock, folder: Path, *, broker: str = "broker-a") -> None:
        self.clock = clock
        self.path = folder / "pending.db"
        self.is_master = False
        self.master_agent = ""
        self.registry = CollectorRegistry()
        self.broker = broker
        self.start()

    def start(self) -> None:
        """Start as its process does: with what is on the disk."""
        self.stored, self.pending = Offsets(), Offsets()
        self.offsets = ReplicaOffsets(self.stored, self.pending, is_master=lambda: self.is_master)
        self.flusher = Flusher(
            self.pending,
            FileStore(self.path, clock=self.clock),
            interval=5.0,
            clock=self.clock,
            metrics=OffsetMetrics(CollectorRegistry()),
        )
        self.registry = CollectorRegistry()
        self.hand_over = HandOver(
            self.offsets,
            is_loaded=lambda: True,
            is_master=lambda: self.is_master,
            master_agent=lambda: self.master_agent,
            broker=("c1", self.broker),
            opener=ChannelOpener(),
            clock=self.clock,
            metrics=HandOverMetrics(self.registry),
        )

    async def restart(self) -> None:
        await self.flusher.finish(3.0)
        self.start()
        assert await self.flusher.refresh()

    def commit(self, offsets: dict[QueueKey, int], *, group: str = "g", reset: bool = False) -> None:
        self.offsets.commit(group, offsets, reset=reset, now=1)

    def handed_over(self, result: str) -> float | None:
        return self.registry.get_sample_value("pointsman_agent_offsets_handed_over_total", {"result": result})


@asynccontextmanager
async def master_agent(clock: ManualClock, name: str = "broker-a", broker_id: int = 0) -> AsyncIterator[WholeAgent]:
    async with whole_agents((name, broker_id), clock=clock, name_servers=[]) as (agent,):
        yield agent


@pytest.fixture
async def slave(clock: ManualClock, tmp_path: Path) -> AsyncIterator[Slave]:
    held = Slave(clock, tmp_path)
    await held.flusher.refresh()
    yield held
    await held.flusher.finish(3.0)


async def test_offsets_accepted_without_a_master_outlive_the_agent_and_reach_the_masters(
    slave: Slave, clock: ManualClock
) -> None:
    slave.commit({Q0: 500, Q1: 3})
    slave.offsets.begin("g", {"orders": 77}, [], now=100)
    await slave.restart()
    assert slave.offsets.get("g", [Q0, Q1]) == {Q0: 500, Q1: 3}
    await slave.hand_over.hand_over()
    assert len(slave.pending) == 2
    async with master_agent(clock) as master:
        master.offsets.commit("g", {Q0: 400, Q1: 5})
        slave.master_agent = master.addr
        await slave.hand_over.hand_over()
        assert master.offsets.get("g", [Q0, Q1]) == {Q0: 500, Q1: 5}
        assert master.offsets.begins("g", ["orders"]) == {"orders": 77}
    assert slave.pending.is_empty
    assert slave.handed_over("acknowledged") == 2
    await slave.restart()
    assert slave.pending.is_empty


async def test_a_reset_without_a_master_goes_back_at_the_master_too(slave: Slave, clock: ManualClock) -> None:
    slave.commit({Q0: 10}, reset=True)
    async with master_agent(clock) as master:
        master.offsets.commit("g", {Q0: 400})
        slave.master_agent = master.addr
        await slave.hand_over.hand_over()
        assert master.offsets.get("g", [Q0]) == {Q0: 10}


async def test_an_operators_reset_without_a_master_holds_at_the_master_against_what_it_has_and_gets_later(
    slave: Slave, clock: ManualClock
) -> None:
    slave.commit({Q0: 500, Q1: 500})
    epochs = slave.offsets.reset("g", {Q0: 10}, now=utc_millis(clock))
    slave.offsets.commit("g", {Q0: 12}, epochs=epochs, reset=False, now=1)
    await slave.flusher.flush()
    await slave.restart()
    async with master_agent(clock) as master:
        master.offsets.commit("g", {Q0: 700, Q1: 400})
        slave.master_agent = master.addr
        await slave.hand_over.hand_over()
        assert master.offsets.get("g", [Q0, Q1]) == {Q0: 12, Q1: 500}
        assert master.offsets.commit("g", {Q0: 701}, epochs={Q0: 0}) == {Q0: 12}
    assert slave.pending.is_empty


async def test_a_reset_at_the_master_holds_against_a_hand_over_from_before(slave: Slave, clock: ManualClock) -> None:
    slave.commit({Q0: 500})
    async with master_agent(clock) as master:
        master.offsets.commit("g", {Q0: 400})
        master.offsets.reset("g", {Q0: 10}, now=utc_millis(clock))
        slave.master_agent = master.addr
        await slave.hand_over.hand_over()
        assert master.offsets.get("g", [Q0]) == {Q0: 10}
    assert slave.pending.is_empty


async def test_a_master_that_cannot_be_reached_costs_nothing_and_is_logged_once(
    slave: Slave, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    slave.commit({Q0: 500})
    async with master_agent(clock) as master:
        slave.master_agent = master.addr
    for _ in range(3):
        await slave.hand_over.hand_over()
    assert slave.offsets.get("g", [Q0]) == {Q0: 500}
    assert caplog.text.count("pending offsets cannot be sent to the master") == 1


@pytest.mark.parametrize(("name", "broker_id"), [("broker-b", 0), ("broker-a", 1)])
async def test_the_agent_of_another_broker_at_that_address_is_given_nothing(
    slave: Slave, clock: ManualClock, name: str, broker_id: int
) -> None:
    slave.commit({Q0: 500})
    async with master_agent(clock, name, broker_id) as other:
        slave.master_agent = other.addr
        await slave.hand_over.hand_over()
        assert other.offsets.is_empty
        assert other.server.metrics.rpcs.labels("CommitOffsets", "OK").count == 0
    assert len(slave.pending) == 1


async def test_an_offset_beyond_the_masters_end_is_given_up_alone_and_logged(
    slave: Slave, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    queues = {QueueKey("orders", number): 7 for number in range(20)}
    slave.commit(queues)
    async with master_agent(clock) as master:
        master.ends.table = dict.fromkeys(queues, 7) | {Q1: 6}
        slave.master_agent = master.addr
        await slave.hand_over.hand_over()
        assert master.offsets.get("g", queues).keys() == queues.keys() - {Q1}
    assert slave.pending.is_empty
    assert (slave.handed_over("refused"), slave.handed_over("acknowledged")) == (1, 19)
    assert caplog.text.count("refused a pending offset") == 1


async def test_a_slave_that_is_promoted_adopts_the_offsets_it_accepted(slave: Slave) -> None:
    slave.commit({Q0: 500})
    slave.is_master = True
    await slave.hand_over.hand_over()
    assert slave.stored.get("g", [Q0]) == {Q0: 500}
    assert slave.pending.is_empty
    assert slave.handed_over("adopted") == 1
