"""Identity of a consumer: group, client id and subscriptions."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from pointsman.client_id import client_id_problem
from pointsman.names import ROCKETMQ_SCHEME
from pointsman_client.client import NameServerClient
from pointsman_client.consumer.consumer_options import ConsumerOptions
from pointsman_client.consumer.file_offset_store import FileOffsetStore, offset_file_path
from pointsman_client.consumer.group_consumer import ConsumerSetting, GroupConsumer
from pointsman_client.consumer.held_queue import HeldQueue
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.rebalance import MessageModel
from pointsman_client.core.retry_rules import CallEnd
from pointsman_client.core.subscription import Subscription, Subscriptions, to_subscriptions
from pointsman_client.errors import InvalidOptionError
from pointsman_client.ownership import Resources
from pointsman_client.pointsman_grpc.agents.agent_coordination import agent_coordination
from pointsman_client.pointsman_grpc.links import AgentLinks
from pointsman_client.ports.coordination import CoordinationRequest, MakeCoordination
from pointsman_client.ports.transport import CoordinatesGroups, Transport

OFFSETS_FOLDER = Path("~/.pointsman/offsets")
"""RocketMQ uses ``~/.rocketmq_offsets``."""
LOOPBACK = "127.0.0.1"
ELSEWHERE = "192.0.2.1"
"""An address reserved for documentation (RFC 5737)."""
DISCARD_PORT = 9
DEFAULT_INSTANCE = "DEFAULT"


class ConsumerIdentity:
    """Group, client id and subscriptions of one consumer. Opens no connection."""

    def __init__(self, parts: Resources, options: ConsumerOptions, subscriptions: Subscriptions) -> None:
        self.parts = parts
        self._options = options
        self.subscriptions: dict[str, Subscription] = to_subscriptions(subscriptions)
        self._rng = options.rng or random.Random()  # noqa: S311  # not for secrets
        self.client_id = (
            check_client_id(options.client_id)
            if options.client_id
            else make_client_id(
                address=local_address(parts.client.name_servers[0]),
                group=options.group,
                model=options.message_model,
                zone=options.zone,
                rng=self._rng,
            )
        )

    def subscribe(self, topic: str, expression: str) -> None:
        """Add or replace the subscription of a topic."""
        self.subscriptions[topic] = Subscription.parse(topic, expression)

    def unsubscribe(self, topic: str) -> bool:
        """Remove a topic; return whether it was subscribed."""
        return self.subscriptions.pop(topic, None) is not None

    def make_core(
        self,
        setting: ConsumerSetting,
        *,
        offer: Callable[[HeldQueue], None],
        call_listener: Callable[[ReceivedMessage], Awaitable[CallEnd]] | None = None,
    ) -> GroupConsumer:
        """Build the consumer from its started resources."""
        core: GroupConsumer | None = None

        def members_changed() -> None:
            if core is not None:
                core.members_changed()

        def joined() -> None:
            if core is not None:
                core.renew_locks()

        file: FileOffsetStore | None = None
        if self._options.message_model is MessageModel.BROADCASTING:
            file = FileOffsetStore(
                Path(self._options.offset_file or self._default_offset_file()), clock=self.parts.clock
            )
        make = self._options.make_coordination or coordination_for(self.parts.transport, self.parts.client)
        coordination = make(
            CoordinationRequest(
                routes=self.parts.client,
                name_servers=self.parts.client.name_servers,
                group=self._options.group,
                client_id=self.client_id,
                message_model=self._options.message_model,
                is_ordered=setting.is_ordered,
                strategy=setting.strategy,
                retries=setting.retries,
                consume_from=self._options.consume_from,
                subscriptions=lambda: {topic: each.expression for topic, each in self.subscriptions.items()},
                on_change=members_changed,
                on_joined=joined,
                consumer=lambda: core,
                call_listener=call_listener,
                own_offsets=file,
                clock=self.parts.clock,
                rng=self._rng,
            )
        )
        if file is not None:
            closings = (coordination.close, file.close)

            async def close() -> None:
                await asyncio.gather(*(close() for close in closings))

            coordination = replace(coordination, close=close)
        core = GroupConsumer(
            setting,
            self.parts.client,
            self.parts.transport,
            coordination,
            self.subscriptions,
            offer=offer,
            clock=self.parts.clock,
            rng=self._rng,
            hook=self.parts.metrics_hook,
        )
        return core

    def _default_offset_file(self) -> Path:
        return offset_file_path(OFFSETS_FOLDER.expanduser(), group=self._options.group, client_id=self.client_id)


def coordination_for(transport: Transport, client: NameServerClient) -> MakeCoordination:
    """Return what coordinates groups: the brokers of the transport themselves, else their agents."""
    if isinstance(transport, CoordinatesGroups):
        return transport.coordination
    return lambda request: agent_coordination(request, AgentLinks(client.open_channel, client.channel_opener))


def make_client_id(*, address: str, group: str, model: MessageModel, zone: str, rng: random.Random) -> str:
    """Return ``address@instance``, plus ``@zone`` for a consumer in a zone (``ClientConfig.buildMQClientId``).

    The instance names the process and distinguishes its consumers. For a broadcasting consumer it is constant, because
    a restarted consumer must find its offsets; it contains the group, since each group has its own offsets.
    """
    is_broadcasting = model is MessageModel.BROADCASTING
    instance = f"{DEFAULT_INSTANCE}#{group}" if is_broadcasting else f"{os.getpid()}#{rng.getrandbits(48):012x}"
    return check_client_id(f"{address}@{instance}@{zone}" if zone else f"{address}@{instance}")


def check_client_id(client_id: str) -> str:
    """Return a valid client id, or raise :class:`InvalidOptionError`."""
    problem = client_id_problem(client_id)
    if problem is not None:
        raise InvalidOptionError("client_id", client_id, problem)
    return client_id


def local_address(towards: str) -> str:
    """Return the local address used to reach a name server; the loopback address if that is unknown.

    Nothing is sent: connecting a datagram socket only consults the routing table. A host name is not resolved, which
    may take long; for it the address of the default route is returned.
    """
    host = towards.removeprefix(ROCKETMQ_SCHEME).rpartition(":")[0].strip("[]")
    return _source_address(host) or _source_address(ELSEWHERE) or LOOPBACK


def _source_address(target: str) -> str | None:
    try:
        infos = socket.getaddrinfo(target, DISCARD_PORT, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
        family, _, _, _, address = infos[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return None
