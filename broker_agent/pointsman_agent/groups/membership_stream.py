"""One KeepMembership stream: heartbeats of one client, a response to each, and the end of the stream.

Heartbeats rarely change, so equal ones are neither decoded nor encoded again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Protocol

from pointsman.daemon.access.access import Caller, check_group
from pointsman.daemon.rpc.calling_peer import ENDING_SECONDS
from pointsman.daemon.rpc.handler_table import Ended, Write
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.refusals import FieldViolation, InvalidRequest, Refusal, shown
from pointsman_agent.core.group_membership import TAKEN_OVER, BeatAnswer, MembershipBeat, MembershipStatus
from pointsman_agent.core.member_readings import GroupReading
from pointsman_agent.groups import group_codec


class Membership(Protocol):
    """Receiver of a stream's events."""

    def enter(self, stream: MemberStream) -> int:
        """Number a stream with its first heartbeat: of two that claim one client, the later claim wins."""
        ...

    def take_beat(self, beat: MembershipBeat, *, stream: int, peer: str, caller: Caller | None) -> BeatAnswer:
        """Process one heartbeat. Raises LimitExceeded, and PermissionDenied for the client id of another identity."""
        ...

    def take_readings(self, readings: Sequence[GroupReading], beat: MembershipBeat, *, stream: int) -> None:
        """Record how the client of a heartbeat reads its queues."""
        ...

    def take_end(self, client_id: str, *, stream: int, by_us: bool) -> None:
        """Process the end of the stream."""
        ...

    def encode(self, answer: BeatAnswer) -> bytes:
        """Return the message of a response."""
        ...


class MemberStream:
    """An open stream."""

    def __init__(self, membership: Membership, write: Write, *, peer: str, caller: Caller | None = None) -> None:
        self.number = 0
        """0 until the first heartbeat."""
        self.peer = peer
        self._caller = caller
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a coroutine of grpc.aio runs in one
        self.task = task
        self._membership = membership
        self._write = write
        self._client_id = ""
        self._is_draining = False
        self._is_cut_off = False
        # If the stream ends while a heartbeat is processed, this agent ended it, not the client.
        self._is_at_work = False
        self._is_writing = False
        self._is_taken_over = False
        self._refusal: Refusal | None = None
        self._unsent: BeatAnswer | None = None
        """The latest notice, waiting until the stream can be written."""
        self._answered = TAKEN_OVER
        """The last response to a heartbeat."""
        self._reset_groups: set[str] = set()
        """Groups whose reset the client is to be notified of."""
        self._notice: asyncio.Task[None] | None = None

    def drain(self) -> None:
        """End it from this side, which does not remove its client."""
        self._is_draining = True
        # gRPC cannot send the reason while a response is being written: the stream ends after that then.
        if not self._is_writing:
            self.task.cancel()

    def cut_off(self) -> None:
        """End it without a reason, after :meth:`drain`, because its client does not read."""
        self._is_cut_off = True
        self.task.cancel()

    def refuse(self, refusal: Refusal) -> None:
        """End it with this reason, which does not remove its client."""
        self._refusal = refusal
        if not self._is_writing:
            self.task.cancel()

    def take_over(self, answer: BeatAnswer) -> None:
        """Send the client its new state after a later stream took groups from it.

        A stream that lost all of its groups is ignored from then on: it cannot hold a client again.
        """
        self._is_taken_over = self._is_taken_over or answer.status is MembershipStatus.TAKEN_OVER
        self._answered = answer
        self._note(answer)

    def notify_reset(self, group: str) -> None:
        """Notify the client that offsets of a group were reset."""
        if not self._is_taken_over:
            self._reset_groups.add(group)
            self._note(self._unsent or self._answered)

    def _note(self, answer: BeatAnswer) -> None:
        self._unsent = answer
        if not self._is_writing and (self._notice is None or self._notice.done()):
            self._notice = asyncio.create_task(self._write_notices())

    async def run(self, requests: AsyncIterator[bytes]) -> None:
        """Respond to heartbeats until the client disconnects, or until :meth:`drain`.

        Raises DecodeError, InvalidRequest, LimitExceeded, PermissionDenied, and Ended with the reason of a refusal.
        """
        try:
            await self._answer(requests)
        except asyncio.CancelledError:
            if self._is_cut_off:
                raise
            if self._refusal is not None:
                raise Ended(self._refusal) from None
            if not self._is_draining:
                raise
        finally:
            if self._notice is not None:
                await asyncio.wait({self._notice}, timeout=ENDING_SECONDS)
                self._notice.cancel()
                await asyncio.gather(self._notice, return_exceptions=True)
            if self._client_id:
                by_us = self._is_at_work or self._is_draining or self._refusal is not None
                self._membership.take_end(self._client_id, stream=self.number, by_us=by_us)

    async def _answer(self, requests: AsyncIterator[bytes]) -> None:
        last_request, last_answer, response = b"", TAKEN_OVER, b""
        last_beat_bytes = b""
        beat: MembershipBeat | None = None
        async for request in requests:
            self._is_at_work = True
            readings: Sequence[GroupReading] = ()
            if beat is None or request != last_request:
                message = wire.KeepMembershipRequest.FromString(request)
                last_request = request
                # Readings change with each heartbeat, what makes a member hardly ever.
                readings = group_codec.readings(message) if message.readings else ()
                message.ClearField("readings")
                beat_bytes = message.SerializeToString()
                if beat is None or beat_bytes != last_beat_bytes:
                    beat, last_beat_bytes = self._read(message), beat_bytes
            if self._is_taken_over:
                answer = TAKEN_OVER
            else:
                answer = self._membership.take_beat(beat, stream=self.number, peer=self.peer, caller=self._caller)
                if readings:
                    self._membership.take_readings(readings, beat, stream=self.number)
            if answer is not last_answer or not response:
                response, last_answer = self._membership.encode(answer), answer
                self._answered = answer
            self._is_at_work = False
            await self._send(response)

    async def _send(self, response: bytes) -> None:
        if self._notice is not None:
            await asyncio.wait({self._notice})
        self._is_writing = True
        await self._write(response)
        await self._write_notices()
        self._is_writing = False
        if self._is_draining or self._refusal is not None:
            raise asyncio.CancelledError

    async def _write_notices(self) -> None:
        while self._unsent is not None:
            answer, self._unsent = self._unsent, None
            groups, self._reset_groups = tuple(sorted(self._reset_groups)), set()
            await self._write(self._membership.encode(replace(answer, reset_groups=groups)))

    def _read(self, message: wire.KeepMembershipRequest) -> MembershipBeat:
        beat = group_codec.beat(message)
        for each in beat.groups:
            check_group(self._caller, each.group)
        if self._client_id and beat.client_id != self._client_id:
            problem = f"must stay {shown(self._client_id)} on one stream, not {shown(beat.client_id)}"
            raise InvalidRequest([FieldViolation("client_id", problem)])
        if not self._client_id:
            self._client_id = beat.client_id
            self.number = self._membership.enter(self)
        return beat
