"""The file of parked messages: what survives a kill, a damaged byte, a full disk and a second process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.sharding import OrderKey
from pointsman_client.errors import InvalidOptionError, OutboxFailedError, OutboxFullError
from pointsman_client.producer.outbox import ROW_BYTES, Outbox, Parked, _read, _values

QUEUE = MessageQueue("orders", "c1", "a", 3)
BORN_AT = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)


def outgoing(number: int, *, size: int = 1) -> OutgoingMessage:
    return OutgoingMessage(Message("orders", b"x" * size), f"id-{number}", BORN_AT)


@contextmanager
def opened(path: Path, *, max_bytes: int = 10_000) -> Iterator[tuple[Outbox, tuple[Parked, ...]]]:
    outbox = Outbox(path, max_bytes=max_bytes)
    waiting = outbox.open()
    try:
        yield outbox, waiting
    finally:
        outbox.close()


def put(outbox: Outbox, *messages: OutgoingMessage) -> list[Parked]:
    added = [outbox.add(QUEUE, each) for each in messages]
    outbox.write(added, [])
    return added


def sent(outbox: Outbox, parked: list[Parked]) -> None:
    outbox.write([], parked)
    outbox.discount(parked)


def ids(parked: tuple[Parked, ...]) -> list[str]:
    return [each.outgoing.message_id for each in parked]


def ids_in(path: Path) -> list[str]:
    with opened(path) as (_, waiting):
        return ids(waiting)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An outbox in which messages 0, 1 and 2 were put, of which 1 is sent."""
    path = tmp_path / "outbox"
    with opened(path) as (outbox, _):
        parked = put(outbox, *map(outgoing, range(3)))
        sent(outbox, parked[1:2])
    return path


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    body=st.binary(max_size=50),
    tag=texts,
    keys=st.lists(texts, max_size=3),
    properties=st.dictionaries(texts, texts),
    due_at=st.none() | st.datetimes(timezones=st.just(UTC)),
)
def test_a_message_is_read_as_it_was_written(
    body: bytes, tag: str, keys: list[str], properties: dict[str, str], due_at: datetime | None
) -> None:
    message = Message.unchecked("orders", body, tag, tuple(keys), properties)
    parked = Parked(7, QUEUE, OutgoingMessage(message, "id", BORN_AT, due_at=due_at))
    assert _read((7, *_values(parked))) == parked


def test_an_order_key_is_read_as_it_was_written() -> None:
    parked = Parked(7, QUEUE, outgoing(1), OrderKey("customer", "ä"))
    assert _read((7, *_values(parked))) == parked


def test_the_bound_counts_keys(tmp_path: Path) -> None:
    with opened(tmp_path / "outbox", max_bytes=ROW_BYTES + 5) as (outbox, _):
        with pytest.raises(OutboxFullError):
            outbox.add(QUEUE, outgoing(0), OrderKey("ä", "123"))
        outbox.add(QUEUE, outgoing(0), OrderKey("ä", "12"))


def test_waiting_messages_survive_a_restart_in_order(path: Path) -> None:
    with opened(path) as (outbox, waiting):
        assert ids(waiting) == ["id-0", "id-2"]
        assert put(outbox, outgoing(3))[0].number > waiting[-1].number
    assert ids_in(path) == ["id-0", "id-2", "id-3"]


def test_sent_and_new_messages_are_one_write(path: Path) -> None:
    with opened(path) as (outbox, waiting):
        outbox.write([outbox.add(QUEUE, outgoing(3))], waiting)
    assert ids_in(path) == ["id-3"]


def test_readable_messages_of_a_damaged_file_are_moved_to_a_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "outbox"
    with opened(path, max_bytes=1_000_000) as (outbox, _):
        put(outbox, *(outgoing(number, size=3_000) for number in range(50)))
    content, counts = path.read_bytes(), []
    for page in range(3 * 4096, len(content), 4096):  # the first three lead to all others
        caplog.clear()
        path.write_bytes(content[:page] + bytes(4096) + content[page + 4096 :])
        found = ids_in(path)
        counts.append(len(found))
        assert sorted(found, key=lambda each: int(each[3:])) == found
        if len(found) < 50:
            assert ids_in(path) == found
            assert f"{len(found)} readable messages will be sent" in caplog.text
    assert 40 <= min(counts) < 50
    assert sorted(each.name for each in tmp_path.iterdir()) == ["damaged", "outbox"]


def test_the_bound_counts_waiting_messages(tmp_path: Path) -> None:
    with opened(tmp_path / "outbox", max_bytes=2 * (ROW_BYTES + 1)) as (outbox, _):
        parked = put(outbox, outgoing(0), outgoing(1))
        with pytest.raises(OutboxFullError):
            outbox.add(QUEUE, outgoing(2))
        sent(outbox, parked[:1])
        put(outbox, outgoing(3))
        with pytest.raises(OutboxFullError):
            outbox.add(QUEUE, outgoing(4))


def test_messages_are_for_the_eyes_of_their_owner(path: Path) -> None:
    assert path.stat().st_mode & 0o077 == 0


def test_a_second_owner_is_refused_and_changes_nothing(path: Path) -> None:
    with opened(path) as (first, _):
        for second in (Outbox(path), first):
            with pytest.raises(OutboxFailedError, match="give each process its own outbox"):
                second.open()
        put(first, outgoing(3))
    assert len(ids_in(path)) == 3


def test_a_bound_below_one_byte_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="max_bytes"):
        Outbox("outbox", max_bytes=0)
