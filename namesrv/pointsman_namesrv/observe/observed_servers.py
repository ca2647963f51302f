"""The observed name servers: one observer each, begun and ended as their list changes."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from pointsman.clock import Clock
from pointsman.config import ConfigError
from pointsman.wire.credentials import CredentialsError, read_account, tls_context
from pointsman_namesrv.config import HistoryConfig
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.observe.connection import Access
from pointsman_namesrv.observe.listings import Listings
from pointsman_namesrv.observe.observed_server import ObservedServer
from pointsman_namesrv.observe.observer import Observer
from pointsman_namesrv.observe.observer_config import ObservedConfig
from pointsman_namesrv.observe.observer_metrics import ObserverMetrics
from pointsman_namesrv.observe.route_differences import RouteDifferences

log = logging.getLogger(__name__)


def read_access(settings: ObservedConfig) -> Access:
    """Read certificates and account. Raises ConfigError if they have changed since the settings were checked."""
    try:
        tls = tls_context(settings.credentials) if settings.credentials.uses_tls else None
        account = read_account("access_key_file", settings.access_key_file) if settings.access_key_file else None
    except CredentialsError as error:
        raise ConfigError([f"observed.{problem}" for problem in error.problems]) from error
    except OSError as error:
        raise ConfigError([f"observed.tls: the files cannot be used: {error}"]) from error
    return Access(tls, account)


async def _nothing(_addr: str) -> None: ...


class ObservedServers:
    """Runs the observers. :meth:`apply` changes their list and their settings while they run."""

    def __init__(
        self, settings: ObservedConfig, history: HistoryConfig, *, version: str, clock: Clock, metrics: Metrics
    ) -> None:
        """``metrics`` count the rows of the history. Raises ConfigError."""
        self.listings = Listings(settings.name_servers)
        self.differences = RouteDifferences(settings.name_servers)
        self.observed = ObserverMetrics(self.listings, self.differences, metrics, clock=clock)
        self._settings = settings
        self._history = history
        self._version = version
        self._clock = clock
        self._metrics = metrics
        self._access = read_access(settings)
        self.by_addr: dict[str, ObservedServer] = {}
        """In the order of the list; it changes while they run."""
        self.on_added: Callable[[ObservedServer], None] = lambda _server: None
        """Called when a name server was added while they run."""
        self.on_removed: Callable[[str], Awaitable[None]] = _nothing
        """Called when one was removed."""
        self._observers = {addr: self._observer(addr) for addr in settings.name_servers}
        self._polling: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def check_folder(self) -> None:
        """Fail at the start, not at the first response. Raises OSError: HistoryInUse, or no folder."""
        for observer in self._observers.values():
            observer.check_folder()

    def apply(self, settings: ObservedConfig) -> None:
        """Poll these name servers from now on, with these settings.

        Open connections stay: new certificates are those of the next one, because an end of a connection is a hole in
        the history. A new account signs the next request.
        """
        try:
            fresh = read_access(settings)
        except ConfigError as error:
            log.error(  # noqa: TRY400  # the sentence says it all
                "certificates and account stay as they were", extra={"facts": {"problems": list(error.problems)}}
            )
        else:
            self._access.tls, self._access.account = fresh.tls, fresh.account
        self._settings = settings
        for addr, observer in self._observers.items():
            self.by_addr[addr].collects_topics = settings.topics_seconds > 0
            observer.apply(settings)
        self._changed.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Poll until ``stop`` is set. Raises OSError when another process has taken over the folder of a history."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for addr in self._observers:
                    self._begin(addr, tasks)
                following = tasks.create_task(self._follow(tasks))
                await stop.wait()
                for task in (following, *self._polling.values()):
                    task.cancel()
        finally:
            await asyncio.gather(*(observer.close() for observer in self._observers.values()))

    def _observer(self, addr: str) -> Observer:
        self.by_addr[addr] = ObservedServer(
            addr,
            boot=secrets.randbits(64),
            now=self._clock.monotonic(),
            collects_topics=self._settings.topics_seconds > 0,
        )
        return Observer(
            addr,
            history=self._history,
            settings=self._settings,
            version=self._version,
            clock=self._clock,
            metrics=self._metrics,
            access=self._access,
            listings=self.listings,
            differences=self.differences,
            observed=self.observed,
            server=self.by_addr[addr],
        )

    def _begin(self, addr: str, tasks: asyncio.TaskGroup) -> None:
        self._polling[addr] = tasks.create_task(self._observers[addr].run())

    async def _follow(self, tasks: asyncio.TaskGroup) -> None:
        """Begin and end observers after a change of the list."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = dict.fromkeys(self._settings.name_servers)
            for addr in [addr for addr in wanted if addr not in self._observers]:
                self._add(addr, tasks)
            for addr in [addr for addr in self._observers if addr not in wanted]:
                await self._remove(addr)

    async def _remove(self, addr: str) -> None:
        polling = self._polling.pop(addr)
        polling.cancel()
        await asyncio.wait([polling])
        await self._observers[addr].close()
        del self._observers[addr]
        self.listings.remove(addr, now=self._clock.monotonic())
        self.differences.remove(addr)
        self.differences.publish()
        self.observed.remove(addr)
        del self.by_addr[addr]
        await self.on_removed(addr)
        log.info("ended watching a name server: it was removed from the list", extra={"facts": {"name_server": addr}})

    def _add(self, addr: str, tasks: asyncio.TaskGroup) -> None:
        observer = self._observer(addr)
        try:
            observer.check_folder()
        except OSError as error:
            facts = {"name_server": addr, "problem": str(error)}
            log.error("name server cannot be added: its history cannot be written", extra={"facts": facts})  # noqa: TRY400
            del self.by_addr[addr]
            return
        self.listings.add(addr)
        self.differences.add(addr)
        self.differences.publish()
        self.observed.add(addr)
        self._observers[addr] = observer
        self.on_added(self.by_addr[addr])
        self._begin(addr, tasks)
