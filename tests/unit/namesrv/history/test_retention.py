"""Retention: by age and by size, only closed files, the oldest first, unshipped ones last."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from pointsman_namesrv.history.retention import Retention
from pointsman_namesrv.node_metrics import Metrics
from tests.kit.history.rows import files_in

TODAY = date(2026, 3, 10)
NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def lay(folder: Path, *names: str, size: int = 100, age: timedelta = timedelta(0)) -> None:
    """Files by ``day/name``; the later named are the younger of their day."""
    for n, name in enumerate(names):
        path = folder / "raw" / f"dt=2026-{name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
        at = (NOW - age).timestamp() + n / 1000
        os.utime(path, (at, at))


def enforce(
    folder: Path, *, days: int = 0, max_bytes: int = 0, waits: Callable[[Path], bool] = lambda _: False, own: str = ""
) -> tuple[list[str], dict[str, float | None]]:
    """The remaining files, and the counters."""
    metrics = Metrics()
    keeping = Retention(folder / "raw", days=days, max_bytes=max_bytes, metrics=metrics, waits=waits)
    removed = keeping.enforce(today=TODAY, utc_now=NOW, open_path=folder / "raw" / f"dt=2026-{own}" if own else None)
    counted = {
        cause: metrics.registry.get_sample_value("pointsman_namesrv_history_files_removed_total", {"cause": cause})
        for cause in ("days", "bytes", "unshipped")
    }
    assert removed == sum(count or 0 for count in counted.values())
    return [name.removeprefix("dt=2026-") for name in files_in(folder)], counted


def test_days_that_are_too_old_are_removed_with_their_folders(tmp_path: Path) -> None:
    lay(tmp_path, "03-06/n-b-1.jsonl.gz", "03-06/other-b-1.jsonl.gz", "03-07/n-b-2.jsonl.gz", "03-10/n-b-3.jsonl.gz")

    left, counted = enforce(tmp_path, days=3)

    assert left == ["03-07/n-b-2.jsonl.gz", "03-10/n-b-3.jsonl.gz"]
    assert counted["days"] == 2
    assert sorted(path.name for path in (tmp_path / "raw").iterdir()) == ["dt=2026-03-07", "dt=2026-03-10"]


def test_without_bounds_nothing_is_removed(tmp_path: Path) -> None:
    lay(tmp_path, "01-01/n-b-1.jsonl.gz")

    assert enforce(tmp_path)[0] == ["01-01/n-b-1.jsonl.gz"]


def test_too_many_bytes_remove_the_oldest_files_of_the_oldest_day_and_no_more_than_needed(tmp_path: Path) -> None:
    lay(tmp_path, "03-09/n-b-1.jsonl.gz", "03-08/z-b-1.jsonl.gz", "03-08/a-b-2.jsonl.gz", "03-10/n-b-3.jsonl.gz")

    left, counted = enforce(tmp_path, max_bytes=250)

    assert left == ["03-09/n-b-1.jsonl.gz", "03-10/n-b-3.jsonl.gz"]
    assert counted["bytes"] == 2


def test_the_index_of_a_file_counts_and_is_removed_with_it(tmp_path: Path) -> None:
    lay(tmp_path, "03-08/n-b-1.jsonl.gz", "03-09/n-b-2.jsonl.gz", "03-10/n-b-3.jsonl.gz")
    for name in files_in(tmp_path):
        index = tmp_path / "index" / f"{name}.json"
        index.parent.mkdir(parents=True)
        index.write_bytes(b"x" * 30)
        index.with_name(f"{Path(name).stem}.states.gz").write_bytes(b"x" * 20)

    assert len(enforce(tmp_path, max_bytes=450)[0]) == 3
    assert enforce(tmp_path, max_bytes=440)[0] == ["03-09/n-b-2.jsonl.gz", "03-10/n-b-3.jsonl.gz"]
    indexes = sorted(path.name for path in (tmp_path / "index").rglob("*.json"))
    assert indexes == ["n-b-2.jsonl.gz.json", "n-b-3.jsonl.gz.json"]
    assert len(list((tmp_path / "index").rglob("*.states.gz"))) == 2


def test_open_files_of_this_or_another_running_node_count_and_are_never_removed(tmp_path: Path) -> None:
    lay(tmp_path, "03-10/n-b-1.jsonl", "03-10/other-b-1.jsonl", "03-10/.n-b-0.jsonl.gz")
    lay(tmp_path, "03-01/ours-b-1.jsonl", age=timedelta(days=9))

    left, _ = enforce(tmp_path, days=3, max_bytes=1, own="03-01/ours-b-1.jsonl")

    assert left == ["03-01/ours-b-1.jsonl", "03-10/n-b-1.jsonl", "03-10/other-b-1.jsonl"]
    assert (tmp_path / "raw" / "dt=2026-03-10" / ".n-b-0.jsonl.gz").exists()


@pytest.mark.parametrize("name", ["gone-b-1.jsonl", ".gone-b-1.jsonl.gz"])
def test_an_open_file_of_a_stopped_node_is_closed_when_it_can_have_no_writer(tmp_path: Path, name: str) -> None:
    lay(tmp_path, f"03-01/{name}", age=timedelta(hours=3))

    enforce(tmp_path, days=3)

    assert not (tmp_path / "raw" / "dt=2026-03-01").exists()


def test_unshipped_files_are_kept_beyond_their_days_unless_the_bound_of_bytes_is_exceeded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lay(tmp_path, "03-01/n-b-1.jsonl.gz", "03-02/n-b-2.jsonl.gz", "03-09/n-b-3.jsonl.gz")
    waiting = {"n-b-1.jsonl.gz", "n-b-2.jsonl.gz"}

    assert len(enforce(tmp_path, days=3, waits=lambda path: path.name in waiting)[0]) == 3
    left, counted = enforce(tmp_path, max_bytes=150, waits=lambda path: path.name in waiting)

    assert left == ["03-02/n-b-2.jsonl.gz"]
    assert (counted["bytes"], counted["unshipped"]) == (1, 1)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_file_that_cannot_be_removed_does_not_block_the_removal_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lay(tmp_path, "03-01/n-b-1.jsonl.gz", "03-01/n-b-2.jsonl.gz", "03-02/n-b-3.jsonl.gz")
    unlink = Path.unlink

    def refusing(path: Path, missing_ok: bool = False) -> None:
        if path.name == "n-b-1.jsonl.gz":
            raise PermissionError(1, "Operation not permitted", str(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refusing)

    assert enforce(tmp_path, days=3)[0] == ["03-01/n-b-1.jsonl.gz"]
    assert "cannot be removed" in caplog.text


def test_files_that_are_not_history_are_not_touched(tmp_path: Path) -> None:
    lay(tmp_path, "01-01/notes.txt", "01-01/deeper/n-b-1.jsonl.gz")
    strange = tmp_path / "raw" / "dt=yesterday"
    strange.mkdir()
    (tmp_path / "raw" / "dt=2026-01-02").write_text("a file")

    enforce(tmp_path, days=3, max_bytes=1)

    assert strange.is_dir()
    assert (tmp_path / "raw" / "dt=2026-01-01" / "notes.txt").exists()
    assert (tmp_path / "raw" / "dt=2026-01-01" / "deeper" / "n-b-1.jsonl.gz").exists()
