"""The grammar of client ids: ``address@instance``, as RocketMQ's ``ClientConfig.buildMQClientId`` builds them.

The instance may contain a further ``@`` (RocketMQ appends its unit name so); the address is the part before the first.
What follows the second is the client's zone (``AllocateMachineRoomNearby``).
"""

from __future__ import annotations

import re

MAX_CLIENT_ID_LENGTH = 255

_PRINTABLE = re.compile(r"[!-~]+")


def client_id_problem(client_id: str) -> str | None:
    """Return the problem of a client id, as a sentence without its subject; None: it is valid."""
    problem = pin_target_problem(client_id)
    if problem is not None:
        return problem
    address, at, instance = client_id.partition("@")
    if not (address and at and instance):
        return "must be address@instance"
    return None


def pin_target_problem(target: str) -> str | None:
    """Return the problem of a client id or an address, as a sentence without its subject; None: it is valid."""
    if not target:
        return "must not be empty"
    if len(target) > MAX_CLIENT_ID_LENGTH:
        return f"has {len(target)} characters, at most {MAX_CLIENT_ID_LENGTH} are allowed"
    if _PRINTABLE.fullmatch(target) is None:
        return "may hold only printable ASCII characters without spaces"
    return None


def address_of(client_id: str) -> str:
    """Return the part before the first ``@``."""
    return client_id.partition("@")[0]


def zone_of(client_id: str) -> str:
    """Return the part after the second ``@``; empty: the client id has no zone."""
    return "".join(client_id.split("@", 2)[2:])
