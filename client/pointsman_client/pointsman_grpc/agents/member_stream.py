"""One client's KeepMembership stream to one agent, reopened whenever it breaks."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

import grpc
import grpc.aio

from pointsman.backoff import FullJitterBackoff
from pointsman.clock import Clock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.wire_time import seconds_of
from pointsman_client.aio import Wakeup, deadline_in, start_task
from pointsman_client.core.consumer_reading import ConsumerReading
from pointsman_client.errors import AgentFailedError, ClientClosedError, PointsmanError, RequestRejectedError
from pointsman_client.pointsman_grpc.agents.sent_readings import SentReadings
from pointsman_client.pointsman_grpc.links import AgentLinks

HEARTBEAT_INTERVAL_SECONDS = 30.0
"""RocketMQ's ``heartbeatBrokerInterval``."""
HEARTBEATS_PER_EXPIRY = 4
RESPONSE_TIMEOUT_SECONDS = 10.0
"""The stream is closed if a heartbeat has had no response for longer when the next one is due."""
MAX_BACKOFF_SECONDS = 10.0
"""Less than the agent's warm-up of 30 s: members rejoin before clients use its member lists."""
RETRY_SECONDS = 30.0
"""Retry interval at an agent that rejects this client, or where another process uses its client id."""
CALL_SECONDS = 1.0

logger = logging.getLogger(__name__)

_Stream: TypeAlias = "grpc.aio.StreamStreamCall[wire.KeepMembershipRequest, wire.KeepMembershipResponse]"


class MemberState(StrEnum):
    """State of a client's membership at one agent."""

    JOINING = "joining"
    MEMBER = "member"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    """The agent rejected the client; retried every 30 s."""
    TAKEN_OVER = "taken over"
    """Another process is connected with this client id. This one sends no heartbeats, and rejoins when that process
    has disconnected. If both took the id back in turn, the queues would move to and fro."""


