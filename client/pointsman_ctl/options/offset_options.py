"""Where offsets are reset to, and in which queues: options of ``offsets reset`` and how they are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto

import click

from pointsman_ctl.options.message_options import QueueChoice, read_queue_choice
from pointsman_ctl.options.moment_options import FORMS, read_moment

MAX_OFFSET = 2**63 - 1
"""RocketMQ's, and more than any queue has."""
_NUMBER = re.compile(r"[0-9]{1,19}")
_RELATIVE = re.compile(r"[+-][0-9]{1,19}")


class TargetKind(Enum):
    """How a new offset is found."""

    EARLIEST = auto()
    LATEST = auto()
    MOMENT = auto()
    """The first message from a time."""
    OFFSET = auto()
    RELATIVE = auto()
    """Some messages before or after the committed offset."""
    EACH = auto()
    """An offset for each of some queues."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where offsets go."""

    text: str
    kind: TargetKind
    number: int = 0
    """Of OFFSET and RELATIVE."""
    moment: datetime | None = None
    each: Sequence[tuple[QueueChoice, int]] = field(default=())
    """Of EACH."""


LATEST = Target("latest", TargetKind.LATEST)


def is_of(choice: QueueChoice, broker: str, queue_id: int) -> bool:
    """Whether a choice is of this queue; ``broker``: CLUSTER/BROKER, or the address of an agent."""
    cluster, _, broker_name = broker.rpartition("/")
    return choice.queue_id == queue_id and choice.broker_name in {"", broker_name} and choice.cluster in {"", cluster}


def read_queues(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[QueueChoice, ...]:
    """Read names of queues without duplicates."""
    return tuple(dict.fromkeys(map(read_queue_choice, values)))


def read_target(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> Target:
    """Read one target for all queues, or QUEUE=OFFSET for each of some."""
    if any("=" in value for value in values):
        return Target(" ".join(values), TargetKind.EACH, each=tuple(map(_queue_and_offset, values)))
    if len(values) != 1:
        raise click.BadParameter("more than one target: give one, or QUEUE=OFFSET for each queue")
    text = values[0]
    if text == "earliest":
        return Target(text, TargetKind.EARLIEST)
    if text == "latest":
        return LATEST
    if _NUMBER.fullmatch(text):
        return Target(text, TargetKind.OFFSET, number=_offset(text))
    if _RELATIVE.fullmatch(text):
        return Target(text, TargetKind.RELATIVE, number=int(text))
    try:
        return Target(text, TargetKind.MOMENT, moment=read_moment(text, now=datetime.now(UTC)))
    except click.BadParameter as error:
        if "future" in error.message:
            raise
        forms = f"earliest, latest, an offset, -N, +N, QUEUE=OFFSET or a time: {FORMS}"
        raise click.BadParameter(f"invalid target {text!r}: use {forms}") from None


def read_expected(
    _ctx: click.Context, _param: click.Parameter, values: Sequence[str]
) -> tuple[tuple[QueueChoice | None, int], ...]:
    """Read the offsets that are expected: OFFSET for the only queue (None), or QUEUE=OFFSET."""
    return tuple(_queue_and_offset(each) if "=" in each else (None, _offset(each)) for each in values)


def _queue_and_offset(text: str) -> tuple[QueueChoice, int]:
    queue, equals, offset = text.rpartition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} names no queue: give QUEUE=OFFSET for each queue")
    return read_queue_choice(queue), _offset(offset)


def _offset(text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > MAX_OFFSET:
        raise click.BadParameter(f"invalid offset {text!r}: it must be a number from 0 to {MAX_OFFSET}")
    return int(text)
