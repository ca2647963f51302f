"""Shipping: each closed file once, by real commands that succeed, fail, hang or print a lot; no file is left out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.history import shipping
from pointsman_namesrv.history.history_files import HistoryFiles
from pointsman_namesrv.history.shipping import FAILURES_IN_A_ROW, MAX_TRIES, Shipper, words
from pointsman_namesrv.node_metrics import Metrics
from tests.kit.waiting import until

PYTHON = (sys.executable, "-S", "-c")
COPY = "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2])"


def lay(folder: Path, *names: str) -> None:
    day = folder / "raw" / "dt=2026-03-01"
    day.mkdir(parents=True, exist_ok=True)
    for name in names:
        (day / name).write_text(name)


def shipper(
    folder: Path, *command: str, clock: ManualClock | None = None, timeout: float = 30.0, metrics: Metrics | None = None
) -> Shipper:
    made = Shipper(
        HistoryFiles(folder, node="n", boot_id="b"),
        command=(*PYTHON, *command),
        timeout_seconds=timeout,
        clock=clock or ManualClock(),
        metrics=metrics or Metrics(),
    )
    made.load()
    return made


def count(metrics: Metrics, result: str) -> float | None:
    return metrics.registry.get_sample_value("pointsman_namesrv_history_ship_runs_total", {"result": result})


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store = tmp_path / "store"
    store.mkdir()
    return store


def arrived(store: Path) -> list[str]:
    return sorted(path.name for path in store.iterdir())


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        pytest.param(("cp", "{file}", "to/{file}"), ["cp", "/h/a b.gz", "to//h/a b.gz"], id="placeholder"),
        pytest.param(("upload", "--fast"), ["upload", "--fast", "/h/a b.gz"], id="last"),
    ],
)
def test_the_command_gets_the_path_where_it_wants_it(command: tuple[str, ...], expected: list[str]) -> None:
    assert words(command, Path("/h/a b.gz")) == expected


def test_each_closed_file_of_this_node_is_shipped_once(tmp_path: Path, store: Path) -> None:
    lay(tmp_path, "n-a-1.jsonl.gz", "n-b-1.jsonl.gz", "n-b-2.jsonl", ".n-b-2.jsonl.gz", "other-b-1.jsonl.gz")
    metrics = Metrics()
    shipping = shipper(tmp_path, COPY, "{file}", str(store), metrics=metrics)
    shipping.ship_due()
    assert arrived(store) == ["n-a-1.jsonl.gz", "n-b-1.jsonl.gz"]

    for path in store.iterdir():
        path.unlink()
    shipping.ship_due()
    shipper(tmp_path, COPY, "{file}", str(store)).ship_due()

    assert arrived(store) == []
    assert count(metrics, "shipped") == 2
    assert metrics.registry.get_sample_value("pointsman_namesrv_history_unshipped_files") == 0


def test_files_of_a_killed_process_are_shipped_by_the_next_and_removed_files_leave_its_list(
    tmp_path: Path, store: Path
) -> None:
    lay(tmp_path, "n-a-1.jsonl.gz", "n-a-2.jsonl.gz")
    (tmp_path / "shipped-n.txt").write_text("n-a-1.jsonl.gz\nn-a-0.jsonl.gz\nn-a-2.jso")
    shipper(tmp_path, COPY, "{file}", str(store)).ship_due()

    assert arrived(store) == ["n-a-2.jsonl.gz"]
    assert (tmp_path / "shipped-n.txt").read_text().split() == ["n-a-1.jsonl.gz", "n-a-2.jsonl.gz"]


def test_a_failed_command_is_logged_with_its_output_and_retried_with_backoff(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lay(tmp_path, "n-a-1.jsonl.gz")
    clock, metrics = ManualClock(), Metrics()
    failing = shipper(tmp_path, "import sys; sys.exit('x' * 500_000 + 'no such bucket')", clock=clock, metrics=metrics)
    tried = []
    for _ in range(200):
        failing.ship_due()
        tried.append(count(metrics, "failed"))
        clock.now += 60

    assert tried[:8] == [1, 2, 2, 3, 3, 3, 3, 4]
    assert tried[-1] == 9, "once an hour in the end"
    assert failing.problem().endswith("no such bucket")
    assert len(failing.problem()) < 2_500
    assert failing.waits(tmp_path / "raw" / "dt=2026-03-01" / "n-a-1.jsonl.gz")
    assert caplog.records[0].facts["retry_in_seconds"] == 60  # type: ignore[attr-defined]


def test_a_file_that_always_fails_is_given_up_and_does_not_delay_the_others(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "MAX_TRIES", 3)
    lay(tmp_path, "n-a-1.jsonl.gz", "n-a-2.jsonl.gz")
    bad = tmp_path / "raw" / "dt=2026-03-01" / "n-a-1.jsonl.gz"
    clock, metrics = ManualClock(), Metrics()
    picky = shipper(
        tmp_path, f"import sys; '-1.' in sys.argv[1] and sys.exit(3); {COPY}", "{file}", str(store), clock=clock,
        metrics=metrics,
    )  # fmt: skip
    picky.ship_due()
    assert arrived(store) == ["n-a-2.jsonl.gz"]
    assert picky.waits(bad)
    for _ in range(MAX_TRIES):
        clock.now += 3_600
        picky.ship_due()

    assert (count(metrics, "failed"), count(metrics, "given_up")) == (3, 1)
    assert not picky.waits(bad)
    assert shipper(tmp_path, COPY).waits(bad), "the next start retries it"


def test_while_all_commands_fail_not_every_file_is_tried_in_a_row(tmp_path: Path) -> None:
    lay(tmp_path, *(f"n-a-{n}.jsonl.gz" for n in range(9)))
    metrics = Metrics()

    wait = shipper(tmp_path, "import sys; sys.exit(1)", metrics=metrics).ship_due()

    assert (count(metrics, "failed"), wait) == (FAILURES_IN_A_ROW, 60)


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    lay(tmp_path, "n-a-1.jsonl.gz")
    metrics = Metrics()
    child = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])"
    hanging = shipper(tmp_path, child, timeout=0.2, metrics=metrics)

    hanging.ship_due()

    assert (count(metrics, "timeout"), count(metrics, "failed")) == (1, None)
    assert ": timeout after 1 tries" in hanging.problem()


def test_a_command_that_is_not_there_is_a_failure_like_any(tmp_path: Path) -> None:
    lay(tmp_path, "n-a-1.jsonl.gz")
    files = HistoryFiles(tmp_path, node="n", boot_id="b")
    missing = Shipper(files, command=("/nowhere",), timeout_seconds=1, clock=ManualClock(), metrics=Metrics())
    missing.ship_due()

    assert "No such file or directory: '/nowhere'" in missing.problem()


def test_with_an_unreadable_list_nothing_is_shipped_twice_and_the_problem_is_reported(
    tmp_path: Path, store: Path
) -> None:
    lay(tmp_path, "n-a-1.jsonl.gz")
    unread = shipper(tmp_path, COPY, "{file}", str(store))
    (tmp_path / "shipped-n.txt").mkdir()
    unread.start()
    unread.stop(timeout=20)

    assert arrived(store) == []
    assert unread.problem().startswith("nothing of the history is shipped")


def test_a_list_that_cannot_be_shortened_is_used_as_it_is(
    tmp_path: Path, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lay(tmp_path, "n-a-1.jsonl.gz", "n-a-2.jsonl.gz")
    (tmp_path / "shipped-n.txt").write_text("n-a-1.jsonl.gz\n")
    (tmp_path / "shipped-n.new").mkdir()
    shipper(tmp_path, COPY, "{file}", str(store)).ship_due()

    assert arrived(store) == ["n-a-2.jsonl.gz"]
    assert "list of shipped files cannot be shortened" in caplog.text


def test_a_list_that_cannot_be_written_ships_all_the_same(tmp_path: Path, store: Path) -> None:
    lay(tmp_path, "n-a-1.jsonl.gz")
    unlisted = shipper(tmp_path, COPY, "{file}", str(store))
    (tmp_path / "shipped-n.txt").mkdir()
    unlisted.ship_due()
    unlisted.ship_due()

    assert arrived(store) == ["n-a-1.jsonl.gz"]
    assert unlisted.problem() == ""


def test_a_folder_that_cannot_be_read_is_reported_and_scanned_again(tmp_path: Path) -> None:
    waiting = shipper(tmp_path / "absent", COPY)

    assert waiting.ship_due() == 60
    assert "cannot be listed" in waiting.problem()


def test_the_thread_ships_when_woken_and_what_is_new_before_it_stops(tmp_path: Path, store: Path) -> None:
    lay(tmp_path, "n-a-1.jsonl.gz")
    running = shipper(tmp_path, COPY, "{file}", str(store))
    running.start()
    until(lambda: arrived(store) == ["n-a-1.jsonl.gz"])
    lay(tmp_path, "n-b-1.jsonl.gz")
    running.wake()
    until(lambda: len(arrived(store)) == 2)
    lay(tmp_path, "n-b-2.jsonl.gz")
    running.stop(timeout=20)

    assert len(arrived(store)) == 3


def test_stopping_waits_for_a_hanging_command_within_its_limit(tmp_path: Path) -> None:
    lay(tmp_path, *(f"n-a-{n}.jsonl.gz" for n in range(5)))
    hanging = shipper(tmp_path, f"import sys, time; open({str(tmp_path / 'began')!r}, 'w'); time.sleep(600)")
    hanging.start()
    until((tmp_path / "began").exists)
    hanging.stop(timeout=0.1)

    until(lambda: not hanging._thread.is_alive())
