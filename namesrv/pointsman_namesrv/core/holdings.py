"""How much of a bound of the node registrations use, in total and by peer.

A registration is never removed to make space for another: a stranger could then remove a broker from the routes. So the
bound has a reserve. Once the bound is reached, peers that hold less than another are still served, up to a tenth more,
and the peer that holds most is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from pointsman_namesrv.core.group import Replica
from pointsman_namesrv.core.model import Registration, TopicTable
from pointsman_namesrv.core.node_refusals import LimitExceeded
from pointsman_namesrv.core.static_topics import BYTES_LIMIT, MAX_BYTES, StaticTopics

MAX_DETAIL_BYTES = 64 * 1024 * 1024
"""Memory of the details of all brokers together, mainly labels."""
RESERVE_PART = 10
"""The reserve is this part of the bound."""


def detail_bytes(registration: Registration) -> int:
    """Return the estimated memory of a broker's details apart from its topics."""
    r = registration
    texts = (r.incarnation, r.ha_addr, r.agent_addr, r.zone, r.host, r.broker_version, r.agent_version)
    lists = (*r.filter_servers, *r.labels, *r.labels.values())
    return sum(60 + len(text) * (1 if text.isascii() else 4) for text in (*texts, *lists))


class Holdings:
    """Counts ``limit``, at most ``bound`` and the reserve; ``field`` is the request's, for errors."""

    def __init__(self, limit: str, bound: int, *, field: str) -> None:
        self.total = 0
        self._limit = limit
        self._bound = bound
        self._field = field
        self._by_peer: dict[str, int] = {}

    @property
    def room(self) -> int:
        """Return what is left of the bound, without the reserve."""
        return max(0, self._bound - self.total)

    def refuse_beyond(self, peer: str, amount: int, *, freed: Mapping[str, int]) -> None:
        """Raise LimitExceeded if this does not fit; ``freed``: what it replaces, by peer.

        What holds no more than it replaces always fits.
        """
        total = self.total + amount - sum(freed.values())
        if total <= max(self._bound, self.total):
            return
        wanted = self._by_peer.get(peer, 0) - freed.get(peer, 0) + amount
        if total <= self._bound + self._bound // RESERVE_PART and wanted < max(self._by_peer.values(), default=0):
            return
        raise LimitExceeded(self._limit, self._bound, field=self._field, value=total)

    def add(self, peer: str, amount: int) -> None:
        """Count what was registered, or with a negative amount what is no longer."""
        self.total += amount
        held = self._by_peer.get(peer, 0) + amount
        if held:
            self._by_peer[peer] = held
        else:
            self._by_peer.pop(peer, None)

    def check_invariants(self, expected: Mapping[str, int]) -> None:
        """Compare the counts with those by peer; for tests."""
        assert self._by_peer == {peer: amount for peer, amount in expected.items() if amount}
        assert self.total == sum(expected.values())


class PeerHoldings:
    """How much the registrations use of the node's bounds: brokers, topics, bytes of details and of static topics."""

    def __init__(self, *, max_brokers: int, max_topics: int) -> None:
        self.brokers = Holdings("brokers", max_brokers, field="broker")
        self.topics = Holdings("topics", max_topics, field="topics")
        self._details = Holdings("bytes_of_broker_details", MAX_DETAIL_BYTES, field="broker")
        self.static_topics = Holdings(BYTES_LIMIT, MAX_BYTES, field="topicQueueMappingInfoMap")

    def refuse_beyond(
        self, peer: str, registration: Registration, *, topics: TopicTable, replaced: Collection[Replica]
    ) -> None:
        """Raise LimitExceeded if a peer's registration does not fit in place of these."""
        self.brokers.refuse_beyond(peer, 1, freed=_sums(replaced, lambda _: 1))
        self.topics.refuse_beyond(peer, len(topics), freed=_sums(replaced, _topic_count))
        self._details.refuse_beyond(peer, detail_bytes(registration), freed=_sums(replaced, _detail_bytes))
        self.static_topics.refuse_beyond(
            peer, registration.static_topics.size, freed=_sums(replaced, _static_topic_bytes)
        )

    def change_topics(self, replica: Replica, topics: TopicTable, static_topics: StaticTopics) -> None:
        """Count other topics of a replica before they are applied. Raises LimitExceeded, and then counts nothing."""
        peer, held = replica.peer, replica.registration
        self.topics.refuse_beyond(peer, len(topics), freed={peer: len(held.topics)})
        self.static_topics.refuse_beyond(peer, static_topics.size, freed={peer: held.static_topics.size})
        self.topics.add(peer, len(topics) - len(held.topics))
        self.static_topics.add(peer, static_topics.size - held.static_topics.size)

    def count(self, replica: Replica, sign: int) -> None:
        """Count a replica, or with -1 discount it."""
        self.brokers.add(replica.peer, sign)
        self.topics.add(replica.peer, sign * _topic_count(replica))
        self._details.add(replica.peer, sign * _detail_bytes(replica))
        self.static_topics.add(replica.peer, sign * _static_topic_bytes(replica))

    def move(self, replica: Replica, peer: str) -> None:
        """Count a broker from now on for the connection that it moved to."""
        if replica.peer != peer:
            self.count(replica, -1)
            replica.peer = peer
            self.count(replica, 1)

    def check_invariants(self, replicas: Collection[Replica]) -> None:
        """Compare the counts with the replicas; for tests."""
        self.brokers.check_invariants(_sums(replicas, lambda _: 1))
        self.topics.check_invariants(_sums(replicas, _topic_count))
        self._details.check_invariants(_sums(replicas, _detail_bytes))
        self.static_topics.check_invariants(_sums(replicas, _static_topic_bytes))


def _topic_count(replica: Replica) -> int:
    return len(replica.registration.topics)


def _detail_bytes(replica: Replica) -> int:
    return detail_bytes(replica.registration)


def _static_topic_bytes(replica: Replica) -> int:
    return replica.registration.static_topics.size


def _sums(replicas: Iterable[Replica], amount: Callable[[Replica], int]) -> Counter[str]:
    """Amounts by peer."""
    sums = Counter[str]()
    for replica in replicas:
        sums[replica.peer] += amount(replica)
    return sums
