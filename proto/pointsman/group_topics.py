"""The topics of a consumer group itself: retries of its failed messages, and dead letters. Pure.

A group's retry topic is in no topic source: every broker with messages of the group has it, with one queue for each
delay, so that within a queue the message written first is due first.
"""

from __future__ import annotations

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
"""RocketMQ's ``MixAll.RETRY_GROUP_TOPIC_PREFIX`` and ``DLQ_GROUP_TOPIC_PREFIX``."""

RETRY_DELAYS_SECONDS = (
    10.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 420.0, 480.0, 540.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0,
)  # fmt: skip
"""Wait before each retry: levels 3 to 18 of RocketMQ's ``messageDelayLevel``, by queue id of the retry topic."""

RETRY_QUEUES = len(RETRY_DELAYS_SECONDS)

MAX_GROUP_LENGTH = 120
"""RocketMQ's ``Validators.CHARACTER_MAX_LENGTH`` for groups: the prefix must still fit into a topic's name."""


def retry_topic(group: str) -> str:
    """Return the topic in which a group's failed messages wait for their next attempt."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the topic of a group's dead letters: messages that are no longer retried."""
    return DLQ_PREFIX + group


def without_pop_retry(topic: str, group: str) -> str:
    """Return the application's topic of a group's POP retry topic, ``%RETRY%group_topic`` or ``%RETRY%group+topic``.

    RocketMQ's ``KeyBuilder.parseNormalTopic``; any other topic is returned as it is.
    """
    prefix = retry_topic(group)
    is_retry = topic.startswith(prefix) and topic[len(prefix) : len(prefix) + 1] in {"_", "+"}
    return topic[len(prefix) + 1 :] if is_retry else topic


def is_group_topic(topic: str) -> bool:
    """Return whether a topic is a group's retry topic or dead letters."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def is_retry_topic(topic: str) -> bool:
    """Return whether a topic is a group's retry topic."""
    return topic.startswith(RETRY_PREFIX) and len(topic) > len(RETRY_PREFIX)
