"""The fleet for users' tests: real programs on a clock that the test moves."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from pointsman_client import Message, NameServerClient
from pointsman_client.errors import InvalidOptionError, LeaseExpiredError, TopicNotFoundError
from pointsman_client.sync import Producer, SimpleConsumer
from pointsman_client.testing import FleetProcessError, TestFleet

USUAL_START_SECONDS = 1.2


@pytest.fixture(scope="module")
def shared_fleet() -> Iterator[TestFleet]:
    with TestFleet() as fleet:
        yield fleet


@pytest.fixture
def fleet(shared_fleet: TestFleet) -> Iterator[TestFleet]:
    """Each test has its own brokers and topics in it; where one expires its own cluster, else the guard protects it."""
    yield shared_fleet
    for broker in shared_fleet.brokers:
        with contextlib.suppress(ValueError):
            shared_fleet.kill_broker(broker.name)


async def brokers_of(topic: str, fleet: TestFleet) -> list[str]:
    async with NameServerClient(fleet.name_servers, clock=fleet.clock, watch_routes=False) as client:
        try:
            route = await client.fetch_route(topic)
        except TopicNotFoundError:
            return []
        return [replica.addr for data in route.broker_datas for replica in data.replicas]


def test_a_fleet_with_a_broker_starts_within_seconds() -> None:
    began_at = time.monotonic()
    with TestFleet() as fleet:
        fleet.add_broker("broker-a", topics={"orders": 4})
        assert time.monotonic() - began_at < 10 * USUAL_START_SECONDS
        assert asyncio.run(brokers_of("orders", fleet)) == ["broker-a.test:10911"]


def test_a_broker_stays_in_the_routes_while_time_passes_and_is_removed_when_it_is_killed(fleet: TestFleet) -> None:
    fleet.add_broker("stay-a", topics={"stay": 4}, cluster="stay")
    fleet.add_broker("stay-b", topics={"stay": 4}, cluster="stay")
    fleet.advance(200)
    assert len(asyncio.run(brokers_of("stay", fleet))) == 2
    fleet.kill_broker("stay-a")
    assert len(asyncio.run(brokers_of("stay", fleet))) == 2
    fleet.advance(130)
    assert asyncio.run(brokers_of("stay", fleet)) == ["stay-b.test:10911"]
    fleet.restart_broker("stay-a")
    assert len(asyncio.run(brokers_of("stay", fleet))) == 2


def test_a_replica_is_listed_with_its_master(fleet: TestFleet) -> None:
    fleet.add_broker("replica-a", topics={"replica": 4}, zone="z1")
    replica = fleet.add_broker("replica-a-1", replica_of="replica-a")
    assert (replica.broker_name, replica.broker_id, replica.topics) == ("replica-a", 1, {"replica": 4})
    assert asyncio.run(brokers_of("replica", fleet)) == ["replica-a.test:10911", "replica-a-1.test:10911"]


async def test_in_a_test_with_an_event_loop_time_is_awaited_and_its_tasks_see_it_pass(fleet: TestFleet) -> None:
    fleet.add_broker("time-a", topics={"time": 4})
    woken_at: list[float] = []

    async def tick() -> None:
        while True:
            await fleet.clock.sleep(30.4)
            woken_at.append(fleet.clock.monotonic())

    began_at, ticking = fleet.clock.monotonic(), asyncio.create_task(tick())
    await fleet.advance(95.0)
    ticking.cancel()
    assert [round(at - began_at, 1) for at in woken_at] == [30.4, 60.8, 91.2]
    assert fleet.clock.monotonic() == pytest.approx(began_at + 95.0)


def test_time_passes_until_a_condition_holds_and_no_longer_than_it_may(fleet: TestFleet) -> None:
    began_at = fleet.clock.monotonic()
    fleet.advance_until(lambda: fleet.clock.monotonic() >= began_at + 5)
    assert fleet.clock.monotonic() == pytest.approx(began_at + 5)
    with pytest.raises(TimeoutError, match="within 3 s of fleet time"):
        fleet.advance_until(lambda: False, at_most_seconds=3)


async def test_a_client_on_the_clock_of_the_fleet_is_notified_that_a_broker_expired(fleet: TestFleet) -> None:
    fleet.add_broker("hear-a", topics={"hear": 4}, cluster="hear")
    fleet.add_broker("hear-b", topics={"hear": 4}, cluster="hear")
    async with NameServerClient(fleet.name_servers, clock=fleet.clock) as client:
        assert len(await client.publish_queues("hear")) == 8
        fleet.kill_broker("hear-a")
        await fleet.advance(130)
        assert {queue.broker_name for queue in await client.publish_queues("hear")} == {"hear-b"}


def test_an_impossible_change_of_a_broker_is_reported(fleet: TestFleet) -> None:
    fleet.add_broker("twice-a", topics={"twice": 4})
    with pytest.raises(ValueError, match="was already added"):
        fleet.add_broker("twice-a", topics={"twice": 4})
    with pytest.raises(ValueError, match=r"is running: call kill_broker"):
        fleet.restart_broker("twice-a")
    fleet.kill_broker("twice-a")
    with pytest.raises(ValueError, match="is not running"):
        fleet.kill_broker("twice-a")


def test_a_broker_that_was_never_added_and_queues_that_no_agent_accepts_are_named(fleet: TestFleet) -> None:
    fleet.add_broker("known-a", topics={"known": 2})
    for use in (
        fleet.kill_broker,
        fleet.restart_broker,
        lambda name: fleet.add_broker("replica", replica_of=name),
    ):
        with pytest.raises(ValueError, match=r"unknown broker 'broker-z': .*added: .*known-a\)"):
            use("broker-z")
    for queues in (-1, 1.5, "4"):
        with pytest.raises(InvalidOptionError, match=rf"^topics\['bills'\] = {queues!r} "):
            fleet.add_broker("known-b", topics={"bills": cast("int", queues)})
    with pytest.raises(ValueError, match="must be >= 0, got -1"):
        fleet.advance(-1)


def test_a_program_that_crashes_is_an_error_with_its_last_output(fleet: TestFleet) -> None:
    before = (fleet.brokers, fleet.pids)
    with pytest.raises(FleetProcessError, match=r"(?s)dies-a exited; the end of its log:.*zone"):
        fleet.add_broker("dies-a", topics={"dies": 1}, zone="z" * 1_025)
    assert (fleet.brokers, fleet.pids) == before
    fleet.add_broker("dies-a", topics={"dies": 1})


def test_a_lease_of_a_message_ends_in_the_fleets_time(fleet: TestFleet) -> None:
    fleet.add_broker("lease-a", topics={"leased": 2}, cluster="lease")
    brokers: dict[str, Any] = {"transport": fleet.transport, "clock": fleet.clock}
    with (
        Producer(fleet.name_servers, **brokers) as producer,
        SimpleConsumer(fleet.name_servers, group="leasing", subscriptions="leased", **brokers) as consumer,
    ):
        producer.send(Message("leased", b"a"))
        (first,) = consumer.receive(1, 30.0)
        fleet.advance(31)
        (again,) = consumer.receive(1, 30.0)
        assert (first.reconsume_times, again.reconsume_times) == (0, 1)
        with pytest.raises(LeaseExpiredError):
            consumer.ack(first)
        consumer.ack(again)
