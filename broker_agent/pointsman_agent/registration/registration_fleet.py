"""A registration loop for every listed name server, while it is listed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pointsman_agent.core.own_state import OwnState
from pointsman_agent.observable import Observable
from pointsman_agent.registration.loop import RegistrationLoop, Report

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Running:
    loop: RegistrationLoop
    task: asyncio.Task[None]
    is_ending: bool = False


class RegistrationFleet:
    """Follows ``listed``: a new name server gets a loop by ``build``, and the loop of a removed one ends.

    A name server that is no longer listed retains the registration until it expires there: clients may still use it,
    and the broker is up. ``forget`` is called when such a loop has ended, to drop what is stored about it.
    """

    def __init__(
        self,
        listed: Observable[tuple[str, ...]],
        own: Observable[OwnState],
        *,
        build: Callable[[str], RegistrationLoop],
        forget: Callable[[str], None],
    ) -> None:
        self._listed = listed
        self._own = own
        self._build = build
        self._forget = forget
        self._running: dict[str, _Running] = {}
        self._current: tuple[RegistrationLoop, ...] = ()
        self._changed = asyncio.Event()
        self.ended = asyncio.Event()
        """Set when :meth:`run` has ended."""

    @property
    def loops(self) -> tuple[RegistrationLoop, ...]:
        """The loops of the listed name servers."""
        return self._current

    @property
    def reports(self) -> Mapping[str, Report]:
        """Registration state at each listed name server. Read-only, callable from any thread."""
        return {loop.name_server: loop.report for loop in self._current}

    @property
    def master_agent_addr(self) -> str:
        """Agent of the broker's master, from the first name server that reports one; empty if none does."""
        return next((loop.master_agent_addr for loop in self._current if loop.master_agent_addr), "")

    @property
    def unfinished(self) -> list[str]:
        """Name servers whose loops have not ended."""
        return sorted(self._running)

    async def run(self) -> None:
        """Run until every loop has handed over or unregistered; cancel it to stop without either."""
        stop_following = [self._listed.on_change(self._changed.set), self._own.on_change(self._changed.set)]
        try:
            async with asyncio.TaskGroup() as tasks:
                while self._own.value.leave is None:
                    self._changed.clear()
                    self._follow(tasks)
                    await self._changed.wait()
        finally:
            for stop in stop_following:
                stop()
            self.ended.set()

    def _follow(self, tasks: asyncio.TaskGroup) -> None:
        listed = self._listed.value
        for name_server, running in self._running.items():
            if name_server not in listed and not running.is_ending:
                running.is_ending = True
                running.loop.end()
                facts = {"name_server": name_server, "state": running.loop.report.state.value}
                log.info(
                    "name server removed from the list; the registration expires there",
                    extra={"facts": facts},
                )
        for name_server in listed:
            if name_server not in self._running:
                self._start(name_server, tasks)
        self._current = tuple(running.loop for running in self._running.values() if not running.is_ending)

    def _start(self, name_server: str, tasks: asyncio.TaskGroup) -> None:
        loop = self._build(name_server)
        task = tasks.create_task(loop.run())
        self._running[name_server] = _Running(loop, task)
        task.add_done_callback(lambda _: self._on_end(name_server))

    def _on_end(self, name_server: str) -> None:
        # A name server listed again while its loop was ending gets a new loop now.
        if self._running.pop(name_server).is_ending:
            self._forget(name_server)
        self._changed.set()
