"""Which name server is asked, and who is next when it fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pointsman.wire.clock import Clock
from pointsman_client.errors import (
    AccessDeniedError,
    NameServerFailedError,
    NameServersUnavailableError,
    RequestRejectedError,
)

MIN_ATTEMPT_SECONDS = 0.05
"""What a server gets even if our own process overslept the deadline."""

ResultT = TypeVar("ResultT")


class NameServerChoice:
    """The name servers and the one in use: it stays until it fails, then the next in the list takes over. Pure.

    The list is the user's own for ever: no answer shortens it, so a client whose servers all went away finds those
    that come back.
    """

    def __init__(self, addrs: Sequence[str]) -> None:
        self._addrs = tuple(addrs)
        self._position = 0
        self._on_move: list[Callable[[], None]] = []

    @property
    def in_use(self) -> str:
        """The server that is asked first."""
        return self._addrs[self._position]

    def order(self) -> tuple[str, ...]:
        """All servers in the order in which one lookup tries them."""
        return self._addrs[self._position :] + self._addrs[: self._position]

    def move_on_from(self, addr: str) -> None:
        """Leave ``addr`` if it is in use; of many lookups that fail there together only the first one moves."""
        if addr == self.in_use and len(self._addrs) > 1:
            self._position = (self._position + 1) % len(self._addrs)
            for callback in self._on_move:
                callback()

    def on_move(self, callback: Callable[[], None]) -> None:
        """Call ``callback()`` whenever another server comes into use."""
        self._on_move.append(callback)


class Failover:
    """Asks the servers of a :class:`NameServerChoice` in turn, under one deadline."""

    def __init__(
        self, choice: NameServerChoice, clock: Clock, *, on_failure: Callable[[str], None] = lambda _: None
    ) -> None:
        """``on_failure(addr)`` is told of each server that gave no answer."""
        self._choice = choice
        self._clock = clock
        self._on_failure = on_failure

    async def call(self, attempt: Callable[[str, float], Awaitable[ResultT]], *, timeout_seconds: float) -> ResultT:
        """Return the first answer of ``attempt(addr, seconds)``; one round, each server once.

        A try gets an equal share of the time that is left, so one server that hangs leaves enough for the others, and
        one that fails at once leaves them its share. Any error but :class:`NameServerFailedError` is an answer and
        goes to the caller; :class:`AccessDeniedError` only when no other server answers, since each has its own grants.
        Raises :class:`NameServersUnavailableError` when no name server answered.
        """
        answers = await self.call_until(lambda _: True, attempt, timeout_seconds=timeout_seconds)
        return answers[0]

    async def call_until(
        self,
        is_sufficient: Callable[[Sequence[ResultT]], bool],
        attempt: Callable[[str, float], Awaitable[ResultT]],
        *,
        timeout_seconds: float,
    ) -> list[ResultT]:
        """Ask as :meth:`call` does, one server after another until their answers are enough; return them all.

        Once there is an answer, a server that refuses counts as one that is silent.
        """
        deadline = self._clock.monotonic() + timeout_seconds
        failures: list[NameServerFailedError] = []
        denials: list[AccessDeniedError] = []
        answers: list[ResultT] = []
        order = self._choice.order()
        for position, addr in enumerate(order):
            share = (deadline - self._clock.monotonic()) / (len(order) - position)
            try:
                answers.append(await attempt(addr, max(share, MIN_ATTEMPT_SECONDS)))
            except NameServerFailedError as failure:
                self._choice.move_on_from(addr)
                self._on_failure(addr)
                failures.append(failure)
            except AccessDeniedError as denial:
                self._choice.move_on_from(addr)
                self._on_failure(addr)
                denials.append(denial)
            except RequestRejectedError:
                if not answers:
                    raise
            else:
                if is_sufficient(answers):
                    break
        if not answers and denials:
            raise denials[0]
        if not answers:
            raise NameServersUnavailableError(failures) from failures[-1]
        return answers
