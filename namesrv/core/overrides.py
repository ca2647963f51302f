"""What operators laid over the brokers' own word: wiped write permissions, and topics hidden by a deletion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from namesrv.core.events import Reason
from namesrv.core.model import MASTER_ID, DataVersion, GroupKey, Registration

_ENDS_WIPE = frozenset({Reason.DRAIN, Reason.REMOVED_FROM_CONFIG})
"""Reasons of a departure after which a broker that returns has its full permission, in the same process too."""


class Overrides:
    """Read by the route table whenever a group changes; written by NameServer alone, which then refreshes the group."""

    def __init__(self) -> None:
        self.wipes: dict[GroupKey, str] = {}
        """Groups without write permission, each with the broker's incarnation that was wiped; empty: it is unknown."""
        self.tombstones: dict[GroupKey, dict[str, DataVersion]] = {}
        """Hidden topics of each group, with the version of the topic set under which they are hidden."""

    def hidden(self, registration: Registration) -> frozenset[str]:
        """The topics of a contributor that stay out of the routes."""
        tombstones = self.tombstones.get(registration.identity.group_key)
        if not tombstones:
            return frozenset()
        version = registration.data_version
        return frozenset(topic for topic, under in tombstones.items() if under == version)

    def hide(self, topic: str, registration: Registration) -> None:
        """Hide a topic of a contributor until it brings another version of its topics."""
        self.tombstones.setdefault(registration.identity.group_key, {})[topic] = registration.data_version

    def end_tombstones(self, registration: Registration) -> bool:
        """Take a contributor's word: tombstones of another version of its topics are over. Returns whether any was."""
        key, version = registration.identity.group_key, registration.data_version
        before = self.tombstones.pop(key, {})
        standing = {topic: under for topic, under in before.items() if under == version}
        if standing:
            self.tombstones[key] = standing
        return len(standing) < len(before)

    def why_wipe_ends(self, registration: Registration, *, recovered: bool) -> Reason | None:
        """Return why what a broker reports now ends the wipe of its group; None: there is none, or it stays.

        ``recovered``: its probe failed in its last report and no longer does. That is the sign of the next process
        where no incarnation is known; where one is known, it alone decides.
        """
        wiped = self.wipes.get(registration.identity.group_key)
        if wiped is None or registration.identity.broker_id != MASTER_ID:
            return None
        if wiped and registration.incarnation and wiped != registration.incarnation:
            return Reason.INCARNATION
        return Reason.PROBE if recovered and not wiped else None

    def why_departure_ends_wipe(self, registration: Registration, reason: Reason, *, failing: bool) -> Reason | None:
        """Return why the end of a registration ends the wipe of its group; None: there is none, or it outlives it.

        A drained or removed broker returns with its full permission. Where no incarnation is known, so does one that
        was stopped (its agent probed it a last time) or whose probe failed last.
        """
        wiped = self.wipes.get(registration.identity.group_key)
        if wiped is None or registration.identity.broker_id != MASTER_ID:
            return None
        if reason in _ENDS_WIPE or (not wiped and reason is Reason.SHUTDOWN):
            return reason
        return Reason.PROBE if failing and not wiped else None

    def follow_incarnation(self, registration: Registration) -> None:
        """Hold a wipe against the incarnation that a serving master registers: a changed probe may know another."""
        key = registration.identity.group_key
        is_failing = registration.health.failing is not None
        if key in self.wipes and registration.identity.broker_id == MASTER_ID and not is_failing:
            self.wipes[key] = registration.incarnation

    def restore(
        self, wipes: Mapping[GroupKey, str], tombstones: Mapping[GroupKey, Mapping[str, DataVersion]]
    ) -> Iterable[GroupKey]:
        """Take what a snapshot kept; return the groups that it concerns."""
        self.wipes.update(wipes)
        self.tombstones.update({key: dict(topics) for key, topics in tombstones.items()})
        return {*wipes, *tombstones}
