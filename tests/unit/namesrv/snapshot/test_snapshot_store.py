"""The snapshot: changes are written, damage is refused, a kill loses nothing."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.storage.tables import DurableTables, Row
from pointsman_namesrv.core.model import Health, ProbeVerdict, Registration
from pointsman_namesrv.snapshot import snapshot_store as module
from pointsman_namesrv.snapshot.snapshot_codec import HistoryMark
from pointsman_namesrv.snapshot.snapshot_store import FILE_NAME, Loaded, Snapshot, SnapshotStore, StateDirectoryInUse
from tests.kit.name_server.held_brokers import held, snapshot, store

FAILING = Health(ProbeVerdict.FAILING, "timeout")


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[SnapshotStore]:
    """A store that owns ``tmp_path/state``, empty."""
    writing = store(tmp_path / "state")
    writing.load()
    yield writing
    writing.close()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def loaded(folder: Path) -> Loaded:
    """What a server that starts on a copy of the folder would read; as after a kill, the lock is not released."""
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy, symlinks=True)
    try:
        reading = store(copy)
        read = reading.load()
        reading.close()
    finally:
        shutil.rmtree(copy)
    return read


def by_broker(read: Loaded) -> dict[str, tuple[Registration, int]]:
    return {registration.identity.broker_name: (registration, generation) for registration, generation in read.brokers}


def names(read: Loaded) -> set[str]:
    return set(by_broker(read))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the brokers that are written or removed from now on."""
    names: list[str] = []
    write = DurableTables.write

    def record(tables: DurableTables, rows: Iterable[tuple[str, Row, Row | None]]) -> None:
        rows = list(rows)
        names.extend(str(key[1]) for _, key, _ in rows)
        write(tables, rows)

    monkeypatch.setattr(DurableTables, "write", record)
    return names


def test_a_restarted_server_reads_what_was_held(writing: SnapshotStore, state: Path) -> None:
    brokers = [held(1), held(2, topics=0), held(3, health=FAILING)]
    done = writing.write(Snapshot(brokers))
    assert (done.brokers, done.whole, done.error) == (3, True, None)
    assert done.bytes == sum(path.stat().st_size for path in state.iterdir())
    read = loaded(state)
    assert read.refused == 0
    assert names(read) == {"b1", "b2", "b3"}
    assert by_broker(read)["b1"] == (held(1)[0], 1_000)
    assert by_broker(read)["b3"][0].health == FAILING


def test_only_changed_brokers_are_written_again(writing: SnapshotStore, written: list[str]) -> None:
    brokers = [held(number) for number in range(1, 6)]
    writing.write(snapshot(*brokers))
    written.clear()
    registration, generation, health = brokers[0]
    brokers[0] = (registration, generation + 1, health)
    brokers[1] = held(2, step=1)
    brokers[2] = (*brokers[2][:2], FAILING)
    brokers[3] = held(4)  # registered again with the same content
    brokers[4] = (*brokers[4][:2], Health(ProbeVerdict.PASSING, "3 ms"))  # does not change the routes
    writing.write(snapshot(*brokers))
    assert written == ["b1", "b2", "b3"]


def test_brokers_read_at_the_start_are_not_written_again(
    writing: SnapshotStore, state: Path, written: list[str]
) -> None:
    brokers = [held(1, health=Health(ProbeVerdict.PASSING)), held(2)]
    writing.write(snapshot(*brokers))
    writing.close()
    written.clear()
    again = store(state)
    assert len(again.load().brokers) == 2
    assert again.write(snapshot(held(1), held(2))).brokers == 2
    again.close()
    assert written == []


def test_a_broker_that_left_has_no_row_and_one_that_moved_has_one(writing: SnapshotStore, state: Path) -> None:
    writing.write(snapshot(held(1), held(2)))
    registration, generation, health = held(2)
    moved = registration.identity._replace(addr="10.9.9.9:10911")
    done = writing.write(snapshot((replace(registration, identity=moved), generation, health)))
    assert done.brokers == 1
    assert [r.identity for r, _ in loaded(state).brokers] == [moved]


def test_a_large_round_is_several_transactions_and_stops_between_them(
    writing: SnapshotStore, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TRANSACTION_BYTES", 1_000)
    may_go_on = iter([True, True, False])
    brokers = [held(number, topics=30) for number in range(1, 10)]
    done = writing.write(snapshot(*brokers), may_go_on=lambda: next(may_go_on))
    assert (done.whole, done.error) == (False, None)
    assert 0 < len(names(loaded(state))) < 9
    assert writing.write(snapshot(*brokers)).whole
    assert len(names(loaded(state))) == 9


# --- damage ---------------------------------------------------------------------------------------------------


def test_a_damaged_file_counts_as_one_refused_broker(writing: SnapshotStore, state: Path) -> None:
    writing.close()
    (state / FILE_NAME).write_bytes(b"")
    again = store(state)
    assert again.load() == Loaded([], [], refused=1)
    with pytest.raises(StateDirectoryInUse):
        store(state).load()
    again.close()


def test_only_a_broker_that_breaks_a_current_rule_is_refused_and_removed_from_the_file(
    writing: SnapshotStore, state: Path
) -> None:
    writing.write(snapshot(held(1), held(2, topics=20)))
    writing.close()
    stricter = store(state, max_topics=10)
    read = stricter.load()
    assert (names(read), read.refused) == ({"b1"}, 1)
    stricter.write(snapshot(held(1)))
    stricter.close()
    assert names(loaded(state)) == {"b1"}


# --- the disk -------------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError, match=r"file"):
        store(tmp_path / "file").load()
    with pytest.raises(OSError, match=r"file/state"):
        store(tmp_path / "file" / "state").load()


def test_while_the_disk_fails_no_replaced_registration_is_kept_in_memory(
    writing: SnapshotStore, monkeypatch: pytest.MonkeyPatch, state: Path
) -> None:
    writing.write(snapshot(held(1), held(2)))

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(DurableTables, "write", refuse)
        assert not writing.write(snapshot(held(1), held(2, step=1))).whole
        assert [each.registration for each in writing._written.values()] == [held(1)[0]]
        # One that leaves before it could be written leaves the file, as soon as it can.
        assert not writing.write(snapshot(held(1, step=1))).whole
    assert by_broker(loaded(state)).keys() == {"b1", "b2"}
    assert writing.write(snapshot(held(1, step=1))).whole
    assert by_broker(loaded(state)).keys() == {"b1"}
    assert by_broker(loaded(state))["b1"][0] == held(1, step=1)[0]


def test_each_broker_states_how_much_of_the_history_its_row_contains(tmp_path: Path) -> None:
    writing = store(tmp_path)
    writing.load()
    first, second = held(1), held(2)
    writing.write(Snapshot([first], contains=HistoryMark(2**64 - 1, 7)))
    writing.write(Snapshot([first, second], contains=HistoryMark(2**64 - 1, 2**40)))
    writing.close()
    loaded = store(tmp_path).load()
    assert {position.broker_name: mark.seq for position, mark in loaded.marks.items()} == {"b1": 7, "b2": 2**40}
    assert {mark.boot for mark in loaded.marks.values()} == {2**64 - 1}
    assert len(loaded.brokers) == 2
