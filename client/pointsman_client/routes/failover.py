"""Calls name servers in turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pointsman.clock import Clock
from pointsman_client.core.name_server_choice import NameServerChoice
from pointsman_client.errors import (
    AccessDeniedError,
    NameServerFailedError,
    NameServersUnavailableError,
    RequestRejectedError,
)

MIN_ATTEMPT_SECONDS = 0.05
"""Minimum timeout of one attempt, also when this process stalled past the deadline."""

ResultT = TypeVar("ResultT")


class Failover:
    """Calls the servers of a :class:`NameServerChoice` in turn, under one deadline."""

    def __init__(
        self, choice: NameServerChoice, clock: Clock, *, on_failure: Callable[[str], None] = lambda _: None
    ) -> None:
        """``on_failure(addr)`` is called for each server without a usable response."""
        self._choice = choice
        self._clock = clock
        self._on_failure = on_failure

    async def call(self, attempt: Callable[[str, float], Awaitable[ResultT]], *, timeout_seconds: float) -> ResultT:
        """Return the first response of ``attempt(addr, seconds)``, calling each server at most once.

        Each attempt gets an equal share of the remaining time, so a server that hangs leaves enough for the others.
        Any error but :class:`NameServerFailedError` is a response and raised to the caller.
        :class:`AccessDeniedError` is raised only when no other server responds, since each has its own grants.
        Raises :class:`NameServersUnavailableError` when no name server responds.
        """
        responses = await self.call_until(lambda _: True, attempt, timeout_seconds=timeout_seconds)
        return responses[0]

    async def call_until(
        self,
        is_sufficient: Callable[[Sequence[ResultT]], bool],
        attempt: Callable[[str, float], Awaitable[ResultT]],
        *,
        timeout_seconds: float,
    ) -> list[ResultT]:
        """Call one server after another, as :meth:`call` does, until ``is_sufficient(responses)``; return them all.

        After the first response, a server that rejects the request counts as one that did not respond.
        """
        deadline = self._clock.monotonic() + timeout_seconds
        failures: list[NameServerFailedError] = []
        denials: list[AccessDeniedError] = []
        responses: list[ResultT] = []
        order = self._choice.order()
        for position, addr in enumerate(order):
            share = (deadline - self._clock.monotonic()) / (len(order) - position)
            try:
                responses.append(await attempt(addr, max(share, MIN_ATTEMPT_SECONDS)))
            except NameServerFailedError as failure:
                self._choice.move_on_from(addr)
                self._on_failure(addr)
                failures.append(failure)
            except AccessDeniedError as denial:
                self._choice.move_on_from(addr)
                self._on_failure(addr)
                denials.append(denial)
            except RequestRejectedError:
                if not responses:
                    raise
            else:
                if is_sufficient(responses):
                    break
        if not responses and denials:
            raise denials[0]
        if not responses:
            raise NameServersUnavailableError(failures) from failures[-1]
        return responses
