"""Which dead letters are meant: by key, id, tag, topic, property, reason and time of birth. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pointsman.wire.json_document import Document
from pointsman_client import ReceivedMessage

FIELDS = ("key", "id", "tag", "topic", "reason", "property.NAME")
MAX_CONDITIONS = 1_000
_PROPERTY = "property."


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions that all hold; several for one field mean any of them."""

    values: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By field: ``key``, ``id``, ``tag``, ``topic``, ``reason`` (a part of it) or ``property.NAME``."""
    since: datetime | None = None
    """Born then or later; a message whose time of birth is not known is not selected."""
    until: datetime | None = None
    """Born before then."""

    @property
    def is_everything(self) -> bool:
        """Whether there is no condition."""
        return not self.values and self.since is None and self.until is None

    def matches(self, letter: ReceivedMessage) -> bool:
        """Return whether a dead letter is meant."""
        if self.since is not None and (letter.born_at is None or letter.born_at < self.since):
            return False
        if self.until is not None and (letter.born_at is None or letter.born_at >= self.until):
            return False
        return all(_has(letter, name, values) for name, values in self.values.items())

    def to_document(self) -> Document:
        """Render it."""
        return {
            "fields": {name: list(values) for name, values in self.values.items()},
            "since": None if self.since is None else self.since.isoformat(),
            "until": None if self.until is None else self.until.isoformat(),
        }

    def __str__(self) -> str:
        parts = [f"{name}={' or '.join(values)}" for name, values in self.values.items()]
        parts += [f"since {self.since.isoformat()}"] if self.since else []
        parts += [f"until {self.until.isoformat()}"] if self.until else []
        return ", ".join(parts) or "all"


def read_selection(
    conditions: Sequence[str], *, since: datetime | None = None, until: datetime | None = None
) -> Selection:
    """Read ``FIELD=VALUE`` conditions. Raises ValueError."""
    if len(conditions) > MAX_CONDITIONS:
        raise ValueError(f"has {len(conditions)} conditions, at most {MAX_CONDITIONS} are allowed")
    values: dict[str, tuple[str, ...]] = {}
    for condition in conditions:
        name, equals, value = condition.partition("=")
        is_property = name.startswith(_PROPERTY) and len(name) > len(_PROPERTY)
        if not equals or not (is_property or name in FIELDS[:-1]):
            raise ValueError(f"{condition!r} must be FIELD=VALUE with FIELD one of {', '.join(FIELDS)}")
        if not value:
            raise ValueError(f"{condition!r} has no value")
        values[name] = (*values.get(name, ()), value)
    if since is not None and until is not None and since >= until:
        raise ValueError(f"since {since.isoformat()} is not before until {until.isoformat()}")
    return Selection(values, since, until)


def _has(letter: ReceivedMessage, name: str, values: Sequence[str]) -> bool:
    if name == "key":
        return not set(letter.keys).isdisjoint(values)
    if name == "id":
        return letter.message_id in values or letter.offset_message_id in values
    if name == "tag":
        return letter.tags in values
    if name == "topic":
        return letter.topic in values
    if name == "reason":
        return any(value.casefold() in letter.error.casefold() for value in values)
    return letter.properties.get(name.removeprefix(_PROPERTY)) in values
