"""Requests and replies over RocketMQ brokers: a message that awaits one answer, which its broker passes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

REPLY_TYPE = "reply"
"""``MSG_TYPE`` of a reply."""


class ReplyAddress(NamedTuple):
    """Where the reply to a received message goes."""

    client_id: str
    """Of the producer that waits."""
    correlation_id: str
    """Of the request."""
    ttl: str
    """How long it waits, in milliseconds; empty: not stated."""

    def properties(self) -> Mapping[str, str]:
        """Return the properties of a request by RocketMQ's names."""
        return {"CORRELATION_ID": self.correlation_id, "REPLY_TO_CLIENT": self.client_id, "TTL": self.ttl}

    def reply_properties(self) -> Mapping[str, str]:
        """Return those of its reply."""
        given = {name: value for name, value in self.properties().items() if value}
        return given | {"MSG_TYPE": REPLY_TYPE}


def reply_topic(cluster: str) -> str:
    """Return the topic of a cluster's replies, which each of its brokers has (``MixAll.getReplyTopic``)."""
    return f"{cluster}_REPLY_TOPIC"
