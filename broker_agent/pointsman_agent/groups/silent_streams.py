"""Membership streams without a heartbeat so far: they use memory and belong to no client.

Each has a deadline. When there are too many, the oldest one of the peer (a connection) with most of them is ended.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from pointsman.clock import Clock
from pointsman.wire.refusals import Refusal, TooSlow
from pointsman_agent.groups.membership_stream import MemberStream
from pointsman_agent.rpc.agent_refusals import LimitExceeded

FIRST_HEARTBEAT_SECONDS = 10.0
MAX_SILENT_STREAMS = 2_000


class SilentStreams:
    """The open ones. :meth:`run` must run while there may be any."""

    def __init__(self, *, clock: Clock, max_streams: int = MAX_SILENT_STREAMS) -> None:
        self._clock = clock
        self._max_streams = max_streams
        self._deadlines: dict[MemberStream, float] = {}
        """Oldest first."""
        self._counts: Counter[str] = Counter()
        self._has_streams = asyncio.Event()
        self.refused = 0

        """Streams that were ended because of the limit or the deadline."""

    def add(self, stream: MemberStream) -> None:
        """Add an opened stream; if there are too many, end one of the peer with most of them."""
        self._deadlines[stream] = self._clock.monotonic() + FIRST_HEARTBEAT_SECONDS
        self._counts[stream.peer] += 1
        self._has_streams.set()
        if len(self._deadlines) > self._max_streams:
            most = max(self._counts, key=self._counts.__getitem__)
            oldest = next(each for each in self._deadlines if each.peer == most)
            self._refuse(oldest, LimitExceeded("membership streams without a heartbeat", self._max_streams))

    def discard(self, stream: MemberStream) -> None:
        """Remove a stream that sent a heartbeat or ended."""
        if self._deadlines.pop(stream, None) is not None:
            self._counts[stream.peer] -= 1
            if not self._counts[stream.peer]:
                del self._counts[stream.peer]

    async def run(self) -> None:
        """End streams whose deadline has passed, until cancelled."""
        while True:
            await self._has_streams.wait()
            stream, ends_at = next(iter(self._deadlines.items()), (None, 0.0))
            now = self._clock.monotonic()
            if stream is None:
                self._has_streams.clear()
            elif now < ends_at:
                await self._clock.sleep(ends_at - now)
            else:
                self._refuse(stream, TooSlow(f"no heartbeat within {FIRST_HEARTBEAT_SECONDS:g} s"))

    def _refuse(self, stream: MemberStream, refusal: Refusal) -> None:
        self.discard(stream)
        self.refused += 1
        stream.refuse(refusal)
