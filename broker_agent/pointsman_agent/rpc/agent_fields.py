"""Checks of request fields: names, queues, and the page tokens of lists sorted by (group, topic, queue id)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from pointsman.client_id import client_id_problem
from pointsman.daemon.rpc.request_fields import size_violations, token_violation
from pointsman.names import MAX_QUEUES, name_problem
from pointsman.wire.refusals import FieldViolation, field_violations, refuse_if_any
from pointsman_agent.core.queue import BrokerQueues, QueueKey
from pointsman_agent.core.topic_set import TopicSet

MAX_QUEUES_A_CALL = 1_000
DEFAULT_PAGE_SIZE = 500
MAX_PAGE_SIZE = 1_000
MAX_TOKEN_LENGTH = 1_000

Place = tuple[str, str, int]
"""Group, topic and queue id of the last row of a page."""

_Row = TypeVar("_Row")


def name_violations(field: str, name: str) -> Sequence[FieldViolation]:
    """Check the name of a group or topic."""
    return field_violations(field, name, name_problem(name))


def client_id_violations(field: str, client_id: str) -> Sequence[FieldViolation]:
    """Check the id of a client."""
    return field_violations(field, client_id, client_id_problem(client_id))


class NamesQueue(Protocol):
    """Any message that names a queue."""

    @property
    def topic(self) -> str:
        """Topic name."""
        ...

    @property
    def queue_id(self) -> int:
        """Number of the queue."""
        ...


class QueueFields:
    """Checks the queues of requests. ``topics`` returns the broker's current topics."""

    def __init__(self, topics: Callable[[], TopicSet]) -> None:
        self._topics = topics
        self._known = BrokerQueues()

    def violations(self, field: str, queues: Sequence[NamesQueue], *, must_exist: bool) -> Iterator[FieldViolation]:
        """Check a list of queues: their number, duplicates and, with ``must_exist``, whether the broker has them."""
        if len(queues) > MAX_QUEUES_A_CALL:
            yield FieldViolation(field, f"has {len(queues)} entries, at most {MAX_QUEUES_A_CALL} are allowed")
            return
        topics = self._topics()
        first: dict[QueueKey, int] = {}
        for index, named in enumerate(queues):
            queue, place = QueueKey(named.topic, named.queue_id), f"{field}[{index}]"
            if queue in first:
                yield FieldViolation(
                    place, f"repeats {field}[{first[queue]}]: queue {queue.queue_id} of {queue.topic!r}"
                )
                continue
            first[queue] = index
            if name_problem(queue.topic) is not None:
                yield from name_violations(f"{place}.topic", queue.topic)
            elif must_exist and (fault := self._known.fault(queue, topics)) is not None:
                yield FieldViolation(f"{place}.{fault.field}", fault.description)


def to_queues(queues: Iterable[NamesQueue]) -> list[QueueKey]:
    """Convert the queues of a checked request."""
    return [QueueKey(named.topic, named.queue_id) for named in queues]


def read_page(*, group: str, page_size: int, page_token: str) -> tuple[int, Place | None]:
    """Return the page size, and the row after which the page begins. Raises InvalidRequest."""
    after = _read_token(page_token)
    violations = [
        *(name_violations("group", group) if group else ()),
        *size_violations("page_size", page_size, most=MAX_PAGE_SIZE),
    ]
    if page_token and after is None:
        violations.append(token_violation(page_token))
    refuse_if_any(violations)
    return page_size or DEFAULT_PAGE_SIZE, after


def cut(rows: Sequence[_Row], *, limit: int, place_of: Callable[[_Row], Place]) -> tuple[Sequence[_Row], str]:
    """Return the rows of a page, from at most ``limit`` + 1, and the token of the next page, empty on the last."""
    if len(rows) <= limit:
        return rows, ""
    # Names do not contain a slash, so the token is unambiguous.
    return rows[:limit], "/".join(map(str, place_of(rows[limit - 1])))


def _read_token(token: str) -> Place | None:
    parts = token.split("/") if len(token) <= MAX_TOKEN_LENGTH else []
    if len(parts) != 3 or name_problem(parts[0]) is not None or name_problem(parts[1]) is not None:
        return None
    queue_id = parts[2]
    if not (queue_id.isascii() and queue_id.isdigit()) or len(queue_id) > len(str(MAX_QUEUES)):
        return None
    return parts[0], parts[1], int(queue_id)
