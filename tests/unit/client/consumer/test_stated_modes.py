"""Whether brokers have a group lease the messages of its topics."""

from __future__ import annotations

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client.consumer.stated_modes import StatedModes
from pointsman_client.core.lease import ConsumeMode
from pointsman_client.errors import GroupModeError


class Broker:
    def __init__(self) -> None:
        self.modes: dict[tuple[str, str], ConsumeMode | None] = {}
        self.asked = 0

    async def consume_mode(
        self, addr: str, topic: str, *, group: str, client_id: str, timeout_seconds: float
    ) -> ConsumeMode | None:
        assert (group, client_id, timeout_seconds) == ("billing", "x@1", 5.0)
        self.asked += 1
        return self.modes.get((addr, topic))


async def test_a_group_that_pulls_a_topic_is_refused_with_the_command_that_changes_it(clock: ManualClock) -> None:
    broker = Broker()
    modes = StatedModes(broker, group="billing", client_id="x@1", timeout_seconds=5.0, clock=clock)
    broker.modes = {("A:1", "orders"): ConsumeMode.PULL, ("A:1", "refunds"): ConsumeMode.POP}
    with pytest.raises(GroupModeError, match=r"mqadmin setConsumeMode -b A:1 -t orders -g billing -m POP$"):
        await modes.check("A:1", "orders")
    await modes.check("A:1", "refunds")
    broker.modes["A:1", "orders"] = ConsumeMode.POP
    await modes.check("A:1", "orders")


async def test_a_broker_is_asked_again_after_some_time_and_while_it_does_not_know_the_topic(clock: ManualClock) -> None:
    broker = Broker()
    modes = StatedModes(broker, group="billing", client_id="x@1", timeout_seconds=5.0, clock=clock)
    with pytest.raises(GroupModeError, match=r"topic orders: broker A:1 states no mode for it yet"):
        await modes.check("A:1", "orders")
    broker.modes["A:1", "orders"] = ConsumeMode.POP
    await modes.check("A:1", "orders")
    await modes.check("A:1", "orders")
    assert broker.asked == 2
    broker.modes["A:1", "orders"] = ConsumeMode.PULL
    await clock.advance(19.9)
    await modes.check("A:1", "orders")
    await clock.advance(0.1)
    with pytest.raises(GroupModeError):
        await modes.check("A:1", "orders")
