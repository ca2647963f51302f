"""What operators laid over the brokers' own word: wiped write permissions, and topics hidden by a deletion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from namesrv.core.model import DataVersion, GroupKey, Registration


class Overrides:
    """Read by the route table whenever a group changes; written by NameServer alone, which then refreshes the group."""

    def __init__(self) -> None:
        self.wipes: dict[GroupKey, str] = {}
        """Groups without write permission, each with the incarnation that was wiped; empty: it was not known."""
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

    def ends_wipe(self, key: GroupKey, incarnation: str) -> bool:
        """Whether a registration under this incarnation is the next process after the one that was wiped."""
        wiped = self.wipes.get(key, "")
        return bool(wiped and incarnation and wiped != incarnation)

    def restore(
        self, wipes: Mapping[GroupKey, str], tombstones: Mapping[GroupKey, Mapping[str, DataVersion]]
    ) -> Iterable[GroupKey]:
        """Take what a snapshot kept; return the groups that it concerns."""
        self.wipes.update(wipes)
        self.tombstones.update({key: dict(topics) for key, topics in tombstones.items()})
        return {*wipes, *tombstones}
