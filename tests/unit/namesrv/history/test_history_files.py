"""History files: by day, by hour, by size; gzipped when closed; a torn end loses one line."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pointsman_namesrv.history import history_files
from pointsman_namesrv.history.history_files import HistoryFiles, HistoryInUse

EVENING = datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[HistoryFiles]:
    history = HistoryFiles(tmp_path, node="host:9876", boot_id="b1")
    history.prepare()
    yield history
    history.close()
    history.release()


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder / "raw")) for path in (folder / "raw").rglob("*") if path.is_file())


def test_a_second_writer_of_one_node_is_refused_and_one_of_another_is_not(
    history: HistoryFiles, tmp_path: Path
) -> None:
    with pytest.raises(HistoryInUse, match=r"writes the history of node host_9876 in .*set server.node"):
        HistoryFiles(tmp_path, node="host:9876", boot_id="b2").prepare()
    other = HistoryFiles(tmp_path, node="host:9877", boot_id="b2")
    other.prepare()
    history.release()
    third = HistoryFiles(tmp_path, node="host:9876", boot_id="b3")
    third.prepare()
    third.release()
    other.release()


def test_a_file_is_in_the_folder_of_its_day_and_its_name_has_no_colon(history: HistoryFiles, tmp_path: Path) -> None:
    history.append(b"{}\n", event_at=EVENING)
    history.sync()
    assert names(tmp_path) == ["dt=2026-03-01/host_9876-b1-1.jsonl"]
    history.close()


def test_a_closed_file_is_gzipped_and_holds_what_was_written(history: HistoryFiles, tmp_path: Path) -> None:
    history.append(b'{"a": 1}\n', event_at=EVENING)
    history.append(b'{"a": 2}\n', event_at=EVENING)
    history.close()
    (name,) = names(tmp_path)
    assert name == "dt=2026-03-01/host_9876-b1-1.jsonl.gz"
    assert gzip.decompress((tmp_path / "raw" / name).read_bytes()) == b'{"a": 1}\n{"a": 2}\n'


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        pytest.param(timedelta(seconds=1), ["dt=2026-03-01/host_9876-b1-1.jsonl.gz", "dt=2026-03-02/"], id="midnight"),
        pytest.param(-timedelta(minutes=1), ["dt=2026-03-01/host_9876-b1-1.jsonl"], id="a-clock-set-back"),
    ],
)
def test_a_new_day_begins_a_new_file(
    history: HistoryFiles, tmp_path: Path, later: timedelta, expected: list[str]
) -> None:
    history.append(b"{}\n", event_at=EVENING)
    history.append(b"{}\n", event_at=EVENING + later)
    assert [name.startswith(start) for name, start in zip(names(tmp_path), expected, strict=True)] == [True] * len(
        expected
    )
    history.close()


def test_a_new_hour_begins_a_new_file(history: HistoryFiles, tmp_path: Path) -> None:
    noon = EVENING.replace(hour=12)
    for minutes in (0, 59, 60):
        history.append(b"{}\n", event_at=noon + timedelta(minutes=minutes))
    history.close()
    assert len(names(tmp_path)) == 2


def test_a_full_file_begins_a_new_one(history: HistoryFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_files, "MAX_FILE_BYTES", 10)
    for _ in range(3):
        history.append(b'{"a": 12}\n', event_at=EVENING)
    history.close()
    assert len(names(tmp_path)) == 3


def test_a_removed_file_is_noticed_at_the_next_sync(history: HistoryFiles, tmp_path: Path) -> None:
    history.append(b"{}\n", event_at=EVENING)
    history.sync()
    (file,) = tmp_path.rglob("*.jsonl")
    file.unlink()
    with pytest.raises(FileNotFoundError):
        history.sync()
    history.abandon()


def test_a_file_that_cannot_be_packed_stays_and_costs_the_next_one_nothing(
    history: HistoryFiles, tmp_path: Path
) -> None:
    history.append(b"{}\n", event_at=EVENING)
    (tmp_path / "raw" / "dt=2026-03-01" / ".host_9876-b1-1.jsonl.gz").mkdir()
    history.append(b"{}\n", event_at=EVENING + timedelta(days=1))
    history.sync()
    assert names(tmp_path) == ["dt=2026-03-01/host_9876-b1-1.jsonl", "dt=2026-03-02/host_9876-b1-2.jsonl"]
    history.close()


def test_a_file_that_never_got_a_line_does_not_stay(history: HistoryFiles, tmp_path: Path) -> None:
    history.append(b"", event_at=EVENING)
    history.abandon()
    assert names(tmp_path) == []


def test_a_file_that_the_disk_refused_is_given_up_and_the_next_line_begins_another(
    history: HistoryFiles, tmp_path: Path
) -> None:
    history.append(b"1\n", event_at=EVENING)
    history.sync()
    history.append(b"2\n", event_at=EVENING)
    history.abandon()
    history.append(b"2\n", event_at=EVENING)
    history.close()
    assert names(tmp_path) == ["dt=2026-03-01/host_9876-b1-1.jsonl", "dt=2026-03-01/host_9876-b1-2.jsonl.gz"]
    kept = (tmp_path / "raw" / "dt=2026-03-01" / "host_9876-b1-1.jsonl").read_bytes()
    assert kept == b"1\n", "rows after the last sync are written again, and must be in one file only"


def left_behind(folder: Path, name: str, content: bytes) -> Path:
    path = folder / "raw" / "dt=2026-02-28" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_files_of_an_earlier_boot_of_this_node_are_packed_without_their_torn_last_line(
    history: HistoryFiles, tmp_path: Path
) -> None:
    torn = left_behind(tmp_path, "host_9876-b0-3.jsonl", b'{"a": 1}\n{"a": 2}\n{"a"')
    half = left_behind(tmp_path, ".host_9876-b0-3.jsonl.gz", b"what a kill left of packing it")

    assert history.adopt() == 1
    assert not torn.exists()
    assert not half.exists()
    assert gzip.decompress(torn.with_name("host_9876-b0-3.jsonl.gz").read_bytes()) == b'{"a": 1}\n{"a": 2}\n'


@pytest.mark.parametrize("name", ["host_98765-b0-1.jsonl", "host-b0-1.jsonl", "other_9876-b0-1.jsonl", "notes.txt"])
def test_files_of_others_in_the_same_folder_are_not_touched(history: HistoryFiles, tmp_path: Path, name: str) -> None:
    theirs = left_behind(tmp_path, name, b"{}\n")

    assert history.adopt() == 0
    assert theirs.read_bytes() == b"{}\n"


def test_a_file_that_was_given_up_is_packed_later_and_the_open_one_is_not(
    history: HistoryFiles, tmp_path: Path
) -> None:
    for _ in range(2):
        history.append(b"{}\n", event_at=EVENING)
        history.sync()
        history.abandon()
    history.append(b"{}\n", event_at=EVENING)

    assert history.adopt() == 2
    assert names(tmp_path) == [f"dt=2026-03-01/host_9876-b1-{n}.jsonl{'.gz' if n < 3 else ''}" for n in (1, 2, 3)]
    history.close()


def test_a_file_that_was_packed_but_not_removed_before_the_kill_is_packed_again(
    history: HistoryFiles, tmp_path: Path
) -> None:
    plain = left_behind(tmp_path, "host_9876-b0-1.jsonl", b"{}\n")
    left_behind(tmp_path, "host_9876-b0-1.jsonl.gz", gzip.compress(b"{}\n"))

    assert history.adopt() == 1
    assert not plain.exists()
