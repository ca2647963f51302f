"""Transactions of RocketMQ brokers: a half message, which no consumer sees, and the state that ends it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class TransactionState(StrEnum):
    """How the local work of a transaction ended (RocketMQ ``LocalTransactionState``)."""

    COMMIT = "COMMIT"
    """Consumers get the message."""
    ROLLBACK = "ROLLBACK"
    """The message is dropped."""
    UNKNOWN = "UNKNOWN"
    """Not known yet: the broker asks a producer of the group, later."""


class HalfMessage(NamedTuple):
    """Where a broker holds the message of a transaction that has not ended."""

    addr: str
    topic: str
    """Of the application."""
    message_id: str
    queue_offset: int
    """In the broker's topic of half messages (``tranStateTableOffset``)."""
    commit_log_offset: int
    transaction_id: str


def half_properties(producer_group: str) -> Mapping[str, str]:
    """Return the properties that make a message a half message, to be settled by a producer of the group."""
    return {"TRAN_MSG": "true", "PGROUP": producer_group}
