"""The name server client and the transport of a producer or consumer, and which of them it owns (and closes)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from pointsman.clock import Clock
from pointsman_client.aio import LoopBinding, finish_tasks
from pointsman_client.client import NameServerClient, parts_of
from pointsman_client.client_options import SharedOptions
from pointsman_client.core.application_view import ApplicationView
from pointsman_client.core.checks import check_name, check_zone
from pointsman_client.core.namespace import SEPARATOR
from pointsman_client.core.option_fields import values_for
from pointsman_client.core.serializer import Serializer, check_serializer
from pointsman_client.errors import ClientNotStartedError, InvalidNameError, InvalidOptionError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.ports.coordination import MakeCoordination
from pointsman_client.ports.transport import CoordinatesGroups, Transport
from pointsman_client.tracing_hook import TracingHook

logger = logging.getLogger(__name__)

TransportOrMaker = Transport | Callable[[], Transport]
"""A transport, which the caller closes, or a callable (such as its class) that makes one, which is closed here."""

_NOT_A_TRANSPORT = "must be a transport, or a callable that makes one"


@dataclass(frozen=True, kw_only=True)
class MessagingOptions(SharedOptions):
    """Options common to producers and consumers."""

    name_servers: str | Sequence[str] | NameServerClient = field(kw_only=False)
    """Addresses, or a started client, which the caller closes."""
    transport: TransportOrMaker | None = None
    """Transport to the brokers, which the caller closes, or a callable (such as its class) that makes one. With
    ``rocketmq://`` name servers None makes a :class:`~pointsman_client.rocketmq.RocketmqTransport`."""
    tracing_hook: TracingHook | None = None
    """Opens spans around sends and listeners, such as :class:`~pointsman_client.opentelemetry.OpenTelemetryTracing`."""
    namespace: str = ""
    """Prefix of topics and groups at the brokers, ``NAMESPACE%topic``, which the application does not see; empty: none
    (``namespace``)."""
    serializer: Serializer | None = None
    """Encodes the values of messages to send (:meth:`Producer.message`), and decodes received ones
    (:attr:`ReceivedMessage.value`); None: messages have bodies only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.namespace:
            check_name("namespace", self.namespace)
            if SEPARATOR in self.namespace:
                raise InvalidNameError("namespace", self.namespace, f"must not hold {SEPARATOR}, which ends it")
        check_serializer("serializer", self.serializer)
        if self.transport is not None and not callable(self.transport) and not hasattr(self.transport, "send"):
            raise InvalidOptionError("transport", self.transport, _NOT_A_TRANSPORT)


class Resources:
    """Client and transport used by a producer or consumer, and which of them it owns (and closes).

    From a list of name servers a client is made, which is started and closed here. A client that is passed in must be
    started, uses its own settings, and is closed by the caller. The same applies to the transport. The constructor
    opens and starts nothing.
    """

    def __init__(
        self,
        options: MessagingOptions,
        *,
        zone: str = "",
        zone_option: str = "zone",
        owner: str = "client",
    ) -> None:
        """``zone``: of the routes; ``zone_option``: its name in errors; ``owner``: the name in a ResourceWarning.

        Raises :class:`InvalidAddressError` and :class:`InvalidOptionError`.
        """
        check_zone(zone_option, zone)
        if isinstance(options.name_servers, NameServerClient):
            self.client, self._owns_client = options.name_servers, False
            for option in ("credentials", "rocketmq_tls", "rocketmq_access_key"):
                value = getattr(options, option)
                if value is not None:
                    problem = "must be set on the client passed in, which opens the connections"
                    # Not its value, which may be the secret.
                    raise InvalidOptionError(option, type(value), problem)
            if zone and zone.lower() != self.client.zone.lower():
                problem = f"differs from the zone of the client passed in, {self.client.zone!r}; set it on that client"
                raise InvalidOptionError(zone_option, zone, problem)
        else:
            self._owns_client = True
            shared = values_for(SharedOptions, options)
            self.client = NameServerClient(options.name_servers, zone=zone, **shared)
        parts = parts_of(self.client)
        self._parts = parts
        self.clock: Clock = options.clock or parts.clock
        self.metrics_hook: MetricsHook = options.metrics_hook or parts.metrics_hook
        self.rng = options.rng or random.Random()  # noqa: S311  it spreads load and guards no secret
        self.view = ApplicationView(options.namespace, options.serializer)
        self._make_transport: Callable[[], Transport] | None = None
        self._transport: Transport | None = None
        given, default = options.transport, parts.default_transport
        if given is None and default is None:
            problem = f"{_NOT_A_TRANSPORT}; only with name servers at rocketmq://host:port it may be omitted"
            raise InvalidOptionError("transport", None, problem)
        if default is not None and (given is None or given is default.func):
            self._make_transport = default
        elif callable(given):
            self._make_transport = given
        else:
            self._transport = given
        self.binding = LoopBinding(owner)
        """Checks that the object is started and used in its own loop."""
        self._unsubscribe: Callable[[], None] = lambda: None

    @property
    def transport(self) -> Transport:
        """The transport; one that is made here is available after :meth:`start`."""
        if self._transport is None:
            raise ClientNotStartedError
        return self._transport

    @property
    def make_coordination(self) -> MakeCoordination:
        """Coordination of groups: by the brokers of the transport themselves, else by their agents."""
        transport = self.transport
        return transport.coordination if isinstance(transport, CoordinatesGroups) else self._parts.coordination

    @property
    def is_started(self) -> bool:
        """Whether :meth:`start` has ended and :meth:`close` has not started."""
        return self.binding.is_bound and not self.binding.is_closed

    async def start(self) -> None:
        """Make the transport and start the client, if owned; a second call does nothing."""
        if self.binding.is_bound or self.binding.is_closed:
            self.binding.check()
            return
        if self._make_transport is not None:
            made = self._make_transport()
            if not hasattr(made, "send"):
                raise InvalidOptionError("transport", made, "was returned by the callable and is not a transport")
            self._transport = made
        if self._owns_client:
            await self.client.start()
        self._unsubscribe = self.client.on_addrs_removed(self._forget)
        self.binding.bind()

    def stop_use(self) -> None:
        """Mark the object as closed for callers, while its final work still uses client and transport.

        Raises :class:`WrongEventLoopError` and :class:`ForkedError`: it can only be closed in its own loop.
        """
        self.binding.check(to_close=True)
        self.binding.close()

    async def close(self, *, timeout_seconds: float) -> None:
        """Close the owned client and transport within the timeout; a second call does nothing."""
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
                logger.error("closing the client or the transport failed", exc_info=error)

    def _forget(self, addrs: Sequence[str]) -> None:
        for addr in addrs:
            self.transport.forget(addr)
