"""The client id of a consumer: who it is in its group (RocketMQ's ``ClientConfig.buildMQClientId``)."""

from __future__ import annotations

import os
import random
import socket

from pointsman.wire.client_id import client_id_problem
from pointsman_client.core.rebalance import MessageModel
from pointsman_client.errors import InvalidOptionError

LOOPBACK = "127.0.0.1"
ELSEWHERE = "192.0.2.1"
"""An address of no machine (RFC 5737)."""
DISCARD_PORT = 9
DEFAULT_INSTANCE = "DEFAULT"


def make_client_id(*, address: str, group: str, model: MessageModel, zone: str, rng: random.Random) -> str:
    """``address@instance``, with ``@zone`` behind it for a consumer in a zone.

    The instance names the process and distinguishes its consumers. That of a broadcasting consumer stays the same,
    since after a restart it must find its offsets again; it contains the group, since each group has its own offsets.
    """
    is_broadcasting = model is MessageModel.BROADCASTING
    instance = f"{DEFAULT_INSTANCE}#{group}" if is_broadcasting else f"{os.getpid()}#{rng.getrandbits(48):012x}"
    return check_client_id(f"{address}@{instance}@{zone}" if zone else f"{address}@{instance}")


def check_client_id(client_id: str) -> str:
    """Return it, or raise :class:`InvalidOptionError`."""
    problem = client_id_problem(client_id)
    if problem is not None:
        raise InvalidOptionError("client_id", client_id, problem)
    return client_id


def local_address(towards: str) -> str:
    """The address of this machine from which it reaches ``host:port``; the loopback's if that cannot be told.

    Nothing is sent: connecting a datagram socket only asks the routing table. A host name is not looked up, since that
    may take long; where the network beyond is reached from counts then.
    """
    return _source_address(towards.rpartition(":")[0].strip("[]")) or _source_address(ELSEWHERE) or LOOPBACK


def _source_address(target: str) -> str | None:
    try:
        infos = socket.getaddrinfo(target, DISCARD_PORT, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
        family, _, _, _, address = infos[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return None
