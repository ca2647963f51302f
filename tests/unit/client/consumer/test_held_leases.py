"""A renewal and an acknowledgement of one lease: the broker finishes a message by its newest receipt alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client.consumer.held_leases import HeldLeases
from pointsman_client.core.lease import Lease, LeasedMessage
from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.errors import BrokerTimeoutError
from pointsman_client.metrics_hook import MetricsHook
from tests.kit.client.memory_group import queue_of
from tests.kit.waiting import eventually

QUEUE = queue_of(0)
LEASED = ReceivedMessage(Message("orders", b"x"), QUEUE, 7, "id", None)
SECONDS = 10.0


class Broker:
    """Responds when :attr:`may_respond` is set; a change gives a lease a new receipt when its request arrives."""

    notices_late_acknowledgements = True

    def __init__(self) -> None:
        self.receipt = "0"
        self.acknowledged: list[str] = []
        self.changes = 0
        self.may_respond = asyncio.Event()
        self.may_respond.set()
        self.fault: Exception | None = None

    async def change_invisible(self, _: str, leases: Sequence[Lease], **__: Any) -> tuple[Lease, ...]:
        self.changes += 1
        self.receipt = str(int(leases[0].receipt) + 1)
        changed = tuple(lease._replace(receipt=self.receipt) for lease in leases)
        await self._respond()
        return changed

    async def acknowledge(self, _: str, leases: Sequence[Lease], **__: Any) -> tuple[Lease, ...]:
        self.acknowledged += [lease.receipt for lease in leases]
        await self._respond()
        return ()

    async def _respond(self) -> None:
        await self.may_respond.wait()
        if self.fault is not None:
            raise self.fault


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def held(broker: Broker, clock: ManualClock) -> HeldLeases:
    leases: Any = broker
    made = HeldLeases(
        leases,
        master_of=lambda _: "a:1",
        group="g",
        timeout_seconds=3.0,
        max_renew_seconds=600.0,
        clock=clock,
        hook=MetricsHook(),
    )
    made.add(LeasedMessage(LEASED, Lease(QUEUE, 7, "0")), invisible_seconds=SECONDS, since=clock.monotonic())
    return made


@pytest.mark.parametrize("is_lost", [False, True])
async def test_an_acknowledgement_waits_for_the_renewal_in_flight(
    broker: Broker, held: HeldLeases, clock: ManualClock, is_lost: bool
) -> None:
    await clock.advance(SECONDS / 2)
    broker.may_respond.clear()
    renewing = asyncio.create_task(held.renew())
    await eventually(lambda: broker.changes == 1)
    finishing = asyncio.create_task(held.acknowledge([LEASED]))
    await asyncio.sleep(0.01)  # without the rule, it has arrived by then
    assert broker.acknowledged == []
    broker.fault = BrokerTimeoutError("a:1", "no response within 3 s") if is_lost else None
    broker.may_respond.set()
    await renewing
    broker.fault = None
    await finishing
    # After a lost response the newest receipt is not known: the message may be delivered again.
    assert broker.acknowledged == ["0" if is_lost else broker.receipt]
    assert not held.is_valid(LEASED)


async def test_a_lease_is_not_renewed_while_its_acknowledgement_is_in_flight(
    broker: Broker, held: HeldLeases, clock: ManualClock
) -> None:
    await clock.advance(SECONDS / 2)
    broker.may_respond.clear()
    finishing = asyncio.create_task(held.acknowledge([LEASED]))
    await eventually(lambda: broker.acknowledged)
    await held.renew()
    assert broker.changes == 0
    broker.fault = BrokerTimeoutError("a:1", "no response within 3 s")
    broker.may_respond.set()
    with pytest.raises(BrokerTimeoutError):
        await finishing
    broker.fault = None
    await held.renew()
    assert broker.changes == 1, "it was not acknowledged, so it is renewed again"
