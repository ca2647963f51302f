"""Where name servers differ in what operators set on them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

SAME_WITHIN_SECONDS = 60.0
"""A change reaches one server after the other, and each counts the time that is left for itself."""


class Setting(NamedTuple):
    """What is set at one server."""

    value: str
    remaining_seconds: float | None
    """None: it does not end by itself."""

    def is_same(self, other: Setting) -> bool:
        """Whether two servers have the same, but for the time that an operator's command takes."""
        if self.value != other.value:
            return False
        if self.remaining_seconds is None or other.remaining_seconds is None:
            return self.remaining_seconds is other.remaining_seconds
        return abs(self.remaining_seconds - other.remaining_seconds) <= SAME_WITHIN_SECONDS


Key: TypeAlias = tuple[str, ...]
"""Kind, then the name."""
NodeSettings: TypeAlias = Mapping[Key, Setting]


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """One setting on which servers differ."""

    key: Key
    at: Mapping[str, Setting | None]
    """By address; None: not set there."""

    @property
    def label(self) -> str:
        """The setting by name: ``guard c1``."""
        return f"{self.key[0].lower().replace('_', ' ')} {'/'.join(part for part in self.key[1:] if part)}"


def setting_differences(nodes: Mapping[str, NodeSettings]) -> list[SettingDifference]:
    """Compare the settings of servers, by address; sorted by kind and name."""
    differences = []
    for key in sorted({key for settings in nodes.values() for key in settings}):
        at = {addr: settings.get(key) for addr, settings in nodes.items()}
        first = next(iter(at.values()))
        if any(
            (each is None) is not (first is None) or (first and each and not first.is_same(each))
            for each in at.values()
        ):
            differences.append(SettingDifference(key, at))
    return differences
