"""Queues and consumer groups of the fleet, merged from the last measurements of its brokers, and what to do about them.

Each measurement names the top of its broker's lists, so in a larger fleet the busiest, and those furthest behind, are
here; their numbers are sums of what was named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pointsman import queue_findings
from pointsman.group_topics import DLQ_PREFIX, dlq_topic, is_group_topic
from pointsman_namesrv.core.model import GroupKey
from pointsman_namesrv.core.reported_queue_stats import GroupTotals, QueueLag, QueuePuts, QueueStats, TopicTotals


class Finding(NamedTuple):
    """What should be done about a topic or a group."""

    kind: str
    says: str
    cure: str


@dataclass(slots=True)
class TopicNow:
    """One topic over the brokers of a cluster."""

    cluster: str
    topic: str
    queue_count: int = 0
    idle_queue_count: int = 0
    put_rate: float = 0.0
    highest_put_rate: float = 0.0
    depth: int = 0
    hottest: tuple[str, int] | None = None
    """Broker name and number of the fastest queue; None: no measurement named it."""

    @property
    def skew(self) -> float:
        """Return the rate of the fastest queue, divided by the mean of all; 0: nothing was added."""
        return self.highest_put_rate * self.queue_count / self.put_rate if self.put_rate else 0.0

    def findings(self) -> Iterator[Finding]:
        """Yield what should be done."""
        is_hot = self.queue_count > 1 and self.skew > queue_findings.SKEW_ABOVE
        if is_hot and self.put_rate > queue_findings.PUT_RATE_ABOVE and not is_group_topic(self.topic) and self.hottest:
            broker_name, queue_id = self.hottest
            rates = (self.highest_put_rate, self.put_rate, self.skew, self.queue_count)
            yield Finding(
                "key_skew",
                queue_findings.SKEW % (queue_id, self.topic, broker_name, *rates),
                queue_findings.CURE_OF_SKEW % min(math.ceil(self.skew), self.queue_count),
            )


@dataclass(slots=True)
class GroupNow:
    """One group in one topic over the brokers of a cluster."""

    cluster: str
    group: str
    topic: str
    queue_count: int = 0
    member_count: int = 0
    is_warming: bool = False
    """Whether an agent does not know all its members yet."""
    lag: int = 0
    highest_lag: int = 0
    put_rate: float = 0.0
    commit_rate: float | None = None
    behind_queue_count: int = 0
    stuck_queue_count: int = 0
    membership_changes: int = 0
    """In the last ten minutes, as the agent counts that saw most."""
    membership_changes_in_hour: int = 0

    @property
    def catch_up_seconds(self) -> float | None:
        """Return the time until nothing is unread at these rates; None: it does not catch up, or that is not known."""
        if not self.lag:
            return 0.0
        gain = (self.commit_rate or 0.0) - self.put_rate
        return self.lag / gain if gain > 0 else None

    def findings(self, *, queue_count: int, is_widest: bool) -> Iterator[Finding]:
        """Yield what should be done.

        ``queue_count``: of the topic. ``is_widest``: whether the group reads no topic with more queues; a member with a
        queue of that one is not idle.
        """
        if is_group_topic(self.topic):
            return
        lags = f"group {self.group} lags by {self.lag} messages in topic {self.topic}"
        if self.stuck_queue_count:
            says = f"group {self.group} is stuck in {self.stuck_queue_count} of its {self.queue_count} queues of topic "
            cure = f"`pointsmanctl group {self.group}` names the queues, their members and what they stand on"
            yield Finding("stuck", says + self.topic, cure)
        if not self.member_count:
            if self.lag and not self.is_warming:
                yield Finding("no_members", lags, queue_findings.CURE_OF_NO_MEMBERS)
        elif self.behind_queue_count:
            if self.member_count >= queue_count:
                says = lags + queue_findings.TOO_FEW_QUEUES % (self.member_count, queue_count)
                yield Finding("too_few_queues", says, queue_findings.CURE_OF_TOO_FEW_QUEUES)
            else:
                queues = "1 queue" if self.behind_queue_count == 1 else f"{self.behind_queue_count} queues"
                says = f"{lags}, and in {queues} more arrives than it reads"
                yield Finding("falling_behind", says, queue_findings.CURE_OF_FALLING_BEHIND % queue_count)
        elif is_widest and self.member_count > queue_count:
            idle = (self.member_count - queue_count, self.member_count, self.group, self.topic, queue_count)
            yield Finding("idle_members", queue_findings.IDLE_MEMBERS % idle, queue_findings.CURE_OF_IDLE_MEMBERS)


class BrokerQueue(NamedTuple):
    """A queue as its broker's measurement names it."""

    key: GroupKey
    puts: QueuePuts


class BrokerLag(NamedTuple):
    """A lag as its broker's measurement names it."""

    key: GroupKey
    lag: QueueLag


