"""Queues as Redis streams: the key of a queue, and offsets as entry ids. Pure: imports ``re`` only.

Entries are added with the id ``0-*``, whose second part Redis (7.0 and later) counts from 1 without a gap, also past
entries that were trimmed. Offsets begin at 0, as RocketMQ's do. So offset n is the entry ``0-(n+1)``, and the offset
is read next is also the id to read after: ``XREAD STREAMS orders:queue:3 0-n``. The end of a queue,
one beyond its last message, is the second part of the stream's ``last-generated-id``.
"""

from __future__ import annotations

import re

MAX_OFFSET = 2**64 - 1

_ID = re.compile(r"0-(?P<counted>0|[1-9][0-9]{0,19})")


def stream_key(topic: str, queue_id: int) -> str:
    """Return the key of a queue's stream."""
    return f"{topic}:queue:{queue_id}"


def entry_id(offset: int) -> str:
    """Return the id of the entry at an offset."""
    return f"0-{offset + 1}"


def id_before(offset: int) -> str:
    """Return the id after which reading begins with the entry at ``offset``."""
    return f"0-{offset}"


def offset_after(last_id: str) -> int | None:
    """Return the offset after an entry; None for an id that ``0-*`` did not create."""
    match = _ID.fullmatch(last_id)
    if match is None:
        return None
    offset = int(match["counted"])
    return offset if offset <= MAX_OFFSET else None


def lease_group(group: str) -> str:
    """Return the name of the stream's consumer group in which a group leases messages.

    It marks the queues as leased: a group of the same name that stores offsets has none. A group's own name cannot
    contain ``:``.
    """
    return f"pop:{group}"
