"""When a group first consumed its topics. Every broker's agent stores a copy; the earliest time wins.

With a copy at every broker, the time outlives the brokers that the group began with. It is recorded only after all
agents were queried. So the copy of one agent is valid while others are down, and only a group without any copy has to
wait for all agents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime

import grpc

from pointsman.v1 import offset_service_pb2 as wire
from pointsman_client.aio import deadline_in
from pointsman_client.errors import AgentFailedError, PointsmanError, RequestRejectedError
from pointsman_client.pointsman_grpc.agents.broker_agents import agent_addrs
from pointsman_client.pointsman_grpc.agents.queue_batch import CALL_SECONDS
from pointsman_client.pointsman_grpc.links import AgentLinks
from pointsman_client.ports.coordination import BegunTopics, RoutedBrokers

MAX_TOPICS_PER_CALL = 1_000

HAS_NO_RECORD = frozenset({grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT})
"""The agent is of an earlier version, or its broker no longer has the topic; it is not waited for."""


class TopicBegins:
    """First consume times of one group. See :meth:`~pointsman_client.ports.coordination.OffsetStore.begin`."""

    def __init__(self, brokers: RoutedBrokers, links: AgentLinks, *, group: str) -> None:
        self._brokers = brokers
        self._links = links
        self._group = group

    async def begin(self, moments: Mapping[str, datetime]) -> BegunTopics:
        """Return the earliest time stored at an agent, else that of ``moments``; record it at agents that lack it."""
        agents = {topic: [agent_addrs([each]) for each in self._brokers.brokers_of([topic])] for topic in moments}
        found = _Found()
        all_agents = _by_agent(agents, first_only=False)
        await asyncio.gather(*(self._query(addr, dict.fromkeys(topics), found) for addr, topics in all_agents.items()))
        holders = {topic: [addrs[0] for addrs in of_groups if addrs] for topic, of_groups in agents.items()}
        unknown = found.unknown(holders)
        wanted = {topic: min([moment, *found.of(topic).values()]) for topic, moment in moments.items()}
        wanted = {topic: moment for topic, moment in wanted.items() if topic not in unknown}
        await self._record(wanted, {topic: agents[topic] for topic in wanted}, found)
        unknown |= found.unknown({topic: holders[topic] for topic in wanted})
        # Another member that began at the same time may have recorded an earlier one.
        known = {topic: min(found.of(topic).values(), default=moment) for topic, moment in wanted.items()}
        return BegunTopics({topic: known[topic] for topic in known if topic not in unknown}, unknown)

    async def _record(
        self, wanted: Mapping[str, datetime], agents: Mapping[str, Collection[tuple[str, ...]]], found: _Found
    ) -> None:
        calls = []
        for addr, topics in _by_agent(agents, first_only=True).items():
            later = {topic: wanted[topic] for topic in topics if found.of(topic).get(addr) != wanted[topic]}
            if later and addr not in found.failed:
                calls.append(self._query(addr, later, found))
        await asyncio.gather(*calls)

    async def _query(self, addr: str, moments: Mapping[str, datetime | None], found: _Found) -> None:
        topics = list(moments)
        for start in range(0, len(topics), MAX_TOPICS_PER_CALL):
            request = wire.BeginTopicsRequest(group=self._group)
            for topic in topics[start : start + MAX_TOPICS_PER_CALL]:
                entry, moment = request.topics.add(topic=topic), moments[topic]
                if moment is not None:
                    entry.first_consumed_at.FromDatetime(moment)
            link, deadline = self._links.to(addr), deadline_in(CALL_SECONDS)
            try:
                response = await link.call(link.offsets.BeginTopics, request, deadline=deadline)
            except (AgentFailedError, RequestRejectedError) as error:
                if error.status not in HAS_NO_RECORD:
                    found.failed[addr] = error
                return
            for each in response.topics:
                found.add(each.topic, addr, each.first_consumed_at.ToDatetime(UTC))


class _Found:
    def __init__(self) -> None:
        self.failed: dict[str, PointsmanError] = {}
        """Agents that could not be queried."""
        self._moments: dict[str, dict[str, datetime]] = {}

    def add(self, topic: str, addr: str, moment: datetime) -> None:
        self._moments.setdefault(topic, {})[addr] = moment

    def of(self, topic: str) -> Mapping[str, datetime]:
        """Return the stored time of a topic, by agent."""
        return self._moments.get(topic, {})

    def unknown(self, holders: Mapping[str, Iterable[str]]) -> dict[str, PointsmanError]:
        """Return topics without a stored time where a query of one of the holders failed, with its error."""
        failures = {
            topic: [self.failed[addr] for addr in addrs if addr in self.failed]
            for topic, addrs in holders.items()
            if not self.of(topic)
        }
        return {topic: errors[0] for topic, errors in failures.items() if errors}


def _by_agent(agents: Mapping[str, Iterable[tuple[str, ...]]], *, first_only: bool) -> dict[str, list[str]]:
    """Return the topics of each agent; ``first_only``: only the first agent of each replica group."""
    found: dict[str, list[str]] = {}
    for topic, of_groups in agents.items():
        for addrs in of_groups:
            for addr in addrs[:1] if first_only else addrs:
                found.setdefault(addr, []).append(topic)
    return found
