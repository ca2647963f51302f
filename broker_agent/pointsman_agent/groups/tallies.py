"""Counters of the groups, for prometheus-client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from pointsman_agent.core.group_membership import Cause, Changes, MembershipStatus
from pointsman_agent.core.member_readings import MemberReadings
from pointsman_agent.groups.group_differences import GroupDifferences
from pointsman_agent.groups.stuck_queues import StuckQueues


@dataclass(slots=True)
class Tallies:
    """Plain integers, updated on the event loop's thread only: there are thousands of heartbeats per second."""

    beats: dict[MembershipStatus, int] = field(default_factory=lambda: dict.fromkeys(MembershipStatus, 0))
    removals: dict[Cause, int] = field(default_factory=lambda: dict.fromkeys(Cause, 0))
    changes: int = 0
    """Groups whose membership changed for their members."""
    takeovers: int = 0
    """Clients that a later stream took over from an open one."""

    def take(self, changes: Changes) -> None:
        """Count the changes made by a call."""
        self.changes += len(changes.groups)
        for removal in changes.removals:
            self.removals[removal.cause] += 1


@dataclass(frozen=True, slots=True)
class Gauges:
    """Current values, read from the thread of a scrape."""

    clients: Callable[[], int]
    subscriptions: Callable[[], int]
    streams: Callable[[], int]
    refused_streams: Callable[[], int]
    watchers: Callable[[], int]
    held_groups: Callable[[], int]
    pinned_groups: Callable[[], int]
    notices: Callable[[], int]
    """Messages sent to watchers."""
    differences: GroupDifferences
    readings: MemberReadings
    stuck: StuckQueues


class GroupCollector(Collector):
    """The metrics of the groups. Label values come from outside in one only, which names few members at a time."""

    def __init__(self, tallies: Tallies, gauges: Gauges) -> None:
        self._tallies = tallies
        self._gauges = gauges

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Return the current values."""
        tallies, gauges = self._tallies, self._gauges
        beats = CounterMetricFamily(
            "pointsman_agent_consumer_heartbeats",
            "Heartbeats of consumers, by result: ok, taken_over.",
            labels=("result",),
        )
        for status, count in tallies.beats.items():
            beats.add_metric((status.value,), count)
        yield beats
        removals = CounterMetricFamily(
            "pointsman_agent_consumer_removals",
            "Consumers removed from groups, by cause: left, stream_ended, silence, limit.",
            labels=("cause",),
        )
        for cause, count in tallies.removals.items():
            removals.add_metric((cause.value,), count)
        yield removals
        yield CounterMetricFamily(
            "pointsman_agent_group_changes", "Membership changes of groups.", value=tallies.changes
        )
        yield CounterMetricFamily(
            "pointsman_agent_group_notifications",
            "Membership changes pushed to group watchers.",
            value=gauges.notices(),
        )
        yield CounterMetricFamily(
            "pointsman_agent_consumer_takeovers",
            "Consumers whose newer stream replaced an open one.",
            value=tallies.takeovers,
        )
        yield GaugeMetricFamily("pointsman_agent_consumers", "Connected consumers.", value=gauges.clients())
        yield GaugeMetricFamily(
            "pointsman_agent_group_subscriptions",
            "Subscriptions of all group members.",
            value=gauges.subscriptions(),
        )
        yield GaugeMetricFamily(
            "pointsman_agent_consumer_streams", "Open KeepMembership streams.", value=gauges.streams()
        )
        yield CounterMetricFamily(
            "pointsman_agent_consumer_streams_rejected",
            "KeepMembership streams closed because no heartbeat arrived.",
            value=gauges.refused_streams(),
        )
        yield GaugeMetricFamily("pointsman_agent_group_watchers", "Open WatchGroup streams.", value=gauges.watchers())
        yield GaugeMetricFamily(
            "pointsman_agent_groups_delayed",
            "Groups whose membership changes are delayed to merge several into one.",
            value=gauges.held_groups(),
        )
        yield GaugeMetricFamily(
            "pointsman_agent_groups_pinned",
            "Groups that are pinned or have pinned queues.",
            value=gauges.pinned_groups(),
        )
        differences = gauges.differences
        yield GaugeMetricFamily(
            "pointsman_agent_differing_members",
            "Members whose settings differ from those of the oldest member of their group.",
            value=differences.members,
        )
        yield GaugeMetricFamily(
            "pointsman_agent_members_standing_aside",
            "Members that hold no queues because their settings differ from those of the oldest member of their group.",
            value=differences.standing_aside,
        )
        named = GaugeMetricFamily(
            "pointsman_agent_member_difference",
            "One series for each difference of the first 20 differing members, by: message_model, consume_type, "
            "subscriptions, ordered, strategy, zone. 1: the member holds no queues; 0: it follows the oldest member.",
            labels=("group", "client_id", "difference"),
        )
        for each in differences.named:
            named.add_metric((each.group, each.client_id, each.difference), each.stands_aside)
        yield named
        yield GaugeMetricFamily(
            "pointsman_agent_reported_queues", "Queues that members report to read.", value=gauges.readings.count
        )
        yield CounterMetricFamily(
            "pointsman_agent_reported_queues_left_out",
            "Reports of queues that were left out at a limit.",
            value=gauges.readings.left_out,
        )
        yield GaugeMetricFamily(
            "pointsman_agent_stuck_queues",
            "Queues whose listener call or committed offset does not move.",
            value=gauges.stuck.count,
        )
        stuck = GaugeMetricFamily(
            "pointsman_agent_stuck_queue",
            "1 for each of the first 20 stuck queues, by: stuck_call, stuck_offset.",
            labels=("group", "topic", "queue", "client_id", "why"),
        )
        for queue in gauges.stuck.named:
            labels = (queue.group, queue.queue.topic, str(queue.queue.queue_id), queue.client_id, queue.why.value)
            stuck.add_metric(labels, 1)
        yield stuck
