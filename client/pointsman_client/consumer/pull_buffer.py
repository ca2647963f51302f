"""Messages that were pulled and wait to be asked for, of all queues in turn, and those that were handed out."""

from __future__ import annotations

from collections import deque

from pointsman.wire.clock import Clock
from pointsman_client.aio import Wakeup
from pointsman_client.consumer.held_queue import HeldQueue
from pointsman_client.core.message import ReceivedMessage

LOOK_SECONDS = 15.0


class PullBuffer:
    """What was handed out counts as finished when the application says so, or asks for more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ring: deque[HeldQueue] = deque()
        self._in_ring: set[HeldQueue] = set()
        self._handed_out: list[tuple[HeldQueue, ReceivedMessage]] = []
        self._wakeup = Wakeup(clock)
        self.is_closed = False

    def offer(self, held: HeldQueue) -> None:
        """Note that a queue may have something to hand out."""
        if held not in self._in_ring:
            self._in_ring.add(held)
            self._ring.append(held)
        self._wakeup.wake()

    def close(self) -> None:
        """End every wait."""
        self.is_closed = True
        self._wakeup.wake()

    def finish_handed_out(self) -> None:
        """Count everything that was handed out as finished."""
        handed_out, self._handed_out = self._handed_out, []
        for held, message in handed_out:
            held.finish(message)

    async def take(self, most: int, *, timeout_seconds: float | None) -> tuple[ReceivedMessage, ...]:
        """Hand out up to ``most`` messages, as soon as there is one; none after the time, or when closed."""
        ends_at = None if timeout_seconds is None else self._clock.monotonic() + timeout_seconds
        while not self.is_closed:
            messages = self._take_now(most)
            if messages:
                return messages
            left = LOOK_SECONDS if ends_at is None else ends_at - self._clock.monotonic()
            if left <= 0:
                break
            await self._wakeup.wait(min(left, LOOK_SECONDS))
        return ()

    def _take_now(self, most: int) -> tuple[ReceivedMessage, ...]:
        taken: list[ReceivedMessage] = []
        while self._ring and len(taken) < most:
            held = self._ring.popleft()
            messages = held.process_queue
            message = None if messages is None or messages.is_dropped or held.is_paused else messages.take()
            if message is None:
                self._in_ring.discard(held)
                continue
            self._ring.append(held)
            self._handed_out.append((held, message))
            taken.append(message)
        return tuple(taken)
