"""Topics of another source, and the retry topics and dead letters that consumer groups have at the broker."""

from __future__ import annotations

import logging

from pointsman.clock import Clock
from pointsman.deadline import within
from pointsman.group_topics import is_group_topic
from pointsman.names import PERM_READ
from pointsman.single_call_thread import SingleCallThread
from pointsman_agent.core.topic_set import TopicConfig, TopicSet
from pointsman_agent.topic_source import TopicSource, TopicSourceError
from pointsman_agent.topic_source.paused_collector import collector_paused

FIND_SECONDS = 5.0
"""Deadline of the search at the broker."""

log = logging.getLogger(__name__)


class WithGroupTopics:
    """Adds the groups' topics that ``groups`` finds, readable alone; one that ``source`` has, too, is as that says.

    While the broker cannot be searched, those that were found last stay: a broker that is down registers as well.
    """

    def __init__(self, source: TopicSource, groups: TopicSource, *, state_version: int, clock: Clock) -> None:
        self._source = source
        self._groups = groups
        self._state_version = state_version
        self._clock = clock
        self._thread = SingleCallThread("topics-of-groups", busy=TopicSourceError)
        self._found: TopicSet | None = None
        self._problem = ""
        self._parts: tuple[TopicSet, TopicSet | None] | None = None
        self._held: TopicSet | None = None

    async def read(self) -> TopicSet:
        """See :meth:`TopicSource.read`."""
        topics = await self._source.read()
        await self._find()
        if (
            self._held is None
            or self._parts is None
            or self._parts[0] is not topics
            or self._parts[1] is not self._found
        ):
            found = self._found
            self._held = topics if found is None else await self._thread.run(lambda: self._merged(topics, found))
            self._parts = topics, found
        return self._held

    async def _find(self) -> None:
        problem = ""
        try:
            self._found = await within(self._clock, FIND_SECONDS, self._groups.read())
        except TopicSourceError as error:
            problem = str(error)
        except TimeoutError:
            problem = f"no response within {FIND_SECONDS:g} s"
        if problem and not self._problem:
            log.info("retry topics and dead letters were not searched", extra={"facts": {"reason": problem}})
        self._problem = problem

    def _merged(self, topics: TopicSet, found: TopicSet) -> TopicSet:
        with collector_paused():
            names = {each.topic for each in topics.topics}
            added = [
                TopicConfig(each.topic, read_queue_nums=each.read_queue_nums, write_queue_nums=0, perm=PERM_READ)
                for each in found.topics
                if is_group_topic(each.topic) and each.topic not in names
            ]
            if not added:
                return topics
            return TopicSet.from_content((*topics.topics, *added), state_version=self._state_version)
