"""The service as the configuration wants it."""

from __future__ import annotations

from broker_agent.config import GroupsSection
from broker_agent.core.group_rules import GroupRules, NoticeRules
from broker_agent.groups.servicer import ConsumerGroups
from pointsman.service.clock import Clock


def build_groups(section: GroupsSection, *, clock: Clock, boot: int) -> ConsumerGroups:
    """Build the service; ``boot`` is 64 random bits."""
    rules = GroupRules(
        expiry=section.expiry_seconds,
        scan_interval=section.scan_interval_seconds,
        stream_grace=section.stream_grace_seconds,
        warm_up=section.warm_up_seconds,
        notices=NoticeRules(notify=section.notify, hold_down=section.hold_down_seconds),
        notices_of={row.name: NoticeRules(notify=row.notify, hold_down=row.hold_down_seconds) for row in section.group},
        max_clients=section.max_clients,
        max_groups=section.max_groups,
    )
    return ConsumerGroups(rules, clock=clock, boot=boot, max_watchers=section.max_watchers)
