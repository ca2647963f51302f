"""The file of parked messages: what survives a kill, a damaged byte, a full disk and a second process."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.storage.tables import DurableTables
from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.sharding import OrderKey
from pointsman_client.errors import InvalidOptionError, OutboxFailedError, OutboxFullError
from pointsman_client.producer.outbox import ROW_BYTES, Outbox, Parked, _read, _values
from tests.fakes.faults import refuse_to_write
from tests.fakes.mounted_disk import fill, make_read_only, mounted

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


def test_of_a_file_that_is_cut_or_has_a_flipped_bit_all_that_is_undamaged_is_read(
    path: Path, tmp_path: Path, full: bool
) -> None:
    content, chance = path.read_bytes(), random.Random(7)
    broken = tmp_path / "broken"
    for n in range(1_000 if full else 100):
        at = chance.randrange(1, len(content))
        flipped = content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
        broken.write_bytes(content[:at] if n % 2 else flipped)
        try:
            found = ids_in(broken)
        except OutboxFailedError as error:
            assert "move this one" in str(error)  # noqa: PT017  # either is right
        else:
            assert found == ["id-0", "id-2"] or (set(found) < {"id-0", "id-2"} and (tmp_path / "damaged").exists())


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


def test_a_process_that_ends_during_a_repair_loses_nothing(path: Path) -> None:
    path.replace(path.with_name("outbox.repaired"))
    assert ids_in(path) == ["id-0", "id-2"]


def test_a_file_of_a_later_version_is_refused_and_stays(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 2")
    content = path.read_bytes()
    with pytest.raises(OutboxFailedError, match="has format version 2"):
        ids_in(path)
    assert path.read_bytes() == content


def test_a_damaged_file_that_cannot_be_moved_is_refused_and_stays(path: Path) -> None:
    content = path.read_bytes()
    body = content.rindex(b"x")
    path.write_bytes(content[:body] + b"y" + content[body + 1 :])
    path.with_name("damaged").touch()
    with pytest.raises(OutboxFailedError, match="could not be moved to the directory damaged"):
        ids_in(path)
    assert path.read_bytes() == content[:body] + b"y" + content[body + 1 :]


def test_a_kill_during_a_write_leaves_the_writes_before_it(tmp_path: Path) -> None:
    """Each truncation of the log is a state that a kill, or a power loss before the sync, can leave."""
    path, killed = tmp_path / "outbox", tmp_path / "killed" / "outbox"
    with opened(path, max_bytes=100_000) as (outbox, _):
        for number in range(5):
            put(outbox, outgoing(number, size=3_000))
        log = path.with_name("outbox-wal").read_bytes()
        found = []
        for size in [*range(0, len(log), 512), len(log)]:
            shutil.rmtree(killed.parent, ignore_errors=True)
            killed.parent.mkdir()
            shutil.copy(path, killed)
            killed.with_name("outbox-wal").write_bytes(log[:size])
            found.append(ids_in(killed))
    assert all(each == [f"id-{number}" for number in range(len(each))] for each in found)
    assert {len(each) for each in found} == set(range(6))


def test_the_bound_counts_waiting_messages(tmp_path: Path) -> None:
    with opened(tmp_path / "outbox", max_bytes=2 * (ROW_BYTES + 1)) as (outbox, _):
        parked = put(outbox, outgoing(0), outgoing(1))
        with pytest.raises(OutboxFullError):
            outbox.add(QUEUE, outgoing(2))
        sent(outbox, parked[:1])
        put(outbox, outgoing(3))
        with pytest.raises(OutboxFullError):
            outbox.add(QUEUE, outgoing(4))


def test_the_file_shrinks_when_messages_are_sent(tmp_path: Path) -> None:
    path = tmp_path / "outbox"
    with opened(path, max_bytes=5_000_000) as (outbox, _):
        sent(outbox, put(outbox, *(outgoing(number, size=100_000) for number in range(20))))
    assert path.stat().st_size < 64 * 1024


def test_messages_are_for_the_eyes_of_their_owner(path: Path) -> None:
    assert path.stat().st_mode & 0o077 == 0


def test_a_failing_disk_loses_only_the_message(path: Path) -> None:
    with opened(path) as (outbox, _):
        refuse_to_write(os.getpid(), refuse=True)
        try:
            with pytest.raises(OutboxFailedError, match="cannot be written"):
                put(outbox, outgoing(3))
        finally:
            refuse_to_write(os.getpid(), refuse=False)
        put(outbox, outgoing(4))
    assert ids_in(path) == ["id-0", "id-2", "id-4"]


def test_a_full_disk_is_reported_and_written_messages_stay(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-o", "size=512k") as disk:
        with opened(disk / "outbox", max_bytes=10**6) as (outbox, _):
            put(outbox, outgoing(0))
            fill(disk)
            with pytest.raises(OutboxFailedError, match="No space left on device"):
                put(outbox, outgoing(1, size=100_000))
            (disk / "ballast").unlink()
            put(outbox, outgoing(2))
        assert ids_in(disk / "outbox") == ["id-0", "id-2"]


def test_an_outbox_on_a_disk_that_is_read_only_is_refused(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-o", "size=512k") as disk:
        with opened(disk / "outbox") as (outbox, _):
            put(outbox, outgoing(0))
        make_read_only(disk)
        with pytest.raises(OutboxFailedError, match="the disk or the file is read-only"):
            Outbox(disk / "outbox").open()


def test_a_removed_file_accepts_no_messages(path: Path) -> None:
    with opened(path) as (outbox, _):
        path.unlink()
        with pytest.raises(OutboxFailedError, match="was removed"):
            put(outbox, outgoing(3))


def test_a_second_owner_is_refused_and_changes_nothing(path: Path) -> None:
    with opened(path) as (first, _):
        for second in (Outbox(path), first):
            with pytest.raises(OutboxFailedError, match="give each process its own outbox"):
                second.open()
        put(first, outgoing(3))
    assert len(ids_in(path)) == 3


KILLED = """
import os, signal, sys
from datetime import datetime, UTC
from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.producer.outbox import Outbox
outbox = Outbox(sys.argv[1])
outbox.open()
message = OutgoingMessage(Message("orders", b"x"), "id-9", datetime.now(UTC))
outbox.write([outbox.add(MessageQueue("orders", "c1", "a", 3), message)], [])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_killed_leaves_its_messages_and_no_lock(path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, path], check=False, timeout=60)
    assert ended.returncode == -9
    assert ids_in(path) == ["id-0", "id-2", "id-9"]


def test_a_foreign_database_is_refused(path: Path) -> None:
    path.unlink()
    foreign = DurableTables(path, [], application_id=7)
    foreign.open()
    foreign.close()
    with pytest.raises(OutboxFailedError, match="belongs to another application"):
        Outbox(path).open()


def test_a_bound_below_one_byte_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="max_bytes"):
        Outbox("outbox", max_bytes=0)
