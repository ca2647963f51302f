"""Which of two answers about a topic is the newer, as far as that can be told. Pure.

Counters order the answers of one boot. Between boots there is no order: another name server, or the same one restarted,
tells its whole state, and whoever spoke last counts.
"""

from __future__ import annotations

from collections import OrderedDict

from pointsman_client.route import Revision

REMEMBERED_BOOTS = 16
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
        if len(counters) > REMEMBERED_BOOTS:
            del counters[next(iter(counters))]
        return True
