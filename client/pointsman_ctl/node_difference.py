"""Where two name servers differ: digests of routes, and what operators set; as JSON and as a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from rich.console import RenderableType
from rich.text import Text

from pointsman.wire.json_document import Document
from pointsman_ctl.answer_layout import WARNING, new_table
from pointsman_ctl.operator_texts import counted, duration_words, printable

SAME_WITHIN_SECONDS = 60.0
"""A change reaches one server after the other, and each counts the time that is left for itself."""
Key: TypeAlias = tuple[str, ...]
"""Kind, then the name."""


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


NodeSettings: TypeAlias = Mapping[Key, Setting]


@dataclass(frozen=True, slots=True)
class NodeDigests:
    """The digests of all routes of a node, and what operators set on it."""

    node: str
    state: str
    digests: Mapping[str, bytes]
    settings: NodeSettings = field(default_factory=dict)


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
        if not all(each is first or (each and first and first.is_same(each)) for each in at.values()):
            differences.append(SettingDifference(key, at))
    return differences


@dataclass(frozen=True, slots=True)
class DigestDifference:
    """Topics that the two do not agree on, sorted."""

    differing: tuple[str, ...]
    """Both have a route, and not the same."""
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether they agree on every topic."""
        return not (self.differing or self.only_first or self.only_second)


def digest_difference(first: NodeDigests, second: NodeDigests) -> DigestDifference:
    """Compare two nodes' routes."""
    ours, theirs = first.digests, second.digests
    return DigestDifference(
        differing=tuple(sorted(topic for topic in ours.keys() & theirs.keys() if ours[topic] != theirs[topic])),
        only_first=tuple(sorted(ours.keys() - theirs.keys())),
        only_second=tuple(sorted(theirs.keys() - ours.keys())),
    )


def to_difference_document(
    addrs: tuple[str, str],
    sides: tuple[NodeDigests, NodeDigests],
    difference: DigestDifference,
    settings: Sequence[SettingDifference],
) -> Document:
    """Render where two nodes differ."""

    def side(addr: str, digests: NodeDigests) -> Document:
        return {"addr": addr, "node": digests.node, "nodeState": digests.state, "topicCount": len(digests.digests)}

    return {
        "equal": difference.is_empty and not settings,
        "first": side(addrs[0], sides[0]),
        "second": side(addrs[1], sides[1]),
        "differing": list(difference.differing),
        "onlyFirst": list(difference.only_first),
        "onlySecond": list(difference.only_second),
        "settings": [
            {
                "kind": each.key[0],
                "name": list(each.key[1:]),
                "first": _setting(each.at[addrs[0]]),
                "second": _setting(each.at[addrs[1]]),
            }
            for each in settings
        ],
    }


def _setting(setting: Setting | None) -> Document | None:
    if setting is None:
        return None
    return {"value": setting.value, "remainingSeconds": setting.remaining_seconds}


def difference_parts(
    addrs: tuple[str, str],
    sides: tuple[NodeDigests, NodeDigests],
    difference: DigestDifference,
    settings: Sequence[SettingDifference],
) -> Iterable[RenderableType]:
    """Show the topics and settings on which two nodes differ, and what excuses it."""
    first, second = addrs
    found = [(topic, "differs") for topic in difference.differing]
    found += [(topic, f"only at {first}") for topic in difference.only_first]
    found += [(topic, f"only at {second}") for topic in difference.only_second]
    if found:
        table = new_table("TOPIC", "DIFFERENCE")
        for topic, words in sorted(found):
            table.add_row(printable(topic), words)
        yield table
    ours, theirs = len(sides[0].digests), len(sides[1].digests)
    counts = f"{counted(ours, 'topic')} at {first}, {theirs} at {second}"
    words = f"{len(found)} differ{'s' if len(found) == 1 else ''}" if found else "equal"
    yield Text(f"{counts}: {words}", style=WARNING if found else "green")
    if settings:
        table = new_table("SETTING", *(f"AT {addr}" for addr in addrs))
        for each in settings:
            table.add_row(printable(each.label), *(_setting_words(each.at[addr]) for addr in addrs))
        yield table
    settled = sides[0].settings.keys() | sides[1].settings.keys()
    words = f"{len(settings)} of {len(settled)} differ" if settings else f"{len(settled)} equal"
    if settled:
        yield Text(f"settings of operators: {words}", style=WARNING if settings else "green")
    for addr, side in zip(addrs, sides, strict=True):
        if side.state == "WARMING":
            yield Text(f"{addr} is WARMING: it may not have heard of every broker yet", style=WARNING)


def _setting_words(setting: Setting | None) -> str:
    if setting is None:
        return "not set"
    rest = "" if setting.remaining_seconds is None else f" for {duration_words(setting.remaining_seconds)}"
    return f"{printable(setting.value) or 'set'}{rest}"
