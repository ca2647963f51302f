"""Allocation strategies by value: as a member states its own to its group, and as another member builds the stated one.

The members of a group must divide queues in the same way, also while a deploy changes the strategy. So each states its
own, and the membership states which one holds (:mod:`pointsman_client.core.rebalance`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pointsman_client.core.allocation import (
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    RoomByNameOrZone,
)
from pointsman_client.errors import PointsmanError

KNOWN_STRATEGIES = 1
"""The set of strategies that :func:`built_from` builds. Raise it with each new one, and let only that one need it."""
MAX_NAME_LENGTH = 127
MAX_SETTINGS_LENGTH = 512
"""Of the JSON text; a longer one is not stated, so only a member with equal settings can use the strategy."""

MAX_VIRTUAL_NODES = 10_000
"""Of a strategy that another member may build: each one costs every member a hash, for each member."""


@dataclass(frozen=True, slots=True)
class StatedStrategy:
    """A strategy by value."""

    name: str
    settings: str
    """JSON with sorted keys; empty: too long."""
    digest: bytes
    """SHA-256 of name and settings; equal digests divide queues equally."""
    buildable_from: int = 0
    """The lowest :data:`KNOWN_STRATEGIES` of a client that can build it; 0: none can."""
    needs_zone: bool = False
    """Whether every client id must name a zone."""

    @property
    def text(self) -> str:
        """For people: the name, and the settings if there are any."""
        return self.name if self.settings in {"", "{}"} else f"{self.name} {self.settings}"


def stated(strategy: AllocationStrategy) -> StatedStrategy:
    """Return a strategy by value.

    The settings of an application's own class are not known: two are equal if class and ``name`` are. The queues of
    ``ByConfig`` are not compared either, since each member has its own.
    """
    name, settings, is_buildable = _by_value(strategy)
    name = _printable(name)
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return StatedStrategy(
        name,
        text if len(text) <= MAX_SETTINGS_LENGTH else "",
        hashlib.sha256(f"{name} {text}".encode()).digest(),
        buildable_from=KNOWN_STRATEGIES if is_buildable and len(text) <= MAX_SETTINGS_LENGTH else 0,
        needs_zone=type(strategy) is MachineRoomNearby and type(strategy.resolver) is RoomByNameOrZone,
    )


def built_from(setting: StatedStrategy) -> AllocationStrategy | None:
    """Build a stated strategy; None: it cannot be built here."""
    if not 0 < setting.buildable_from <= KNOWN_STRATEGIES:
        return None
    try:
        strategy = _build(setting.name, json.loads(setting.settings))
    except (ValueError, TypeError, KeyError, RecursionError, PointsmanError):
        return None
    # A digest of other values: this client would divide queues differently.
    return strategy if strategy is not None and stated(strategy).digest == setting.digest else None


def _by_value(strategy: AllocationStrategy) -> tuple[str, dict[str, Any], bool]:
    """Return name and settings, and whether another member can build the strategy from them.

    Exact classes only: a subclass may divide queues in another way.
    """
    kind = type(strategy)
    if kind is Averagely or kind is AveragelyByCircle:
        return strategy.name, {}, True
    if kind is ByConfig:
        return strategy.name, {}, False
    if kind is ConsistentHash:
        assert isinstance(strategy, ConsistentHash)  # noqa: S101  # for the type checker
        nodes = strategy.virtual_nodes
        return strategy.name, {"virtual_nodes": nodes}, nodes <= MAX_VIRTUAL_NODES
    if kind is MachineRoom:
        assert isinstance(strategy, MachineRoom)  # noqa: S101  # as above
        return strategy.name, {"rooms": sorted(map(str, strategy.rooms))}, True
    if kind is MachineRoomNearby:
        assert isinstance(strategy, MachineRoomNearby)  # noqa: S101  # as above
        name, settings, is_buildable = _by_value(strategy.inner)
        own: dict[str, Any] = {"inner": {"name": name, "settings": settings}}
        if type(strategy.resolver) is not RoomByNameOrZone:
            own["resolver"], is_buildable = _class_of(strategy.resolver), False
        return NEARBY, own, is_buildable
    return str(strategy.name), {"class": _class_of(strategy)}, False


NEARBY = "MACHINE_ROOM_NEARBY"


def _build(name: str, settings: Mapping[str, Any]) -> AllocationStrategy | None:
    if name == ConsistentHash.name:
        return ConsistentHash(settings["virtual_nodes"])
    if name == MachineRoom.name:
        return MachineRoom(settings["rooms"])
    if name == NEARBY:
        inner = _build(settings["inner"]["name"], settings["inner"]["settings"])
        return MachineRoomNearby(inner) if inner is not None else None
    if name == Averagely.name:
        return Averagely()
    return AveragelyByCircle() if name == AveragelyByCircle.name else None


def _class_of(each: object) -> str:
    return f"{type(each).__module__}.{type(each).__qualname__}"


def _printable(name: str) -> str:
    """Return a name as an agent accepts it."""
    return ascii(name)[1:-1][:MAX_NAME_LENGTH] or "?"
