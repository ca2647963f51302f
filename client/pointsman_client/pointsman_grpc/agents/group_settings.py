"""Settings that the members of a group must have in common: stated to agents, received from them, and logged."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp

from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_client.core.allocation import AllocationStrategy
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import DifferingMember, Members
from pointsman_client.core.stated_strategy import KNOWN_STRATEGIES, StatedStrategy, stated

MAX_NAMED = 10
"""Members that one line of the log names at most."""
NAMES = {
    wire.SETTING_DIFFERENCE_MESSAGE_MODEL: "message model",
    wire.SETTING_DIFFERENCE_CONSUME_TYPE: "consume type (push or pull)",
    wire.SETTING_DIFFERENCE_SUBSCRIPTIONS: "subscriptions",
    wire.SETTING_DIFFERENCE_ORDERED: "ordered",
    wire.SETTING_DIFFERENCE_STRATEGY: "strategy",
    wire.SETTING_DIFFERENCE_ZONE: "no zone",
}

logger = logging.getLogger(__name__)


def own_settings(strategy: AllocationStrategy, *, is_ordered: bool, started_at: datetime) -> wire.MemberSettings:
    """Return what a member states in each heartbeat; equal ones cost the agent nothing, so it never changes."""
    setting, timestamp = stated(strategy), Timestamp()
    timestamp.FromDatetime(started_at)
    return wire.MemberSettings(
        strategy=wire.AllocationSetting(
            name=setting.name,
            settings=setting.settings,
            digest=setting.digest,
            buildable_from=setting.buildable_from,
            needs_zone=setting.needs_zone,
        ),
        is_ordered=is_ordered,
        known_strategies=KNOWN_STRATEGIES,
        started_at=timestamp,
        follows_queue_pins=True,
        follows_resets=True,
    )


def to_members(membership: wire.GroupMembership) -> Members:
    """Convert a list from an agent; an agent that is older than the settings states none."""
    is_stated = membership.HasField("settings")
    setting = membership.settings.strategy
    return Members(
        tuple(sorted(membership.client_ids)),
        tuple(sorted(membership.pinned_client_ids)),
        StatedStrategy(
            setting.name, setting.settings, setting.digest, setting.buildable_from, needs_zone=setting.needs_zone
        )
        if is_stated
        else None,
        membership.settings.is_ordered if is_stated else None,
        membership.holder,
        tuple(
            DifferingMember(each.client_id, difference_names(each.differences), each.stands_aside, each.strategy)
            for each in membership.differing
        ),
        tuple(
            sorted(
                (MessageQueue(each.topic, each.cluster, each.broker_name, each.queue_id), each.client_id)
                for each in membership.queue_pins
                if each.client_id
            )
        ),
    )


def difference_names(differences: Iterable[wire.SettingDifference.ValueType]) -> tuple[str, ...]:
    """Return what differs, for people; what a newer agent compares is unknown here."""
    return tuple(NAMES.get(each, "another setting") for each in differences)


class DifferenceLog:
    """Logs once for each change which members of a group differ, and in what."""

    def __init__(self, group: str, client_id: str) -> None:
        self._group = group
        self._client_id = client_id
        self._logged: tuple[DifferingMember, ...] = ()
        self._is_aside = False

    def note(self, members: Members) -> None:
        """Log the differences if they are others than before."""
        before, self._logged = self._logged, members.differing
        if members.differing == before:
            return
        if members.differing:
            more = len(members.differing) - MAX_NAMED
            logger.warning(
                "members of group %s differ from its oldest member %s%s: %s%s",
                self._group,
                members.holder,
                "" if members.strategy is None else f" (strategy {members.strategy.text})",
                "; ".join(map(str, members.differing[:MAX_NAMED])),
                f"; and {more} more" if more > 0 else "",
            )
        else:
            logger.warning("members of group %s have the same settings again", self._group)
        was_aside, self._is_aside = self._is_aside, members.stands_aside(self._client_id)
        own = members.standing_of(self._client_id)
        if own is not None and own.stands_aside and not was_aside:
            logger.warning(
                "this member %s of group %s holds no queues, since it differs from the oldest member %s in: %s; "
                "it takes part when that is no longer so, or when the older members have left",
                self._client_id,
                self._group,
                members.holder,
                ", ".join(own.differences),
            )
        elif was_aside and not self._is_aside:
            logger.warning("this member %s of group %s takes part again", self._client_id, self._group)
