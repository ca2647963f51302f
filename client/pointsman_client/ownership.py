"""The name server client and the transport behind a producer or a consumer, and which of them end with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from pointsman.wire.clock import Clock
from pointsman_client.aio import LoopBinding, finish_tasks
from pointsman_client.client import NameServerClient
from pointsman_client.client_options import SharedOptions, values_for
from pointsman_client.core.checks import check_zone
from pointsman_client.errors import ClientNotStartedError, InvalidOptionError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.tracing_hook import TracingHook
from pointsman_client.transports.transport import Transport

logger = logging.getLogger(__name__)

TransportOrMaker = Transport | Callable[[], Transport]
"""A transport that stays the caller's, or what makes one that is closed with the object, such as its class."""


@dataclass(frozen=True, kw_only=True)
class MessagingOptions(SharedOptions):
    """Options of what sends or receives messages."""

    name_servers: str | Sequence[str] | NameServerClient = field(kw_only=False)
    """Addresses, or a started client, which stays the caller's."""
    transport: TransportOrMaker
    """Transport to the brokers: one that stays the caller's, or what makes one, such as its class."""
    tracing_hook: TracingHook | None = None
    """Opens spans around sends and listeners, such as :class:`~pointsman_client.opentelemetry.OpenTelemetryTracing`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.transport) and not hasattr(self.transport, "send"):
            problem = "must be a transport, or a callable that makes one"
            raise InvalidOptionError("transport", self.transport, problem)


class Resources:
    """What :class:`Producer` and the consumers stand on.

    A list of name servers makes a client that is started and closed here, with the settings given here; a client that
    is passed in stays the caller's, who has started it, and keeps its own settings. The same holds for the transport.
    The constructor opens and starts nothing.
    """

    def __init__(
        self,
        options: MessagingOptions,
        *,
        zone: str = "",
        zone_option: str = "zone",
        owner: str = "client",
    ) -> None:
        """``zone``: of the routes; ``zone_option``: how its owner calls it. ``owner``: what a ResourceWarning names.

        Raises :class:`InvalidAddressError` and :class:`InvalidOptionError`.
        """
        check_zone(zone_option, zone)
        if isinstance(options.name_servers, NameServerClient):
            self.client, self._owns_client = options.name_servers, False
            if options.credentials is not None:
                problem = "belongs to the client that makes the connections: set it at the one passed in"
                raise InvalidOptionError("credentials", options.credentials, problem)
            if zone and zone.lower() != self.client.zone.lower():
                problem = f"differs from that of the client passed in, {self.client.zone!r}: set zone there"
                raise InvalidOptionError(zone_option, zone, problem)
        else:
            self._owns_client = True
            shared = values_for(SharedOptions, options)
            self.client = NameServerClient(options.name_servers, zone=zone, **shared)
        self.clock: Clock = options.clock or self.client.clock
        self.metrics_hook: MetricsHook = options.metrics_hook or self.client.metrics_hook
        self._make_transport: Callable[[], Transport] | None = None
        self._transport: Transport | None = None
        if callable(options.transport):
            self._make_transport = options.transport
        else:
            self._transport = options.transport
        self.binding = LoopBinding(owner)
        """Says whether these parts can be used here and now."""
        self._unsubscribe: Callable[[], None] = lambda: None

    @property
    def transport(self) -> Transport:
        """The transport; one that is made here is there from :meth:`start` on."""
        if self._transport is None:
            raise ClientNotStartedError
        return self._transport

    @property
    def is_started(self) -> bool:
        """Whether :meth:`start` has come to its end, and :meth:`close` has not begun."""
        return self.binding.is_bound and not self.binding.is_closed

    async def start(self) -> None:
        """Make what is to be made and start what is ours; a second call changes nothing."""
        if self.binding.is_bound or self.binding.is_closed:
            self.binding.check()
            return
        if self._make_transport is not None:
            made = self._make_transport()
            if not hasattr(made, "send"):
                raise InvalidOptionError("transport", made, "was made by the callable, and is no transport")
            self._transport = made
        if self._owns_client:
            await self.client.start()
        self._unsubscribe = self.client.on_addrs_removed(self._forget)
        self.binding.bind()

    def stop_use(self) -> None:
        """From now on ``binding`` says that the object is closed, while its last work still uses the parts.

        Raises :class:`WrongEventLoopError` and :class:`ForkedError`: only its own loop can close it.
        """
        if self.is_started:
            self.binding.check_place()
        self.binding.close()

    async def close(self, *, timeout_seconds: float) -> None:
        """Close what is ours within the time; a second call does nothing."""
        self.stop_use()
        self._unsubscribe()
        closings: list[Coroutine[Any, Any, None]] = []
        if self._make_transport is not None and self._transport is not None:
            self._make_transport = None
            closings.append(self._transport.close())
        if self._owns_client:
            self._owns_client = False
            closings.append(self.client.close())
        tasks = [asyncio.create_task(closing, name="pointsman-close") for closing in closings]
        await finish_tasks(tasks, timeout_seconds=timeout_seconds)
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                logger.error("a part did not close cleanly", exc_info=error)

    def _forget(self, addrs: Sequence[str]) -> None:
        for addr in addrs:
            self.transport.forget(addr)
