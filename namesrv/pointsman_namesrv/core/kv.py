"""The KV configuration: strings that operators store here, by namespace and key (RocketMQ ``KVConfigManager``).

Namespace ``ORDER_TOPIC_CONFIG`` holds the order topics: the topic is the key, ``brokerName:queues;...`` the value.
Clients take the queues of an order topic from that string alone, so an invalid one is refused here. So is a list of
name servers in namespace ``NSADDR`` (:mod:`pointsman.address_list`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pointsman import address_list
from pointsman.names import MAX_QUEUES, registered_name_problem, text_problem
from pointsman.wire.refusals import FieldViolation, InvalidRequest, shown
from pointsman_namesrv.core.node_refusals import KvNotFound, LimitExceeded

ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"
MAX_VALUE_LENGTH = 4_096
MAX_ENTRIES = 10_000
MAX_BYTES = 3 * 1024 * 1024
"""The complete configuration is one response, which gRPC limits to 4 MiB."""


class KvEntry(NamedTuple):
    """One key. Sorts by namespace and key."""

    namespace: str
    key: str
    value: str

    @property
    def size(self) -> int:
        """Return the bytes of its three strings."""
        return sum(len(text.encode()) for text in self)


class KvConfig:
    """namespace -> key -> value, bounded in keys and in bytes."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, str]] = {}
        self._count = 0
        self._bytes = 0

    def put(self, namespace: str, key: str, value: str) -> bool:
        """Set one key; return whether that changed anything. Raises InvalidRequest, LimitExceeded."""
        grown = self.check_put(namespace, key, value)
        before = self.get(namespace, key)
        if before == value:
            return False
        self._namespaces.setdefault(namespace, {})[key] = value
        self._count += before is None
        self._bytes = grown
        return True

    def check_put(self, namespace: str, key: str, value: str) -> int:
        """Return the bytes of all entries once a key is set; raises what :meth:`put` raises, and changes nothing."""
        violations = list(entry_violations(namespace, key, value))
        if violations:
            raise InvalidRequest(violations)
        before = self.get(namespace, key)
        if before is None and self._count >= MAX_ENTRIES:
            raise LimitExceeded("kv_entries", MAX_ENTRIES)
        grown = self._bytes + KvEntry(namespace, key, value).size
        if before is not None:
            grown -= KvEntry(namespace, key, before).size
        if grown > MAX_BYTES:
            raise LimitExceeded("kv_bytes", MAX_BYTES)
        return grown

    def check_delete(self, namespace: str, key: str) -> str:
        """Return the value of a key that is to be removed. Raises KvNotFound."""
        value = self.get(namespace, key)
        if value is None:
            raise KvNotFound(namespace, key)
        return value

    def delete(self, namespace: str, key: str) -> None:
        """Remove one key. Raises KvNotFound."""
        value = self.check_delete(namespace, key)
        self._count -= 1
        self._bytes -= KvEntry(namespace, key, value).size
        del self._namespaces[namespace][key]
        if not self._namespaces[namespace]:
            del self._namespaces[namespace]

    def get(self, namespace: str, key: str) -> str | None:
        """Return the value of one key, if it is set."""
        return self._namespaces.get(namespace, {}).get(key)

    def entries(self, namespace: str = "") -> list[KvEntry]:
        """Return all keys, or those of one namespace, sorted."""
        chosen = (namespace,) if namespace else self._namespaces
        return sorted(
            KvEntry(name, key, value) for name in chosen for key, value in self._namespaces.get(name, {}).items()
        )

    def order_topics(self) -> dict[str, str]:
        """Return a new dictionary of topic -> order configuration."""
        return dict(self._namespaces.get(ORDER_TOPIC_NAMESPACE, {}))

    def restore(self, entries: Iterable[KvEntry]) -> None:
        """Restore the keys of a snapshot. Raises as :meth:`put` does, for a snapshot that this version cannot read."""
        for entry in entries:
            self.put(*entry)

    def __len__(self) -> int:
        return self._count


def entry_violations(namespace: str, key: str, value: str) -> Iterator[FieldViolation]:
    """Check one key and its value; the fields are named as they are in a request."""
    for field, name in (("namespace", namespace), ("key", key)):
        problem = registered_name_problem(name)
        if problem is not None:
            yield FieldViolation(field, f"{problem}: {shown(name)}")
    if namespace == address_list.NAMESPACE and address_list.unit_of(key) is None:
        yield FieldViolation("key", f"of namespace {namespace} must be nsaddr or nsaddr-UNIT, not {shown(key)}")
    problem = text_problem(value, longest=MAX_VALUE_LENGTH)
    if problem is None and namespace == ORDER_TOPIC_NAMESPACE:
        problem = order_conf_problem(value)
    elif problem is None and namespace == address_list.NAMESPACE:
        problem = address_list.list_problem(value)
    if problem is not None:
        yield FieldViolation("value", f"{problem}: {shown(value)}")


def order_conf_problem(conf: str) -> str | None:
    """Check ``brokerName:queues;...``; one semicolon may end it."""
    brokers: set[str] = set()
    for part in conf.removesuffix(";").split(";"):
        name, colon, queues = part.partition(":")
        if not colon:
            return f"must be brokerName:queues;..., and {shown(part)} is not"
        problem = registered_name_problem(name)
        if problem is not None:
            return f"names broker {shown(name)}, which {problem}"
        if name in brokers:
            return f"names broker {shown(name)} twice"
        if not (queues.isascii() and queues.isdigit() and len(queues) <= 5 and int(queues) <= MAX_QUEUES):
            return f"gives broker {shown(name)} {shown(queues)} queues, and not a number from 0 to {MAX_QUEUES}"
        brokers.add(name)
    return None


def order_counts(conf: str) -> dict[str, int]:
    """Read a configuration without a problem: queues by broker name, in its order."""
    parts = (part.partition(":") for part in conf.removesuffix(";").split(";"))
    return {name: int(queues) for name, _, queues in parts}
