"""Whether a route that lost something is believed: only when two name servers say so, or no other answers.

A name server may have lost sight of brokers that live: cut off, paused, restarted. What is new is believed at once,
since a broker can be added to the routes only by registering; what is missing needs a second witness.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pointsman_client.core.route import Revision, TopicRoute

Loss = frozenset[tuple[object, ...]]

_THE_TOPIC = ("topic",)


def loss(known: TopicRoute | None, received: TopicRoute | None) -> Loss:
    """Return what the known route has and the received one has not: queues of groups, groups, replicas; or the topic.

    Fewer queues, another permission or another address is a change, and no loss.
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
    """What to make of the answers."""

    accepted: int | None
    """Position of the answer that counts; None: none of them, the known route stays."""
    is_disputed: bool
    """Whether name servers contradict each other on what is gone: ask again soon."""


def judge(known: TopicRoute | None, answers: Sequence[TopicRoute | None], *, all_queried: bool) -> Verdict | None:
    """Decide by what name servers received, in the order in which they were asked; None of them: not found.

    None as the result: ask another one. The first answer counts if it lost nothing, or if nobody else answers. Else
    the answer counts that lost most among those whose whole loss another one has, too.
    """
    losses = [loss(known, answer) for answer in answers]
    if not losses[0]:
        return Verdict(0, is_disputed=False)
    if len(answers) == 1:
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
    """Return the route with the mark that name servers contradict each other on it."""
    return route if route.stale else replace(route, stale=True)


MAX_BOOTS = 16
"""Processes of name servers whose counters are remembered, for each topic."""


class RevisionOrder:
    """The highest counter of each boot that was heard of a topic; the topic unheard of for longest makes room."""

    def __init__(self, max_topics: int) -> None:
        self._max_topics = max_topics
        self._counters: OrderedDict[str, dict[int, int]] = OrderedDict()

    def admit(self, topic: str, revision: Revision) -> bool:
        """Take an answer's revision; False for one that is older than what was heard from the same boot."""
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