class MemberStream:
    """Membership of a client at the agent ``addr``, maintained while :meth:`run` runs.

    ``reading`` returns how the client reads the queues of this agent's broker; None: it reads none yet.
    ``on_change`` is called when :attr:`state`, :attr:`is_conflicting` or :attr:`own_difference` changes. ``on_broken``
    is called when an established stream breaks, because the agent may have restarted. ``on_reset`` is called when
    offsets of the group were reset there.
    """

    def __init__(
        self,
        links: AgentLinks,
        addr: str,
        *,
        group: str,
        build_heartbeat: Callable[[], wire.KeepMembershipRequest],
        reading: Callable[[], ConsumerReading | None],
        on_change: Callable[[], None],
        on_broken: Callable[[str], None],
        on_reset: Callable[[str], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.addr = addr
        self.state = MemberState.JOINING
        self.error: PointsmanError | None = None
        """Why the client is not a member."""
        self.is_conflicting = False
        self.own_difference: wire.OwnDifference | None = None
        """How the client differs from what holds at this agent; None: it does not."""
        self._links = links
        self._group = group
        self._build_heartbeat = build_heartbeat
        self._reading = reading
        self._on_change = on_change
        self._on_broken = on_broken
        self._on_reset = on_reset
        self._clock = clock
        self._rng = rng
        self._backoff = FullJitterBackoff(rng.uniform, cap=MAX_BACKOFF_SECONDS)
        self._interval = HEARTBEAT_INTERVAL_SECONDS
        self._unacknowledged_since: float | None = None
        self._wakeup = Wakeup(clock)

    def heartbeat_now(self) -> None:
        """Send the next heartbeat immediately."""
        self._wakeup.wake()

    async def run(self) -> None:
        """Join, and rejoin after failures, until cancelled."""
        while True:
            error = await self._until_broken()
            was_member = self.state is MemberState.MEMBER
            if error is None:
                self._set_state(MemberState.TAKEN_OVER)
                await self._until_released()
                self._set_state(MemberState.JOINING)
            elif isinstance(error, RequestRejectedError):
                self._set_state(MemberState.REFUSED, error)
                await self._clock.sleep(RETRY_SECONDS)
            else:
                self._set_state(MemberState.UNREACHABLE, error)
                if was_member:
                    self._on_broken(self.addr)
                # An agent keeps a disconnected member for two seconds, so the first wait is short.
                await self._clock.sleep(self._backoff.next_wait())

    async def _until_broken(self) -> PointsmanError | None:
        """Run one stream. Return the error that ended it, or None if another process took over the client id."""
        try:
            link = self._links.to(self.addr)
            with link.errors():
                call = link.groups.KeepMembership()
                self._unacknowledged_since = None
                heartbeats = start_task(
                    self._send_heartbeats(call), name=f"pointsman-heartbeat-{self._group}-{self.addr}"
                )
                try:
                    while isinstance(response := await call.read(), wire.KeepMembershipResponse):
                        if response.status == wire.MEMBERSHIP_STATUS_TAKEN_OVER:
                            return None
                        self._apply(response)
                finally:
                    heartbeats.cancel()
                    call.cancel()
        except ClientClosedError:
            return AgentFailedError(self.addr, grpc.StatusCode.DEADLINE_EXCEEDED, "no response to a heartbeat")
        except PointsmanError as error:
            return error
        return AgentFailedError(self.addr, grpc.StatusCode.UNAVAILABLE, "the agent ended the stream")

    async def _send_heartbeats(self, call: _Stream) -> None:
        """Send heartbeats until the stream ends or a response is overdue, then cancel the call."""
        sent = SentReadings(self._group)
        try:
            while not self._is_overdue:
                if self._unacknowledged_since is None:
                    self._unacknowledged_since = self._clock.monotonic()
                heartbeat = self._build_heartbeat()
                if (reading := self._reading()) is not None:
                    heartbeat.readings.append(sent.report(reading))
                await call.write(heartbeat)
                await self._wakeup.wait(self._interval * self._rng.uniform(0.9, 1.0))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return
        finally:
            call.cancel()

    @property
    def _is_overdue(self) -> bool:
        since = self._unacknowledged_since
        return since is not None and self._clock.monotonic() - since > RESPONSE_TIMEOUT_SECONDS

    def _apply(self, response: wire.KeepMembershipResponse) -> None:
        self._unacknowledged_since = None
        self._backoff.reset()
        expiry = seconds_of(response.expiry)
        interval = (
            min(HEARTBEAT_INTERVAL_SECONDS, expiry / HEARTBEATS_PER_EXPIRY)
            if expiry > 0
            else HEARTBEAT_INTERVAL_SECONDS
        )
        if interval < self._interval:
            self._wakeup.wake()  # the current wait may be too long
        self._interval = interval
        is_conflicting = self._group in response.conflicting_groups
        own = next((each for each in response.own_differences if each.group == self._group), None)
        news = is_conflicting != self.is_conflicting or own != self.own_difference
        if self.state is not MemberState.MEMBER or news:
            self.is_conflicting, self.own_difference = is_conflicting, own
            self._set_state(MemberState.MEMBER)
        if self._group in response.reset_groups:
            self._on_reset(self.addr)

    async def _until_released(self) -> None:
        """Wait until no other process is connected with this client id."""
        while True:
            await self._clock.sleep(RETRY_SECONDS)
            if not await self._is_held():
                return

    async def _is_held(self) -> bool:
        link = self._links.to(self.addr)
        request = wire.GetGroupRequest(group=self._group)
        client_id = self._build_heartbeat().client_id
        try:
            deadline = deadline_in(CALL_SECONDS)
            response = await link.call(link.groups.GetGroup, request, deadline=deadline)
        except RequestRejectedError as refusal:
            return refusal.status is not grpc.StatusCode.NOT_FOUND
        except PointsmanError:
            return True  # unknown
        return any(member.client_id == client_id and member.is_connected for member in response.members)

    def _set_state(self, state: MemberState, error: PointsmanError | None = None) -> None:
        """Change the state and log the change."""
        before, self.state, self.error = self.state, state, error
        if state is not MemberState.MEMBER:
            self.is_conflicting, self.own_difference = False, None
        if before is not state:
            level = logging.WARNING if state is MemberState.REFUSED else logging.INFO
            if before is MemberState.JOINING and state is MemberState.MEMBER:
                level = logging.DEBUG
            why = f": {error}" if error is not None else ""
            logger.log(
                level, "membership of group %s at agent %s is now %s%s", self._group, self.addr, state.value, why
            )
        self._on_change()
