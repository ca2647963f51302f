"""Identity of a consumer: its client id and its subscriptions."""

from __future__ import annotations

import os
import random
import socket

from pointsman.client_id import client_id_problem
from pointsman.names import ROCKETMQ_SCHEME
from pointsman_client.client import parts_of
from pointsman_client.consumer.consumer_options import ConsumerOptions
from pointsman_client.core.rebalance import MessageModel
from pointsman_client.core.subscription import Subscription, Subscriptions, to_subscriptions
from pointsman_client.errors import InvalidOptionError
from pointsman_client.ownership import Resources

LOOPBACK = "127.0.0.1"
ELSEWHERE = "192.0.2.1"
"""An address reserved for documentation (RFC 5737)."""
DISCARD_PORT = 9
DEFAULT_INSTANCE = "DEFAULT"


class ConsumerIdentity:
    """Client id and current subscriptions of one member of a group."""

    def __init__(self, options: ConsumerOptions, subscriptions: Subscriptions, resources: Resources) -> None:
        self.subscriptions: dict[str, Subscription] = to_subscriptions(subscriptions)
        self.client_id = (
            check_client_id(options.client_id)
            if options.client_id
            else make_client_id(
                address=local_address(parts_of(resources.client).first_addr),
                group=options.group,
                model=options.message_model,
                zone=options.zone,
                rng=resources.rng,
            )
        )

    def subscribe(self, topic: str, expression: str) -> None:
        """Add or replace the subscription of a topic."""
        self.subscriptions[topic] = Subscription.parse(topic, expression)

    def unsubscribe(self, topic: str) -> bool:
        """Remove a topic; return whether it was subscribed."""
        return self.subscriptions.pop(topic, None) is not None


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
