"""The snapshot: changes are written, damage is refused, a kill loses nothing."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.storage.tables import DurableTables, Row
from pointsman_namesrv.core.model import Health, ProbeVerdict, Registration
from pointsman_namesrv.snapshot import snapshot_store as module
from pointsman_namesrv.snapshot.snapshot_store import FILE_NAME, Loaded, Snapshot, SnapshotStore, StateDirectoryInUse
from tests.fakes.held_brokers import held, snapshot, store
from tests.fakes.mounted_disk import fill, make_read_only, mounted
from tests.fakes.snapshot_writer import at_step

ROOT = Path(__file__).parents[4]
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


def test_a_damaged_file_is_quarantined_with_one_log_line_and_the_next_round_writes_a_new_one(
    writing: SnapshotStore, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writing.write(snapshot(held(1), held(2)))
    writing.close()
    file = state / FILE_NAME
    file.write_bytes(file.read_bytes().replace(b"10.0.0.2", b"10.0.0.3"))
    again = store(state)
    assert again.load() == Loaded([], [], refused=1)
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is None
    facts = record.__dict__["facts"]
    assert facts["file"] == file
    assert "digest" in facts["problem"]
    assert (state / "damaged" / FILE_NAME).exists()
    with pytest.raises(StateDirectoryInUse):
        store(state).load()
    again.write(snapshot(held(1), held(2, step=5)))
    again.close()
    assert by_broker(loaded(state))["b2"] == (held(2, step=5)[0], 2_005)


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


def test_a_truncated_file_or_one_with_a_flipped_bit_is_read_completely_or_refused(
    writing: SnapshotStore, state: Path, full: bool
) -> None:
    brokers = [held(number) for number in range(1, 20)]
    writing.write(Snapshot(brokers))
    writing.close()
    file = state / FILE_NAME
    whole = file.read_bytes()
    chance = random.Random(20_261_121)
    for _ in range(1_000 if full else 100):
        file.write_bytes(_broken(whole, chance))
        reading = store(state)
        read = reading.load()
        reading.close()
        if read.refused:
            assert (read.brokers, read.lost) == ([], [])
        else:
            assert sorted(read.brokers, key=str) == sorted(((r, g) for r, g, _ in brokers), key=str)


def _broken(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(1, len(data))
    if chance.random() < 0.3:
        return data[:at]
    return data[:at] + bytes([data[at] ^ chance.randint(1, 255)]) + data[at + 1 :]


# --- the disk -------------------------------------------------------------------------------------------------


def test_a_folder_in_use_is_refused_and_its_owner_continues(writing: SnapshotStore, state: Path) -> None:
    with pytest.raises(StateDirectoryInUse):
        store(state).load()
    assert writing.write(snapshot(held(1))).whole


def test_a_file_without_read_permission_is_not_damage(
    writing: SnapshotStore, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing.write(snapshot(held(1)))
    writing.close()
    allowed = os.access
    with monkeypatch.context() as forbidden:
        forbidden.setattr(os, "access", lambda path, mode: Path(path).name != FILE_NAME and allowed(path, mode))
        with pytest.raises(PermissionError, match=FILE_NAME):
            store(state).load()
    assert len(loaded(state).brokers) == 1


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError, match=r"file"):
        store(tmp_path / "file").load()
    with pytest.raises(OSError, match=r"file/state"):
        store(tmp_path / "file" / "state").load()


def test_a_read_only_disk_is_read_and_written_once_it_can_be(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-o", "size=1m") as disk:
        writing = store(disk)
        writing.load()
        writing.write(snapshot(held(1)))
        writing.close()
        make_read_only(disk)
        again = store(disk)
        assert names(again.load()) == {"b1"}
        with pytest.raises(OSError, match=r"read-only"):
            again.write(snapshot(held(2)))
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        assert again.write(snapshot(held(2))).whole
        again.close()
        third = store(disk)
        assert names(third.load()) == {"b2"}
        third.close()


def test_writes_that_failed_on_a_full_disk_are_repeated_when_there_is_space(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-o", "size=1m") as disk:
        writing = store(disk)
        writing.load()
        writing.write(snapshot(held(1), held(2)))
        fill(disk)
        brokers = [held(1, step=1, topics=900), *(held(number, topics=900) for number in range(3, 9))]
        done = writing.write(snapshot(*brokers))
        assert done.error is not None
        assert done.error.errno == errno.ENOSPC
        assert not done.whole
        (disk / "ballast").unlink()
        done = writing.write(snapshot(*brokers))
        assert (done.whole, done.error) == (True, None)
        writing.close()
        again = store(disk)
        read = again.load()
        again.close()
        assert by_broker(read) == {r.identity.broker_name: (r, g) for r, g, _ in brokers}


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
    # And one that leaves before it could be written leaves the file.
    assert writing.write(snapshot(held(1))).whole
    assert names(loaded(state)) == {"b1"}


def test_a_folder_that_an_operator_removed_is_made_and_filled_again(writing: SnapshotStore, state: Path) -> None:
    writing.write(snapshot(held(1), held(2)))
    shutil.rmtree(state)
    done = writing.write(snapshot(held(1), held(2)))
    assert (done.brokers, done.whole) == (2, True)
    assert names(loaded(state)) == {"b1", "b2"}


# --- a kill ---------------------------------------------------------------------------------------------------


def test_after_a_sigkill_at_any_moment_each_broker_is_as_one_complete_round_wrote_it(state: Path, full: bool) -> None:
    chance = random.Random(4)
    first = 0
    for _ in range(15 if full else 2):
        last = _write_and_kill(state, first_step=first, steps=chance.randint(1, 6))
        read = loaded(state)
        assert read.refused == 0
        brokers = by_broker(read)
        assert brokers.keys() >= {"b0", "b1", "b2", "b3"}
        for name, (registration, generation) in brokers.items():
            step = registration.data_version.counter
            # Every reported write is there, or else the one during which the process was killed.
            assert step >= last
            expected = {r.identity.broker_name: (r, g) for r, g, _ in at_step(step).brokers}
            assert expected[name] == (registration, generation)
        first = max(registration.data_version.counter for registration, _ in brokers.values()) + 1


def _write_and_kill(state: Path, *, first_step: int, steps: int) -> int:
    """Kill a writing process once it has printed ``steps`` steps; return the last step that it printed."""
    command = [sys.executable, "-m", "tests.fakes.snapshot_writer", str(state), str(first_step)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = [int(process.stdout.readline()) for _ in range(steps)]
        process.send_signal(signal.SIGKILL)
        # Steps printed before the signal arrived were written too.
        printed += [int(line) for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    assert process.returncode == -signal.SIGKILL
    return printed[-1]
