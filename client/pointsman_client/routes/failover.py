"""Calls name servers in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import grpc

from pointsman.clock import Clock
from pointsman_client.core.name_server_choice import NameServerChoice
from pointsman_client.errors import (
    AccessDeniedError,
    NameServerFailedError,
    NameServersUnavailableError,
    PointsmanError,
    RequestRejectedError,
)

MIN_ATTEMPT_SECONDS = 0.05
"""Minimum timeout of one attempt, also when this process stalled past the deadline."""

ResultT = TypeVar("ResultT")


class Failover:
    """Calls the servers of a :class:`NameServerChoice` in turn, under one deadline."""

    def __init__(
        self,
        choice: NameServerChoice,
        clock: Clock,
        *,
        on_failure: Callable[[str], None] = lambda _: None,
        first_list: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        """``on_failure(addr)`` is called for each server without a usable response.

        ``first_list(seconds)`` waits for the first list of servers and raises :class:`NameServerFailedError` if there
        is none after that time; None: there is one from the start.
        """
        self._choice = choice
        self._clock = clock
        self._on_failure = on_failure
        self._first_list = first_list

    async def call(self, attempt: Callable[[str, float], Awaitable[ResultT]], *, timeout_seconds: float) -> ResultT:
        """Return the first response of ``attempt(addr, seconds)``.

        Each attempt gets an equal share of the remaining time, so a server that hangs leaves enough for the others.
        When all have failed and time is left, those that were only too slow are called once more.
        Any error but :class:`NameServerFailedError` is a response and raised to the caller.
        :class:`AccessDeniedError` is raised only when no other server responds, since each has its own grants.
        The server in use changes only to one that responded: when all clients of a stopped server move to another one
        and it is slow for a while, moving on from that would end their watches and start them again.
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
        failures: dict[str, NameServerFailedError] = {}
        denials: dict[str, AccessDeniedError] = {}
        responses: list[ResultT] = []
        waiting, is_first_round = deque(await self._servers(timeout_seconds)), True
        while waiting:
            addr = waiting.popleft()
            share = (deadline - self._clock.monotonic()) / (len(waiting) + 1)
            try:
                responses.append(await attempt(addr, max(share, MIN_ATTEMPT_SECONDS)))
            except NameServerFailedError as failure:
                failures[addr] = failure
                self._on_failure(addr)
            except AccessDeniedError as denial:
                denials[addr] = denial
                self._on_failure(addr)
            except PointsmanError as error:
                if not isinstance(error, RequestRejectedError) or not responses:
                    self._choice.use(addr, instead_of={*failures, *denials})
                    raise
            else:
                self._choice.use(addr, instead_of={*failures, *denials})
                if is_sufficient(responses):
                    break
            if not waiting and not responses and is_first_round:
                is_first_round = False
                if deadline - self._clock.monotonic() > MIN_ATTEMPT_SECONDS:
                    waiting.extend(each for each, failure in failures.items() if _ran_out_of_time(failure))
        if not responses and denials:
            raise next(iter(denials.values()))
        if not responses:
            raise NameServersUnavailableError(tuple(failures.values())) from failures[addr]
        return responses

    async def _servers(self, seconds: float) -> tuple[str, ...]:
        """Return the servers in the order in which they are called. Waits for the first list if there is none yet."""
        if self._first_list is not None:
            try:
                await self._first_list(seconds)
            except NameServerFailedError as failure:
                raise NameServersUnavailableError((failure,)) from failure
        return self._choice.order()


def _ran_out_of_time(failure: NameServerFailedError) -> bool:
    return failure.status is grpc.StatusCode.DEADLINE_EXCEEDED
