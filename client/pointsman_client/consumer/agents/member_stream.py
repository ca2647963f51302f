"""One client's KeepMembership stream at one agent, opened again whenever it breaks."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

import grpc
import grpc.aio

from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.backoff import FullJitterBackoff
from pointsman.wire.clock import Clock
from pointsman.wire.wire_time import seconds_of
from pointsman_client.aio import Wakeup, start_task
from pointsman_client.errors import AgentFailedError, ClientClosedError, PointsmanError, RequestRejectedError
from pointsman_client.rpc.links import AgentLinks

BEAT_SECONDS = 30.0
"""RocketMQ's ``heartbeatBrokerInterval``."""
BEATS_AN_EXPIRY = 4
ANSWER_SECONDS = 10.0
"""A beat that is unanswered for longer when the next one is due was sent into the void."""
LONGEST_BACKOFF_SECONDS = 10.0
"""The agent's warm-up is 30 s: whoever was a member is back before its lists are relied on."""
AGAIN_SECONDS = 30.0
"""Between looks at an agent that refuses this client, or where another one holds its id."""
CALL_SECONDS = 1.0

logger = logging.getLogger(__name__)

_Stream: TypeAlias = "grpc.aio.StreamStreamCall[wire.KeepMembershipRequest, wire.KeepMembershipResponse]"


class MemberState(StrEnum):
    """How a client stands with one agent."""

    JOINING = "joining"
    MEMBER = "member"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    """The agent says no; asked again each half minute."""
    TAKEN_OVER = "taken over"
    """Another process holds the client id there. This one says nothing, and joins again once that process is gone: two
    that took the id from each other would move the queues to and fro."""


class MemberStream:
    """Keeps a client a member at ``addr`` while :meth:`run` runs. ``beat`` builds what it says of itself.

    ``on_news`` is called when :attr:`state` or :attr:`is_conflicting` changed, ``on_broken`` when a stream that stood
    broke: the agent may have been started anew.
    """

    def __init__(
        self,
        links: AgentLinks,
        addr: str,
        *,
        group: str,
        beat: Callable[[], wire.KeepMembershipRequest],
        on_news: Callable[[], None],
        on_broken: Callable[[str], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.addr = addr
        self.state = MemberState.JOINING
        self.error: PointsmanError | None = None
        """Why it is no member."""
        self.is_conflicting = False
        self._links = links
        self._group = group
        self._build = beat
        self._on_news = on_news
        self._on_broken = on_broken
        self._clock = clock
        self._rng = rng
        self._backoff = FullJitterBackoff(rng.uniform, cap=LONGEST_BACKOFF_SECONDS)
        self._interval = BEAT_SECONDS
        self._unanswered_since: float | None = None
        self._wakeup = Wakeup(clock)

    def beat_now(self) -> None:
        """Let the next beat be due."""
        self._wakeup.wake()

    async def run(self) -> None:
        """Join, and join again, until cancelled."""
        while True:
            error = await self._until_broken()
            was_member = self.state is MemberState.MEMBER
            if error is None:
                self._stand(MemberState.TAKEN_OVER)
                await self._until_let_go()
                self._stand(MemberState.JOINING)
            elif isinstance(error, RequestRejectedError):
                self._stand(MemberState.REFUSED, error)
                await self._clock.sleep(AGAIN_SECONDS)
            else:
                self._stand(MemberState.UNREACHABLE, error)
                if was_member:
                    self._on_broken(self.addr)
                # An agent gives who breaks off a grace of two seconds: the first wait is short.
                await self._clock.sleep(self._backoff.next_wait())

    async def _until_broken(self) -> PointsmanError | None:
        """Speak over one stream; return what ended it, None when another process took the client id over."""
        try:
            link = self._links.to(self.addr)
            with link.errors():
                call = link.groups.KeepMembership()
                self._unanswered_since = None
                beating = start_task(self._beat(call), name=f"pointsman-beat-{self._group}-{self.addr}")
                try:
                    while isinstance(answer := await call.read(), wire.KeepMembershipResponse):
                        if answer.status == wire.MEMBERSHIP_STATUS_TAKEN_OVER:
                            return None
                        self._take(answer)
                finally:
                    beating.cancel()
                    call.cancel()
        except ClientClosedError:
            return AgentFailedError(self.addr, grpc.StatusCode.DEADLINE_EXCEEDED, "a beat was not answered")
        except PointsmanError as error:
            return error
        return AgentFailedError(self.addr, grpc.StatusCode.UNAVAILABLE, "the agent ended the stream")

    async def _beat(self, call: _Stream) -> None:
        """Beat while the stream stands and beats are answered; its end ends the reading, which tells why."""
        try:
            while not self._is_unanswered:
                if self._unanswered_since is None:
                    self._unanswered_since = self._clock.monotonic()
                await call.write(self._build())
                await self._wakeup.wait(self._interval * self._rng.uniform(0.9, 1.0))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return
        finally:
            call.cancel()

    @property
    def _is_unanswered(self) -> bool:
        since = self._unanswered_since
        return since is not None and self._clock.monotonic() - since > ANSWER_SECONDS

    def _take(self, answer: wire.KeepMembershipResponse) -> None:
        self._unanswered_since = None
        self._backoff.reset()
        expiry = seconds_of(answer.expiry)
        interval = min(BEAT_SECONDS, expiry / BEATS_AN_EXPIRY) if expiry > 0 else BEAT_SECONDS
        if interval < self._interval:
            self._wakeup.wake()  # the wait that is on may be too long
        self._interval = interval
        is_conflicting = self._group in answer.conflicting_groups
        if self.state is not MemberState.MEMBER or is_conflicting != self.is_conflicting:
            self.is_conflicting = is_conflicting
            self._stand(MemberState.MEMBER)

    async def _until_let_go(self) -> None:
        """Wait until no other process is connected under this client id. Nobody is fought for it."""
        while True:
            await self._clock.sleep(AGAIN_SECONDS)
            if not await self._is_held():
                return

    async def _is_held(self) -> bool:
        link = self._links.to(self.addr)
        request = wire.GetGroupRequest(group=self._group)
        client_id = self._build().client_id
        try:
            deadline = asyncio.get_running_loop().time() + CALL_SECONDS
            answer = await link.call(link.groups.GetGroup, request, deadline=deadline)
        except RequestRejectedError as refusal:
            return refusal.status is not grpc.StatusCode.NOT_FOUND
        except PointsmanError:
            return True  # nobody says
        return any(member.client_id == client_id and member.is_connected for member in answer.members)

    def _stand(self, state: MemberState, error: PointsmanError | None = None) -> None:
        """Come to stand so; said once."""
        before, self.state, self.error = self.state, state, error
        if state is not MemberState.MEMBER:
            self.is_conflicting = False
        if before is not state:
            level = logging.WARNING if state is MemberState.REFUSED else logging.INFO
            if before is MemberState.JOINING and state is MemberState.MEMBER:
                level = logging.DEBUG
            why = f": {error}" if error is not None else ""
            logger.log(level, "group %s at agent %s: %s%s", self._group, self.addr, state.value, why)
        self._on_news()
