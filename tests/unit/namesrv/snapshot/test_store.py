"""The snapshot as a whole: what changed is written, what is damaged costs its broker alone, a kill costs nothing."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman_namesrv.core.model import Health, ProbeVerdict, Registration
from pointsman_namesrv.core.validation import IntervalBounds
from pointsman_namesrv.snapshot.files import StateDirectoryInUse
from pointsman_namesrv.snapshot.segment import broker_name_of
from pointsman_namesrv.snapshot.store import Loaded, Snapshot, SnapshotStore
from tests.fakes.held_brokers import held, snapshot, store
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
    """What a server that starts on a copy of the folder would read; as after a kill, nobody let go of it."""
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


def written_at(folder: Path) -> dict[str, int]:
    """The inode of each segment: another one after each write."""
    return {path.name: path.stat().st_ino for path in folder.glob("*.segment")}


def file_of(number: int) -> str:
    return broker_name_of(held(number)[0].identity.position)


def test_a_restarted_server_reads_what_was_held(writing: SnapshotStore, state: Path) -> None:
    brokers = [held(1), held(2, topics=0), held(3, health=FAILING)]
    done = writing.write(Snapshot(brokers))
    assert (done.segments, done.whole, done.error) == (3, True, None)
    assert done.bytes == sum(path.stat().st_size for path in state.glob("*.segment"))
    read = loaded(state)
    assert read.refused == 0
    assert names(read) == {"b1", "b2", "b3"}
    assert by_broker(read)["b1"] == (held(1)[0], 1_000)
    assert by_broker(read)["b3"][0].health == FAILING


def test_only_what_changed_is_written_again(writing: SnapshotStore, state: Path) -> None:
    brokers = [held(number) for number in range(1, 6)]
    writing.write(snapshot(*brokers))
    before = written_at(state)
    registration, generation, health = brokers[0]
    brokers[0] = (registration, generation + 1, health)
    brokers[1] = held(2, step=1)
    brokers[2] = (*brokers[2][:2], FAILING)
    brokers[3] = held(4)  # registered anew with the same content
    brokers[4] = (*brokers[4][:2], Health(ProbeVerdict.PASSING, "3 ms"))  # no matter for the routes
    writing.write(snapshot(*brokers))
    after = written_at(state)
    changed = {number for number in range(1, 6) if before[file_of(number)] != after[file_of(number)]}
    assert changed == {1, 2, 3}


def test_what_was_read_at_the_start_is_not_written_again(writing: SnapshotStore, state: Path) -> None:
    brokers = [held(1, health=Health(ProbeVerdict.PASSING)), held(2)]
    done = writing.write(snapshot(*brokers))
    writing.close()
    before = written_at(state)
    again = store(state)
    assert len(again.load().brokers) == 2
    assert again.write(snapshot(held(1), held(2))) == done
    again.close()
    assert written_at(state) == before


def test_a_broker_that_left_has_no_segment_and_one_that_moved_has_one(writing: SnapshotStore, state: Path) -> None:
    writing.write(snapshot(held(1), held(2)))
    registration, generation, health = held(2)
    moved = registration.identity._replace(addr="10.9.9.9:10911")
    done = writing.write(snapshot((replace(registration, identity=moved), generation, health)))
    assert done.segments == 1
    assert [r.identity for r, _ in loaded(state).brokers] == [moved]


# --- damage ---------------------------------------------------------------------------------------------------


def test_a_damaged_segment_costs_its_broker_alone_and_is_said_in_one_line(
    writing: SnapshotStore, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writing.write(snapshot(held(1), held(2), held(3)))
    writing.close()
    damaged = state / file_of(2)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    again = store(state)
    read = again.load()
    assert (names(read), read.refused) == ({"b1", "b3"}, 1)
    (said,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert said.exc_info is None
    facts = said.__dict__["facts"]
    assert facts["file"] == damaged
    assert "its header says" in facts["problem"]
    assert not damaged.exists()
    assert (state / "damaged" / damaged.name).exists()
    # The next round does not bring back what was put aside, and writes the broker once it has registered.
    again.write(snapshot(held(1), held(2, step=5), held(3)))
    again.close()
    assert by_broker(loaded(state))["b2"] == (held(2, step=5)[0], 2_005)


def test_a_segment_under_the_name_of_another_is_refused(writing: SnapshotStore, state: Path) -> None:
    writing.write(snapshot(held(1), held(2)))
    shutil.copy(state / file_of(1), state / file_of(2))
    read = loaded(state)
    assert (names(read), read.refused) == ({"b1"}, 1)


def test_a_segment_that_breaks_a_rule_of_today_is_refused(writing: SnapshotStore, state: Path) -> None:
    writing.write(snapshot(held(1)))
    writing.close()
    stricter = store(state, bounds=IntervalBounds(max_expiry=60.0))
    assert stricter.load().refused == 1
    stricter.close()


def test_whatever_happens_to_the_bytes_the_rest_is_read(writing: SnapshotStore, state: Path, full: bool) -> None:
    brokers = {number: held(number) for number in range(1, 7)}
    writing.write(Snapshot(list(brokers.values())))
    writing.close()
    whole = {path: path.read_bytes() for path in state.glob("*.segment")}
    chance = random.Random(20_261_121)
    for _ in range(1_000 if full else 100):
        victims = chance.sample(sorted(whole), chance.randint(1, 3))
        for victim in victims:
            victim.write_bytes(_broken(whole[victim], chance))
        reading = store(state)
        read = reading.load()
        reading.close()
        assert read.refused == len(victims)
        assert names(read) == {f"b{number}" for number in brokers if state / file_of(number) not in victims}
        for victim in victims:
            victim.write_bytes(whole[victim])


def _broken(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    if chance.random() < 0.3:
        return data[:at]
    return data[:at] + bytes([data[at] ^ chance.randint(1, 255)]) + data[at + 1 :]


# --- the disk -------------------------------------------------------------------------------------------------


def test_a_folder_in_use_is_refused_and_the_first_goes_on(writing: SnapshotStore, state: Path) -> None:
    with pytest.raises(StateDirectoryInUse):
        store(state).load()
    assert writing.write(snapshot(held(1))).whole


def test_a_segment_that_may_not_be_read_is_no_damage(
    writing: SnapshotStore, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing.write(snapshot(held(1)))
    writing.close()
    before = written_at(state)
    opened = os.open

    def refuse(path: str | Path, *arguments: int) -> int:
        if Path(path).name == file_of(1):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *arguments)

    monkeypatch.setattr(os, "open", refuse)
    again = store(state)
    with pytest.raises(PermissionError, match=file_of(1)):
        again.load()
    monkeypatch.undo()
    assert written_at(state) == before
    assert len(loaded(state).brokers) == 1


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError, match=r"file"):
        store(tmp_path / "file").load()
    with pytest.raises(OSError, match=r"file/state"):
        store(tmp_path / "file" / "state").load()


def test_a_read_only_disk_is_read_and_written_once_it_can_be(
    writing: SnapshotStore, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing.write(snapshot(held(1)))
    writing.close()
    again = store(state)
    with monkeypatch.context() as read_only:
        read_only.setattr(os, "open", _open_read_only(os.open))
        assert names(again.load()) == {"b1"}
        with pytest.raises(OSError, match=r"Read-only file system"):
            again.write(snapshot(held(2)))
    assert again.write(snapshot(held(2))).whole
    again.close()
    assert names(loaded(state)) == {"b2"}


def _open_read_only(real: Callable[..., int]) -> Callable[..., int]:
    def refusing(path: Path, flags: int, *more: int) -> int:
        if flags & (os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return real(path, flags, *more)

    return refusing


def test_what_the_disk_refused_is_written_at_the_next_round(writing: SnapshotStore, state: Path) -> None:
    writing.write(snapshot(held(1), held(2)))
    in_the_way = state / f"{file_of(1)}.tmp"
    in_the_way.mkdir()
    done = writing.write(snapshot(held(1, step=1), held(2, step=1)))
    assert isinstance(done.error, IsADirectoryError)
    assert not done.whole
    assert by_broker(loaded(state))["b1"] == (held(1)[0], 1_000)
    assert by_broker(loaded(state))["b2"] == (held(2, step=1)[0], 2_001)
    in_the_way.rmdir()
    done = writing.write(snapshot(held(1, step=1), held(2, step=1)))
    assert (done.whole, done.error) == (True, None)
    assert by_broker(loaded(state))["b1"] == (held(1, step=1)[0], 1_001)


def test_what_failed_comes_last_so_that_it_does_not_keep_others_from_the_disk(
    writing: SnapshotStore, state: Path
) -> None:
    in_the_way = state / f"{file_of(1)}.tmp"
    in_the_way.mkdir()
    writing.write(snapshot(held(1)))
    steps = iter([True, False])
    done = writing.write(snapshot(held(1), held(2)), may_go_on=lambda: next(steps))
    assert (done.whole, done.error) == (False, None)
    in_the_way.rmdir()
    assert names(loaded(state)) == {"b2"}


def test_a_folder_that_somebody_removed_is_made_and_filled_again(writing: SnapshotStore, state: Path) -> None:
    writing.write(snapshot(held(1), held(2)))
    shutil.rmtree(state)
    done = writing.write(snapshot(held(1), held(2)))
    assert (done.segments, done.whole) == (2, True)
    assert names(loaded(state)) == {"b1", "b2"}


def test_a_folder_that_is_found_again_keeps_nothing_of_brokers_that_are_gone(
    writing: SnapshotStore, state: Path
) -> None:
    writing.write(snapshot(held(1), held(2)))
    (state / "lock").unlink()
    assert writing.write(snapshot(held(2))).whole
    assert names(loaded(state)) == {"b2"}


# --- a kill ---------------------------------------------------------------------------------------------------


def test_after_a_sigkill_at_any_moment_each_broker_is_as_one_whole_round_wrote_it(state: Path, full: bool) -> None:
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
            # What was said to be written is there, and else the round that the kill met.
            assert step >= last
            told = {r.identity.broker_name: (r, g) for r, g, _ in at_step(step).brokers}
            assert told[name] == (registration, generation)
        first = max(registration.data_version.counter for registration, _ in brokers.values()) + 1


def _write_and_kill(state: Path, *, first_step: int, steps: int) -> int:
    """Let a process write until it has said so many steps, kill it there and then; return the last step it said."""
    command = [sys.executable, "-m", "tests.fakes.snapshot_writer", str(state), str(first_step)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [int(process.stdout.readline()) for _ in range(steps)]
        process.send_signal(signal.SIGKILL)
        # What it still said before the signal arrived was written as well.
        said += [int(line) for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    assert process.returncode == -signal.SIGKILL
    return said[-1]
