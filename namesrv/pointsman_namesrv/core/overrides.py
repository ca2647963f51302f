"""Operators' settings that override brokers' registrations: wiped write permissions, and topics hidden by a
deletion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pointsman_namesrv.core.broker_events import write_perm_event
from pointsman_namesrv.core.events import Event
from pointsman_namesrv.core.model import MASTER_ID, DataVersion, GroupKey, Reason, Registration

_ENDS_WIPE = frozenset({Reason.DRAIN, Reason.REMOVED_FROM_CONFIG})
"""Reasons of a departure after which a returning broker has its full permission, even in the same process."""
_OF_VERSION = "data_version "
"""Prefix of the wiped version of a RocketMQ broker that registers itself."""
NEXT_REGISTRATION = _OF_VERSION
"""Wiped version of such a broker while it is absent: its next registration ends the wipe."""


def wiped_against(registration: Registration) -> str:
    """Return what a wipe of this master applies to; empty: unknown.

    That is the process (incarnation) of a broker with an agent, and the version of the topics of a RocketMQ broker that
    registers itself, as in RocketMQ (``RouteInfoManager.registerBroker``).
    """
    if registration.from_broker is None:
        return registration.incarnation
    return f"{_OF_VERSION}{registration.data_version}"


class Overrides:
    """Read by the route table when a group changes; written by NameServer alone, which then refreshes the group."""

    def __init__(self) -> None:
        self.wipes: dict[GroupKey, str] = {}
        """Groups without write permission, each with what was wiped, see :func:`wiped_against`."""
        self.tombstones: dict[GroupKey, dict[str, DataVersion]] = {}
        """Hidden topics of each group, with the version of the topic set under which they are hidden."""

    def hidden(self, registration: Registration) -> frozenset[str]:
        """Return the topics of a contributor that stay out of the routes."""
        return self.hidden_under(registration.identity.group_key, registration.data_version)

    def hidden_under(self, key: GroupKey, version: DataVersion) -> frozenset[str]:
        """Return the topics of a group that are hidden while its topics have this version."""
        tombstones = self.tombstones.get(key)
        if not tombstones:
            return frozenset()
        return frozenset(topic for topic, under in tombstones.items() if under == version)

    def hide(self, topic: str, registration: Registration) -> None:
        """Hide a topic of a contributor until it registers another version of its topics."""
        self.tombstones.setdefault(registration.identity.group_key, {})[topic] = registration.data_version

    def show(self, topic: str, key: GroupKey) -> bool:
        """End the deletion of one topic in a group; return whether there was one."""
        tombstones = self.tombstones.get(key, {})
        was_hidden = tombstones.pop(topic, None) is not None
        if was_hidden and not tombstones:
            del self.tombstones[key]
        return was_hidden

    def end_tombstones(self, registration: Registration) -> bool:
        """End the tombstones of other versions of a contributor's topics; return whether there were any."""
        key, version = registration.identity.group_key, registration.data_version
        before = self.tombstones.pop(key, {})
        remaining = {topic: under for topic, under in before.items() if under == version}
        if remaining:
            self.tombstones[key] = remaining
        return len(remaining) < len(before)

    def end_wipe(self, registration: Registration, *, recovered: bool) -> tuple[Event, ...]:
        """End the wipe of a broker that reports from its next process, see :meth:`why_wipe_ends`."""
        return self._lift(registration, self.why_wipe_ends(registration, recovered=recovered))

    def end_wipe_of_version(self, registration: Registration) -> tuple[Event, ...]:
        """End the wipe of a RocketMQ broker that registers other topics, see :meth:`why_version_ends_wipe`."""
        return self._lift(registration, self.why_version_ends_wipe(registration))

    def _lift(self, registration: Registration, reason: Reason | None) -> tuple[Event, ...]:
        if reason is None:
            return ()
        key = registration.identity.group_key
        del self.wipes[key]
        detail: dict[str, object] = {}
        if reason is Reason.INCARNATION:
            detail["incarnation"] = registration.incarnation
        elif reason is Reason.DATA_VERSION:
            detail["data_version"] = str(registration.data_version)
        return (write_perm_event(key, reason, writable=True, detail=detail),)

    def why_wipe_ends(self, registration: Registration, *, recovered: bool) -> Reason | None:
        """Return why what an agent reports now ends the wipe of its group; None: there is none, or it stays.

        ``recovered``: its probe failed in its last report and no longer does. Where no incarnation is known, that shows
        the next process. Where one is known, it alone decides.
        """
        wiped = self._wiped_incarnation(registration)
        if wiped is None or registration.from_broker is not None:
            return None
        if wiped and registration.incarnation and wiped != registration.incarnation:
            return Reason.INCARNATION
        return Reason.PROBE if recovered and not wiped else None

    def why_version_ends_wipe(self, registration: Registration) -> Reason | None:
        """Return why what a RocketMQ broker registers now ends the wipe of its group; None: there is none, or it stays.

        The next version of its topics ends it, and a registration after an absence; not the first one after its
        agent's.
        """
        wiped = self.wipes.get(registration.identity.group_key, "")
        is_of_version = wiped.startswith(_OF_VERSION) and registration.from_broker is not None
        if not is_of_version or registration.identity.broker_id != MASTER_ID:
            return None
        return None if wiped == wiped_against(registration) else Reason.DATA_VERSION

    def keep_wipe(self, held: Registration, registration: Registration) -> None:
        """Keep the wipe of a group for the next version of its master's topics.

        That version adds a single new topic, which is all that RocketMQ changes then
        (``RouteInfoManager.registerBroker``). The new topic is read-only here; in RocketMQ it may be written.
        """
        key = registration.identity.group_key
        if registration.identity.broker_id == MASTER_ID and self.wipes.get(key) == wiped_against(held):
            self.wipes[key] = wiped_against(registration)

    def note_departure(self, registration: Registration, reason: Reason, *, failing: bool) -> tuple[Event, ...]:
        """End the wipe if it does not outlive the registration, see :meth:`why_departure_ends_wipe`.

        A wipe of a RocketMQ broker ends with its next registration, but not when an operator evicted it.
        """
        ended = self._lift(registration, self.why_departure_ends_wipe(registration, reason, failing=failing))
        key = registration.identity.group_key
        is_master = registration.identity.broker_id == MASTER_ID
        if key in self.wipes and is_master and registration.from_broker is not None and reason is not Reason.ADMIN:
            self.wipes[key] = NEXT_REGISTRATION
        return ended

    def _wiped_incarnation(self, registration: Registration) -> str | None:
        """Return the wiped incarnation of a master's group, empty where it is unknown; None: there is no wipe."""
        wiped = self.wipes.get(registration.identity.group_key)
        if wiped is None or registration.identity.broker_id != MASTER_ID:
            return None
        return "" if wiped.startswith(_OF_VERSION) else wiped

    def why_departure_ends_wipe(self, registration: Registration, reason: Reason, *, failing: bool) -> Reason | None:
        """Return why the end of a registration ends the wipe of its group; None: there is none, or it outlives it.

        A drained or removed broker returns with its full permission. Where no incarnation is known, so does one that
        was stopped (its agent probed it a last time) or whose probe failed last.
        """
        wiped = self._wiped_incarnation(registration)
        if wiped is None or registration.from_broker is not None:
            return None
        if reason in _ENDS_WIPE or (not wiped and reason is Reason.SHUTDOWN):
            return reason
        return Reason.PROBE if failing and not wiped else None

    def follow_incarnation(self, registration: Registration) -> None:
        """Apply a wipe to the incarnation that a serving master registers: a changed probe may report another."""
        key = registration.identity.group_key
        is_failing = registration.health.failing is not None
        if key in self.wipes and registration.identity.broker_id == MASTER_ID and not is_failing:
            self.wipes[key] = wiped_against(registration)

    def restore(
        self, wipes: Mapping[GroupKey, str], tombstones: Mapping[GroupKey, Mapping[str, DataVersion]]
    ) -> Iterable[GroupKey]:
        """Restore a snapshot's settings; return the groups that they affect."""
        self.wipes.update(wipes)
        self.tombstones.update({key: dict(topics) for key, topics in tombstones.items()})
        return {*wipes, *tombstones}
