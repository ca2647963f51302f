"""The list of name servers that follows DNS or a file: a key of the KV configuration, as one that an operator sets.

So it is saved before it applies, restored at the start, recorded in the history, and compared by ``pointsmanctl diff``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Gauge

from pointsman import address_list
from pointsman.clock import Clock
from pointsman.name_servers import NameServerSource, NameServerSourceError
from pointsman.name_servers.list_follower import NameServerFollower
from pointsman.name_servers.list_sources import build_source
from pointsman.wire.refusals import Refusal
from pointsman_namesrv.config import AddressServerConfig, NameServerConfig
from pointsman_namesrv.core.administration import Administration, Change
from pointsman_namesrv.core.events import Event
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.settings.settings_keeper import SettingsKeeper

_KEY = (address_list.NAMESPACE, address_list.key_of(""))


class FollowedList:
    """A :class:`~pointsman.name_servers.NameServerListUser`: the list without a unit."""

    def __init__(
        self,
        source: NameServerSource,
        of: AddressServerConfig,
        core: NameServer,
        settings: SettingsKeeper,
        *,
        administration: Administration,
        record: Callable[[Iterable[Event]], None],
        registry: CollectorRegistry,
        clock: Clock,
    ) -> None:
        """``administration`` is one that may change this list."""
        self._core = core
        self._settings = settings
        self._administration = administration
        self._by = of.follows
        self._follower = NameServerFollower(
            source,
            self,
            clock=clock,
            next_wait=lambda: of.refresh_seconds,
            at_most=address_list.MAX_ADDRESSES,
        )
        self._record = record
        self._is_stale = Gauge(
            "pointsman_namesrv_address_list_stale",
            "Whether the list of name servers cannot be read from DNS or its file, so that the last valid one is sent",
            registry=registry,
        )

    @property
    def addrs(self) -> tuple[str, ...]:
        """See :class:`~pointsman.name_servers.NameServerListUser`."""
        text = self._core.kv.get(*_KEY)
        return () if text is None else address_list.to_addrs(text)

    async def use(self, addrs: tuple[str, ...]) -> None:
        """See :class:`~pointsman.name_servers.NameServerListUser`. Raises NameServerSourceError if it is not saved."""
        admin, entry = self._administration, (*_KEY, address_list.to_text(addrs))

        def apply() -> Change:
            change = admin.put_kv(*entry, by=self._by, is_followed=True)
            self._record(change.events)
            return change

        try:
            await self._settings.change(lambda: admin.check_put_kv(*entry), apply)
        except Refusal as refusal:
            raise NameServerSourceError(str(refusal)) from refusal

    def on_read(self, problem: str) -> None:
        """See :class:`~pointsman.name_servers.NameServerListUser`."""
        self._is_stale.set(bool(problem))

    async def run(self) -> None:
        """Follow the list until cancelled."""
        await self._follower.run()

    def problems(self) -> list[str]:
        """Return why the list may be outdated."""
        problem = self._follower.problem
        return [f"the list of name servers may be outdated: {problem}"] if problem else []


def followed_list(
    config: NameServerConfig,
    core: NameServer,
    settings: SettingsKeeper,
    *,
    record: Callable[[Iterable[Event]], None],
    registry: CollectorRegistry,
    clock: Clock,
) -> FollowedList | None:
    """Return the list that follows the configuration; None: operators set it."""
    of = config.address_server
    source = build_source(dns=of.dns, file=of.file)
    if source is None:
        return None
    return FollowedList(
        source,
        of,
        core,
        settings,
        administration=Administration(core, hidden_namespaces=config.history.hide_kv),
        record=record,
        registry=registry,
        clock=clock,
    )
