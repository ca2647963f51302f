"""Order configurations that give a broker more queues of a topic than it has.

No consumer reads such a queue, and RocketMQ's broker refuses it ("request queueId[2] is illegal",
``AbstractSendMessageProcessor.msgCheck``). So a configuration is compared with the registrations when it is set; where
a topic shrinks later, or the brokers register later, clients ignore the surplus and this node reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from pointsman.wire.refusals import FieldViolation
from pointsman_namesrv.core.group import Group
from pointsman_namesrv.core.kv import KvConfig, order_counts
from pointsman_namesrv.core.route_table import RouteTable

MAX_CHECKED = 1_000
"""Order topics that one list of problems compares, the first by name: it is built within one call."""
MAX_REPORTED = 5


class Surplus(NamedTuple):
    """A broker that an order configuration gives more queues than it has."""

    broker_name: str
    configured: int
    existing: int


def order_violations(routes: RouteTable, topic: str, conf: str) -> Iterator[FieldViolation]:
    """Check a valid configuration against the brokers that are registered now."""
    for each in _surpluses(routes, topic, order_counts(conf), _groups_by_name(routes.groups.values())):
        yield FieldViolation(
            "value",
            f"configures {each.configured} queues of topic {topic} on broker {each.broker_name}, which has "
            f"{each.existing}: configure at most {each.existing}, or add the queues on the broker first",
        )


def order_problems(routes: RouteTable, kv: KvConfig) -> list[str]:
    """Return the problems of configurations that were accepted before a broker registered or lost queues."""
    orders = kv.order_topics()
    if not orders:
        return []
    groups = _groups_by_name(routes.groups.values())
    checked = islice(sorted(orders.items()), MAX_CHECKED)
    found = [problem for topic, conf in checked for problem in _problems(routes, topic, conf, groups)]
    more = len(found) - MAX_REPORTED
    return [*found[:MAX_REPORTED], *([f"{more} more order configurations exceed their topics"] if more > 0 else [])]


def problems_of_order(routes: RouteTable, topic: str, conf: str) -> list[str]:
    """Return the problems of one topic's configuration."""
    return list(_problems(routes, topic, conf, _groups_by_name(routes.groups.values())))


def _problems(routes: RouteTable, topic: str, conf: str, groups: Mapping[str, list[Group]]) -> Iterator[str]:
    for each in _surpluses(routes, topic, order_counts(conf), groups):
        yield (
            f"the order configuration of topic {topic} has {each.configured} queues on broker {each.broker_name}, "
            f"which has {each.existing}: clients ignore the surplus; correct it with `pointsmanctl order-topic set`"
        )


def _surpluses(
    routes: RouteTable, topic: str, counts: Mapping[str, int], groups: Mapping[str, list[Group]]
) -> Iterator[Surplus]:
    registered = {name: max(_write_queues(group, topic) for group in groups[name]) for name in counts if name in groups}
    if not any(registered.values()) and not routes.holders(topic):
        return  # no broker has the topic yet
    for name, existing in registered.items():
        if counts[name] > existing:
            yield Surplus(name, counts[name], existing)


def _groups_by_name(groups: Iterable[Group]) -> Mapping[str, list[Group]]:
    by_name: dict[str, list[Group]] = {}
    for group in groups:
        by_name.setdefault(group.key.broker_name, []).append(group)
    return by_name


def _write_queues(group: Group, topic: str) -> int:
    """Return the queues by the group's topics, or by its lowest replica while none of them is routed."""
    replica = group.contributor() or group.replicas[min(group.replicas)]
    queues = replica.registration.topics.get(topic)
    return 0 if queues is None else queues.write_queue_nums
