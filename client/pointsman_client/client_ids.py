"""Client ids, which distinguish the members of a group."""

from __future__ import annotations

import os
import random
import socket

from pointsman.client_id import client_id_problem
from pointsman.names import ROCKETMQ_SCHEME
from pointsman_client.errors import InvalidOptionError

LOOPBACK = "127.0.0.1"
ELSEWHERE = "192.0.2.1"
"""An address reserved for documentation (RFC 5737)."""
DISCARD_PORT = 9


def unique_instance(rng: random.Random) -> str:
    """Return the part of a client id that names the process, and distinguishes its producers and consumers."""
    return f"{os.getpid()}#{rng.getrandbits(48):012x}"


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
