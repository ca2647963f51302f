"""Rules for accepting a route that lacks something: two name servers confirm it, or no other one responds.

A name server that was partitioned, paused or restarted may have expired brokers that are up. Additions are accepted
immediately, since only a registration adds a broker to the routes. Removals need a second name server.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pointsman_client.core.route import Revision, TopicRoute

Loss = frozenset[tuple[object, ...]]

_THE_TOPIC = ("topic",)


def loss(known: TopicRoute | None, received: TopicRoute | None) -> Loss:
    """Return what the received route lacks of the known one: queues of groups, groups, replicas; or the topic.

    Fewer queues, other permissions or another address are changes, not losses.
    """
    parts = frozenset() if known is None else _parts(known)
    return parts - _parts(received) if received is not None else parts | {_THE_TOPIC}


def _parts(route: TopicRoute) -> Loss:
    groups = {("group", *data.key) for data in route.broker_datas}
    queues = {("queues", *data.broker_key) for data in route.queue_datas}
    replicas = {("replica", *data.key, replica.broker_id) for data in route.broker_datas for replica in data.replicas}
    return frozenset(groups | queues | replicas)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of comparing responses."""

    accepted: int | None
    """Position of the accepted response; None: none, the known route stays."""
    is_disputed: bool
    """Whether name servers contradict each other on removals; query them again soon."""


def judge(known: TopicRoute | None, responses: Sequence[TopicRoute | None], *, all_queried: bool) -> Verdict | None:
    """Choose among the responses of name servers, in query order; a response of None: topic not found.

    Returns None if another server must be queried. The first response is accepted if it has no losses, or if no other
    server responds. Otherwise the response with the most losses is accepted, of those whose losses are all confirmed
    by another response.
    """
    losses = [loss(known, response) for response in responses]
    if not losses[0]:
        return Verdict(0, is_disputed=False)
    if len(responses) == 1:
        return Verdict(0, is_disputed=False) if all_queried else None
    witnessed = [
        position
        for position, lost in enumerate(losses)
        if any(lost <= other for place, other in enumerate(losses) if place != position)
    ]
    best = max(witnessed, key=lambda position: (len(losses[position]), -position), default=None)
    is_disputed = best is None or any(not lost <= losses[best] for lost in losses)
    if is_disputed and not all_queried:
        return None
    return Verdict(best, is_disputed=is_disputed)


def as_stale(route: TopicRoute) -> TopicRoute:
    """Return the route marked as stale."""
    return route if route.stale else replace(route, stale=True)


MAX_BOOTS = 16
"""Name server processes whose counters are retained, per topic."""


class RevisionOrder:
    """The highest counter received of each topic and boot; the least recently updated topic is evicted."""

    def __init__(self, max_topics: int) -> None:
        self._max_topics = max_topics
        self._counters: OrderedDict[str, dict[int, int]] = OrderedDict()

    def admit(self, topic: str, revision: Revision) -> bool:
        """Record a revision; return False if a newer one of the same boot was received before."""
        counters = self._counters.setdefault(topic, {})
        self._counters.move_to_end(topic)
        if len(self._counters) > self._max_topics:
            self._counters.popitem(last=False)
        if revision.counter < counters.get(revision.boot, 0):
            return False
        counters.pop(revision.boot, None)
        counters[revision.boot] = revision.counter
        if len(counters) > MAX_BOOTS:
            del counters[next(iter(counters))]
        return True
