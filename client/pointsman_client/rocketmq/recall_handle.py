"""Handles of delayed messages, by which a broker finds one that is to be dropped. Pure."""

from __future__ import annotations

import base64
import binascii

from pointsman_client.errors import InvalidMessageError

VERSION = "v1"


def recall_place(handle: str) -> tuple[str, str]:
    """Return topic and broker name of a handle (``RecallMessageHandle``): base64 of version, topic, broker, time, id.

    Raises :class:`InvalidMessageError`.
    """
    try:
        text = base64.b64decode(handle + "=" * (-len(handle) % 4), altchars=b"-_", validate=True).decode()
        version, topic, broker_name, _, _ = text.split(" ")
    except (binascii.Error, ValueError):
        version = topic = broker_name = ""
    if version != VERSION:
        problem = (
            "is not the handle of a delayed message: take it from SendResult.recall_handle, of a broker 5.3.3 or later"
        )
        raise InvalidMessageError("recall_handle", handle, problem)
    return topic, broker_name
