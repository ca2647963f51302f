"""Which mode of consumption brokers state for the topics of a group."""

from __future__ import annotations

from pointsman.clock import Clock
from pointsman_client.core.lease import ConsumeMode
from pointsman_client.errors import GroupModeError
from pointsman_client.ports.leases import StatesConsumeMode

ASKED_EVERY_SECONDS = 20.0
"""Interval at which a broker is asked again, as RocketMQ's client does with each rebalance."""


class StatedModes:
    """Checks that brokers have a group consume its topics by POP: their other members pull otherwise."""

    def __init__(
        self, transport: StatesConsumeMode, *, group: str, client_id: str, timeout_seconds: float, clock: Clock
    ) -> None:
        self._transport = transport
        self._group = group
        self._client_id = client_id
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._valid_until: dict[tuple[str, str], float] = {}
        """By address and topic."""

    async def check(self, addr: str, topic: str) -> None:
        """Raise GroupModeError unless the broker states POP for a topic, and the error of a broker."""
        now = self._clock.monotonic()
        if self._valid_until.get((addr, topic), now) > now:
            return
        mode = await self._transport.consume_mode(
            addr, topic, group=self._group, client_id=self._client_id, timeout_seconds=self._timeout_seconds
        )
        if mode is None:
            raise GroupModeError(self._group, topic, f"broker {addr} states no mode for it yet")
        if mode is ConsumeMode.PULL:
            problem = (
                f"broker {addr} has the group pull it, as its Java members do; have it pop: "
                f"mqadmin setConsumeMode -b {addr} -t {topic} -g {self._group} -m POP"
            )
            raise GroupModeError(self._group, topic, problem)
        self._valid_until[addr, topic] = now + ASKED_EVERY_SECONDS
