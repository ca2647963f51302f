"""Lag of consumer groups on a broker that is drained, and which of them to wait for.

A message is unread by a group while the group's committed offset is not beyond it. A group without a member reads
nothing during a drain, so it is reported and not waited for. Input comes in pieces, so that no step takes long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pointsman.group_topics import is_retry_topic
from pointsman_agent.core.measured_queue_stats import MAX_MESSAGES, QueueEnd
from pointsman_agent.core.queue import QueueKey

MAX_GROUPS = 20
"""Maximum number of groups of each kind in a report: those that are waited for, and those without a member."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a group, summed over all queues of this broker."""

    group: str
    lag: int
    """Unread messages, retry queues included."""
    retry_lag: int
    """Those of them in its retry queues, where a message may be due hours later."""
    member_count: int | None
    """Clients in the group; None: unknown shortly after a start."""

    @property
    def is_waited_for(self) -> bool:
        """Whether the group may still read the messages."""
        return self.member_count != 0


@dataclass(frozen=True, slots=True)
class LagReport:
    """All groups with unread messages, from one measurement."""

    groups: tuple[GroupLag, ...] = ()
    """At most MAX_GROUPS that are waited for, then as many that are not, each by descending lag."""
    group_count: int = 0
    lag: int = 0
    awaited_group_count: int = 0
    awaited_lag: int = 0
    unmeasured_queue_count: int = 0
    """Queues beyond the limit of a measurement: their lag is unknown."""

    @property
    def text(self) -> str:
        """Totals for operators, and what they do not include."""
        parts = [f"{self.lag} unread messages of {_groups(self.group_count)}" if self.group_count else ""]
        alone = self.group_count - self.awaited_group_count
        if alone:
            parts.append(f"{self.lag - self.awaited_lag} of {_groups(alone)} without a member, not waited for")
        if self.unmeasured_queue_count:
            parts.append(f"{self.unmeasured_queue_count} queues not measured")
        return "; ".join(filter(None, parts))


class LagTally:
    """Adds up lags. Each (group, queue) is added once."""

    def __init__(self) -> None:
        self._lags: dict[str, tuple[int, int]] = {}

    def add(self, group: str, queue: QueueKey, committed: int, end: QueueEnd) -> None:
        """Add one queue with the offset that the group committed; deleted messages do not count as unread."""
        unread = max(0, end.max_offset - max(committed, end.min_offset))
        if unread:
            lag, retry_lag = self._lags.get(group, (0, 0))
            self._lags[group] = (lag + unread, retry_lag + unread * is_retry_topic(queue.topic))

    def finish(self, members: Mapping[str, int] | None, *, unmeasured: int = 0) -> LagReport:
        """Return the report. ``members``: clients by group; None: unknown, so every group is waited for."""
        found = [
            GroupLag(
                group,
                min(lag, MAX_MESSAGES),
                min(retry_lag, MAX_MESSAGES),
                None if members is None else members.get(group, 0),
            )
            for group, (lag, retry_lag) in self._lags.items()
        ]
        found.sort(key=lambda each: (-each.lag, each.group))
        awaited = [each for each in found if each.is_waited_for]
        alone = [each for each in found if not each.is_waited_for]
        return LagReport(
            groups=(*awaited[:MAX_GROUPS], *alone[:MAX_GROUPS]),
            group_count=len(found),
            lag=sum(each.lag for each in found),
            awaited_group_count=len(awaited),
            awaited_lag=sum(each.lag for each in awaited),
            unmeasured_queue_count=unmeasured,
        )


def _groups(count: int) -> str:
    return "1 group" if count == 1 else f"{count} groups"
