"""Topics that the application wants and that have no route: watched on, so that they come back by themselves. Pure."""

from __future__ import annotations

from collections import OrderedDict

GIVEN_UP_AFTER_SECONDS = 600.0
"""After the last use; a topic deleted for good must not be asked for for ever."""


class WantedTopics:
    """Topic to when it was last wanted, monotonic seconds; at most ``max_topics``, the oldest makes room."""

    def __init__(self, max_topics: int) -> None:
        self._max_topics = max_topics
        self._wanted_at: OrderedDict[str, float] = OrderedDict()

    def want(self, topic: str, *, now: float) -> bool:
        """Note that the topic is wanted; return whether that is new."""
        is_new = topic not in self._wanted_at
        self._wanted_at[topic] = now
        self._wanted_at.move_to_end(topic)
        if len(self._wanted_at) > self._max_topics:
            self._wanted_at.popitem(last=False)
        return is_new

    def found(self, topic: str) -> None:
        """Note that the topic has a route: the route table keeps it from now on."""
        self._wanted_at.pop(topic, None)

    def topics(self, *, now: float) -> list[str]:
        """Return what is still wanted, the oldest first; the rest is forgotten."""
        while self._wanted_at:
            topic, wanted_at = next(iter(self._wanted_at.items()))
            if now - wanted_at <= GIVEN_UP_AFTER_SECONDS:
                break
            del self._wanted_at[topic]
        return list(self._wanted_at)
