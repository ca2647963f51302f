"""Options of commands about messages: which queues, from where, and how bodies are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import click

from pointsman.names import MAX_QUEUES, registered_name_problem
from pointsman_client import PointsmanError
from pointsman_ctl.options.moment_options import FORMS, read_moment
from pointsman_ctl.output.message_view import BodyForm
from pointsman_ctl.servers.stored_messages import HeldQueue

CommandT = TypeVar("CommandT", bound=Callable[..., object])
MAX_OFFSET = 2**63 - 1


class QueueChoice(NamedTuple):
    """A queue, at every broker that is not excluded by its name."""

    cluster: str
    """Empty: any."""
    broker_name: str
    """Empty: any."""
    queue_id: int

    def __str__(self) -> str:
        return "/".join(filter(None, (self.cluster, self.broker_name, str(self.queue_id))))


class Edge(StrEnum):
    """An end of a queue."""

    EARLIEST = "earliest"
    LATEST = "latest"


Start = Edge | int | datetime
"""Where reading begins: an end, an offset, or a time, UTC."""


def read_queue_choice(value: str) -> QueueChoice:
    """Read N, BROKER/N or CLUSTER/BROKER/N. Raises click.BadParameter."""
    *names, number = value.split("/")
    if len(names) > 2:
        raise click.BadParameter(f"queue must be N, BROKER/N or CLUSTER/BROKER/N, got {value!r}")
    for what, name in zip(("cluster", "broker")[-len(names) :] if names else (), names, strict=True):
        if problem := registered_name_problem(name):
            raise click.BadParameter(f"{what} {name!r} {problem}")
    if not (number.isascii() and number.isdigit() and len(number) <= 5 and int(number) < MAX_QUEUES):
        raise click.BadParameter(f"queue number must be from 0 to {MAX_QUEUES - 1}, got {number!r}")
    cluster, broker_name = [*[""] * (2 - len(names)), *names]
    return QueueChoice(cluster, broker_name, int(number))


def _read_queues(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[QueueChoice, ...]:
    return tuple(dict.fromkeys(map(read_queue_choice, values)))


queues_option = click.option(
    "--queue",
    "choices",
    multiple=True,
    callback=_read_queues,
    metavar="N",
    help="One queue: N, BROKER/N or CLUSTER/BROKER/N. Repeatable.  [default: all]",
)


class QueueNotFoundError(PointsmanError):
    """The topic has no such queue."""

    code = "QUEUE_NOT_FOUND"

    def __init__(self, topic: str, choice: QueueChoice) -> None:
        super().__init__(f"topic {topic} has no queue {choice}: see `pointsmanctl route {topic}`")


def chosen_queues(topic: str, queues: Sequence[HeldQueue], choices: Sequence[QueueChoice]) -> list[HeldQueue]:
    """Return the queues that are chosen, all without a choice. Raises QueueNotFoundError."""
    found = dict[HeldQueue, None]()
    for choice in choices:
        of_choice = [each for each in queues if _is_chosen(each, choice)]
        if not of_choice:
            raise QueueNotFoundError(topic, choice)
        found |= dict.fromkeys(of_choice)
    return sorted(found) if choices else list(queues)


def _is_chosen(held: HeldQueue, choice: QueueChoice) -> bool:
    queue = held.queue
    return (
        queue.queue_id == choice.queue_id
        and choice.broker_name in {"", queue.broker_name}
        and choice.cluster in {"", queue.cluster}
    )


def read_start(text: str, *, now: datetime) -> Start:
    """Read ``earliest``, ``latest``, an offset or a time. Raises click.BadParameter."""
    if text in set(Edge):
        return Edge(text)
    if text.isascii() and text.isdigit() and len(text) <= 19:
        if int(text) > MAX_OFFSET:
            raise click.BadParameter(f"offset must be at most {MAX_OFFSET}, got {text!r}")
        return int(text)
    try:
        return read_moment(text, now=now)
    except click.BadParameter as error:
        if "invalid time" not in error.message:
            raise
        problem = f"invalid start {text!r}: use earliest, latest, an offset, or a time such as {FORMS}"
        raise click.BadParameter(problem) from None


def _read_start(_ctx: click.Context, _param: click.Parameter, value: str) -> Start:
    return read_start(value, now=datetime.now(UTC))


start_option = click.option(
    "--from",
    "start",
    default=Edge.LATEST.value,
    show_default=True,
    callback=_read_start,
    metavar="WHERE",
    help="earliest, latest (the newest messages), an offset, or a time as of --at.",
)


def body_options(command: CommandT) -> CommandT:
    """Add the options that say how bodies are shown, passed as ``form`` and ``folder``."""

    @wraps(command)
    def with_form(*args: object, form: str, **values: object) -> object:
        return command(*args, form=BodyForm(form), **values)

    save = click.option(
        "--save",
        "folder",
        type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
        help="Write each body to a file in this folder; none is overwritten.",
    )
    return cast("CommandT", body_option(save(with_form)))


body_option = click.option(
    "--body",
    "form",
    type=click.Choice([each.value for each in BodyForm]),
    default=BodyForm.SHORT.value,
    show_default=True,
    help="How to show the body; JSON has all of it.",
)
