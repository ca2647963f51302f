"""The file of parked messages: what it keeps through a crash, a torn write, a full disk and a second process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import InvalidOptionError, OutboxFailedError, OutboxFullError
from pointsman_client.producer.outbox import LEAST_BYTES_TO_REWRITE, Outbox
from pointsman_client.producer.outbox_record import Parked, read_line, write_done, write_parked
from tests.fakes.faults import refuse_to_write

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


def ids(parked: tuple[Parked, ...]) -> list[str]:
    return [each.outgoing.message_id for each in parked]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An outbox in which messages 0, 1 and 2 were put, of which 1 is done."""
    path = tmp_path / "outbox"
    with opened(path) as (outbox, _):
        parked = [outbox.put(QUEUE, outgoing(number)) for number in range(3)]
        outbox.done(parked[1:2])
    return path


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    body=st.binary(max_size=50), tag=texts, keys=st.lists(texts, max_size=3), properties=st.dictionaries(texts, texts)
)
def test_a_record_comes_back_as_it_was_written(
    body: bytes, tag: str, keys: list[str], properties: dict[str, str]
) -> None:
    message = Message.unchecked("orders", body, tag, tuple(keys), properties)
    parked = Parked(7, QUEUE, OutgoingMessage(message, "id", BORN_AT))

    line = write_parked(parked)

    assert line.count(b"\n") == 1
    assert read_line(line) == parked


@given(place=st.integers(0), to=st.integers(0, 255))
def test_a_damaged_record_is_noticed(place: int, to: int) -> None:
    line = bytearray(write_parked(Parked(7, QUEUE, outgoing(7)))[:-1])
    place %= len(line)
    if line[place] == to:
        return
    line[place] = to

    with pytest.raises(ValueError, match="checksum"):
        read_line(bytes(line))


def test_what_waits_is_there_after_a_restart_in_order(path: Path) -> None:
    with opened(path) as (outbox, waiting):
        assert ids(waiting) == ["id-0", "id-2"]
        assert outbox.waiting == 2
        assert outbox.put(QUEUE, outgoing(3)).number > waiting[-1].number


@pytest.mark.parametrize("cut", [1, 2, 50])
def test_a_torn_last_record_is_dropped_and_the_file_goes_on_behind_the_whole_ones(path: Path, cut: int) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole + write_parked(Parked(9, QUEUE, outgoing(9)))[:-cut])

    with opened(path) as (outbox, waiting):
        assert ids(waiting) == ["id-0", "id-2"]
        assert outbox.damaged == 0
        outbox.put(QUEUE, outgoing(3))
    assert path.read_bytes().startswith(whole)
    with opened(path) as (_, waiting):
        assert ids(waiting) == ["id-0", "id-2", "id-3"]


def test_a_record_damaged_in_the_middle_loses_that_message_alone(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([b"rubbish\n", *lines[1:]]))

    with opened(path) as (outbox, waiting):
        assert ids(waiting) == ["id-2"]
        assert outbox.damaged == 1


def test_the_file_is_empty_when_nothing_waits(path: Path) -> None:
    with opened(path) as (outbox, waiting):
        outbox.done(waiting)
        assert path.stat().st_size == 0
        outbox.put(QUEUE, outgoing(5))
    with opened(path) as (_, waiting):
        assert ids(waiting) == ["id-5"]


def test_a_file_with_more_done_than_waiting_is_written_anew(tmp_path: Path) -> None:
    path, size = tmp_path / "outbox", 100_000
    with opened(path, max_bytes=5_000_000) as (outbox, _):
        parked = [outbox.put(QUEUE, outgoing(number, size=size)) for number in range(20)]
        before = path.stat().st_size
        outbox.done(parked[:12])
        assert path.stat().st_size < before / 2
        assert before > LEAST_BYTES_TO_REWRITE
        outbox.put(QUEUE, outgoing(20))
    with opened(path, max_bytes=5_000_000) as (_, waiting):
        assert ids(waiting) == [f"id-{number}" for number in range(12, 21)]


def test_the_bound_counts_what_waits(tmp_path: Path) -> None:
    size = len(write_parked(Parked(0, QUEUE, outgoing(0))))
    with opened(tmp_path / "outbox", max_bytes=2 * size) as (outbox, _):
        parked = [outbox.put(QUEUE, outgoing(number)) for number in range(2)]
        with pytest.raises(OutboxFullError):
            outbox.put(QUEUE, outgoing(2))
        outbox.done(parked[:1])
        outbox.put(QUEUE, outgoing(3))


def test_a_disk_that_refuses_loses_the_message_alone(path: Path) -> None:
    with opened(path) as (outbox, _):
        refuse_to_write(os.getpid(), refuse=True)
        try:
            with pytest.raises(OutboxFailedError, match="cannot be written"):
                outbox.put(QUEUE, outgoing(3))
        finally:
            refuse_to_write(os.getpid(), refuse=False)
        outbox.put(QUEUE, outgoing(4))
    with opened(path) as (outbox, waiting):
        assert ids(waiting) == ["id-0", "id-2", "id-4"]
        assert outbox.damaged == 0


def test_a_second_owner_is_refused_and_harms_nothing(path: Path) -> None:
    with opened(path) as (first, _):
        for second in (Outbox(path), first):
            with pytest.raises(OutboxFailedError, match="give each process an outbox of its own"):
                second.open()
        first.put(QUEUE, outgoing(3))
    with opened(path) as (_, waiting):
        assert len(waiting) == 3


def test_a_process_that_is_killed_leaves_its_messages_and_no_lock(path: Path) -> None:
    program = f"""
import os, signal
from datetime import datetime, UTC
from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.producer.outbox import Outbox
outbox = Outbox({str(path)!r})
outbox.open()
outbox.put(MessageQueue("orders", "c1", "a", 3), OutgoingMessage(Message("orders", b"x"), "id-9", datetime.now(UTC)))
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, timeout=60, env={**os.environ})
    assert ended.returncode == -9

    with opened(path) as (_, waiting):
        assert ids(waiting) == ["id-0", "id-2", "id-9"]


def test_done_lines_alone_are_no_messages(tmp_path: Path) -> None:
    (tmp_path / "outbox").write_bytes(write_done(4))
    with opened(tmp_path / "outbox") as (_, waiting):
        assert waiting == ()


def test_a_bound_below_one_byte_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="max_bytes"):
        Outbox("outbox", max_bytes=0)
