"""Namespaces: a prefix of topics and groups, by which applications share brokers without sharing names. Pure.

The rules are RocketMQ's (``NamespaceUtil``): ``SHOP%orders``, ``%RETRY%SHOP%billing``, ``%DLQ%SHOP%billing``. Names of
RocketMQ's own topics and groups have none.
"""

from __future__ import annotations

from pointsman.group_topics import DLQ_PREFIX, RETRY_PREFIX

SEPARATOR = "%"
SYSTEM_TOPICS = frozenset(
    {
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
        "SELF_TEST_TOPIC",
        "TBW102",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
"""RocketMQ's ``TopicValidator.SYSTEM_TOPIC_SET``."""
SYSTEM_PREFIXES = ("rmq_sys_", "CID_RMQ_SYS_")
"""Of further topics, and of groups (``MixAll.isSysConsumerGroup``)."""


def with_namespace(namespace: str, name: str) -> str:
    """Return a topic or group with its namespace; one that has it is returned as it is. Empty: no namespace."""
    if not namespace or not name or _is_of_system(name):
        return name
    kind, rest = _split(name)
    prefix = namespace + SEPARATOR
    return name if rest.startswith(prefix) else kind + prefix + rest


def without_namespace(namespace: str, name: str) -> str:
    """Return a topic or group as the application knows it; one of another namespace, or none, as it is."""
    kind, rest = _split(name)
    prefix = namespace + SEPARATOR
    return kind + rest[len(prefix) :] if namespace and rest.startswith(prefix) else name


def _split(name: str) -> tuple[str, str]:
    """Return the prefix of a group's retry topic or dead letters, else an empty one, and the rest."""
    kind = next((prefix for prefix in (RETRY_PREFIX, DLQ_PREFIX) if name.startswith(prefix)), "")
    return kind, name[len(kind) :]


def _is_of_system(name: str) -> bool:
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIXES)