@dataclass(slots=True)
class FleetQueues:
    """Merges the measurements of brokers, each broker name once; ``topic``: only of this topic, empty: of all."""

    topic: str = ""
    keeps_queues: bool = True
    """False: queues are only counted in their topics."""
    queues: list[BrokerQueue] = field(default_factory=list)
    lags: list[BrokerLag] = field(default_factory=list)
    _topics: dict[tuple[str, str], TopicNow] = field(default_factory=dict)
    _groups: dict[tuple[str, str], dict[str, GroupNow]] = field(default_factory=dict)
    """By cluster and group, then by topic."""
    _dead_letters: dict[tuple[str, str], float] = field(default_factory=dict)
    """Messages per second by cluster and the topic of the dead letters."""

    def add(self, key: GroupKey, stats: QueueStats, *, is_warming: bool) -> None:
        """Add a broker; ``is_warming``: its agent does not know all members yet."""
        for topic in stats.top_topics:
            if topic.topic.startswith(DLQ_PREFIX) and topic.put_rate:
                at = key.cluster, topic.topic
                self._dead_letters[at] = self._dead_letters.get(at, 0.0) + topic.put_rate
            if self._is_wanted(topic):
                self._add_topic(key, topic)
        for queue in filter(self._is_wanted, stats.top_put_rates):
            if self.keeps_queues:
                self.queues.append(BrokerQueue(key, queue))
            of_topic = self._topics.get((key.cluster, queue.topic))
            if of_topic is not None and queue.put_rate >= of_topic.highest_put_rate:
                of_topic.hottest = (key.broker_name, queue.queue_id)
        for lag in filter(self._is_wanted, stats.top_lags):
            self.lags.append(BrokerLag(key, lag))
        for group in stats.top_groups:  # of other topics, too: a member without queues of this one may have some there
            self._add_group(key, group, is_warming=is_warming)

    def every_topic(self) -> list[TopicNow]:
        """Return all topics, unsorted."""
        return list(self._topics.values())

    def every_group(self) -> list[GroupNow]:
        """Return all groups in each of their topics, unsorted."""
        return [each for of_group in self._groups.values() for each in of_group.values()]

    def topics(self, limit: int) -> list[TopicNow]:
        """Return the topics, the busiest first."""
        return sorted(self._topics.values(), key=lambda each: (-each.put_rate, each.cluster, each.topic))[:limit]

    def groups(self, limit: int) -> list[GroupNow]:
        """Return the groups, those furthest behind first."""
        wanted = [each for each in self.every_group() if self._is_wanted(each)]
        return sorted(wanted, key=lambda each: (-each.lag, each.cluster, each.group, each.topic))[:limit]

    def busiest_queues(self, limit: int) -> list[BrokerQueue]:
        """Return the queues, the busiest first."""
        return sorted(self.queues, key=lambda each: (-each.puts.put_rate, each.key, each.puts))[:limit]

    def longest_lags(self, limit: int) -> list[BrokerLag]:
        """Return the lags, the longest first."""
        return sorted(self.lags, key=lambda each: (-each.lag.lag, each.key, each.lag[:3]))[:limit]

    def findings(self, group: GroupNow, queues_of: Callable[[str, str], int]) -> list[Finding]:
        """Return what should be done about a group; ``queues_of(cluster, topic)``: the queues that are registered."""

        def width(each: GroupNow) -> int:
            return max(each.queue_count, queues_of(each.cluster, each.topic))

        others = (each for each in self._groups[group.cluster, group.group].values() if not is_group_topic(each.topic))
        widest = max(others, key=lambda each: (width(each), each.topic), default=group)
        found = list(group.findings(queue_count=width(group), is_widest=widest is group))
        if widest is group and group.membership_changes > queue_findings.STORM_ABOVE:
            says = f"the members of group {group.group} changed {group.membership_changes} times in ten minutes"
            found.append(Finding("rebalance_storm", says, queue_findings.CURE_OF_STORM % group.group))
        letters = dlq_topic(group.group)
        rate = self._dead_letters.get((group.cluster, letters), 0.0) if widest is group else 0.0
        if rate:
            says = f"group {group.group} sends messages to its dead letters, {rate:.2g} per second"
            found.append(Finding("dead_letters", says, queue_findings.CURE_OF_DEAD_LETTERS % letters))
        return found

    def _is_wanted(self, entry: TopicTotals | QueuePuts | QueueLag | GroupNow) -> bool:
        return not self.topic or entry.topic == self.topic

    def _add_topic(self, key: GroupKey, totals: TopicTotals) -> None:
        topic = self._topics.setdefault((key.cluster, totals.topic), TopicNow(key.cluster, totals.topic))
        topic.queue_count += totals.queue_count
        topic.idle_queue_count += totals.idle_queue_count
        topic.put_rate += totals.put_rate
        if totals.highest_put_rate > topic.highest_put_rate:
            topic.highest_put_rate, topic.hottest = totals.highest_put_rate, None
        topic.depth += totals.depth

    def _add_group(self, key: GroupKey, totals: GroupTotals, *, is_warming: bool) -> None:
        topics = self._groups.setdefault((key.cluster, totals.group), {})
        group = topics.setdefault(totals.topic, GroupNow(key.cluster, totals.group, totals.topic))
        group.queue_count += totals.queue_count
        group.member_count = max(group.member_count, totals.member_count)
        group.is_warming = group.is_warming or is_warming
        group.lag += totals.lag
        group.highest_lag = max(group.highest_lag, totals.highest_lag)
        group.put_rate += totals.put_rate
        if totals.commit_rate is not None:
            group.commit_rate = (group.commit_rate or 0.0) + totals.commit_rate
        group.behind_queue_count += totals.behind_queue_count
        group.stuck_queue_count += totals.stuck_queue_count
        group.membership_changes = max(group.membership_changes, totals.membership_changes)
        in_hour = max(group.membership_changes_in_hour, totals.membership_changes_in_hour)
        group.membership_changes_in_hour = in_hour
