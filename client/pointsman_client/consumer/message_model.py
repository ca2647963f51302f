"""Whether the members of a group share the queues or each reads all of them."""

from __future__ import annotations

from enum import StrEnum


class MessageModel(StrEnum):
    """How many members of a group get a message (RocketMQ ``MessageModel``)."""

    CLUSTERING = "CLUSTERING"
    """One: the members share the queues."""
    BROADCASTING = "BROADCASTING"
    """Each: every member reads all queues, keeps its offsets itself, and a failed message is not tried again."""
