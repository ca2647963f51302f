"""Follow the list of name servers: read its source periodically, and use the last valid list during failures."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from pointsman.clock import Clock
from pointsman.deadline import within
from pointsman.name_servers import NameServerListUser, NameServerSource, NameServerSourceError
from pointsman.single_call_thread import SingleCallThread

READ_TIMEOUT_SECONDS = 5.0
"""Deadline of one read. With a refresh every 10 s a change is known after at most 15 s."""
RETRY_SECONDS = 2.0
"""Longest wait while no list was read yet."""

log = logging.getLogger(__name__)


class NameServerFollower:
    """Reads ``source`` for ``user``, sorted and without duplicates, with ``next_wait()`` seconds between two reads."""

    def __init__(
        self,
        source: NameServerSource,
        user: NameServerListUser,
        *,
        clock: Clock,
        next_wait: Callable[[], float],
        at_most: int,
    ) -> None:
        """``at_most``: a longer list is invalid."""
        self._source = source
        self._thread = SingleCallThread("name-server-list", busy=NameServerSourceError)
        self._user = user
        self._clock = clock
        self._next_wait = next_wait
        self._at_most = at_most
        self.problem = ""
        """Why the last read failed; empty: it did not."""

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await self.read()
            seconds = self._next_wait()
            await self._clock.sleep(seconds if self._user.addrs else min(seconds, RETRY_SECONDS))

    async def read(self) -> None:
        """Read once. An unreadable or invalid list changes nothing and is logged once."""
        try:
            addrs = await within(self._clock, READ_TIMEOUT_SECONDS, self._thread.run(self._source.read))
            await self._take(addrs)
        except NameServerSourceError as error:
            self._keep(str(error))
        except TimeoutError:
            self._keep(f"no response within {READ_TIMEOUT_SECONDS:g} s")
        self._user.on_read(self.problem)

    async def _take(self, addrs: tuple[str, ...]) -> None:
        # Sorted, because resolvers rotate their responses.
        new = tuple(sorted(set(addrs)))
        if not new:
            raise NameServerSourceError("the list is empty")
        if len(new) > self._at_most:
            raise NameServerSourceError(f"the list has {len(new)} name servers, at most {self._at_most} are allowed")
        old = self._user.addrs
        if set(new) != set(old):
            await self._user.use(new)
            facts = {"before": list(old), "after": list(new)}
            log.info("name server list changed from %s to %s", _shown(old), _shown(new), extra={"facts": facts})
        elif self.problem:
            log.info("name server list can be read again; it has not changed")
        self.problem = ""

    def _keep(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            kept = self._user.addrs
            facts = {"reason": problem, "kept": list(kept)}
            text = "name server list cannot be read; %s stays in use: %s"
            log.warning(text, _shown(kept), problem, extra={"facts": facts})


def _shown(addrs: Collection[str]) -> str:
    return ", ".join(addrs) or "none"
