"""The resources that shape a local session."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman_report.spark_session import default_memory, is_below

GB = 2**30


def limited(monkeypatch: pytest.MonkeyPatch, folder: Path, machine: int, container: str | None) -> None:
    pages = {"SC_PHYS_PAGES": machine // 4_096, "SC_PAGE_SIZE": 4_096}
    monkeypatch.setattr("os.sysconf", pages.__getitem__)
    limit = folder / "memory.max"
    if container is not None:
        limit.write_text(f"{container}\n")
    monkeypatch.setattr("pointsman_report.spark_session._CONTAINER_LIMIT", limit)


@pytest.mark.parametrize(
    ("machine", "container", "given"),
    [
        pytest.param(16 * GB, None, "4096m", id="a-quarter"),
        pytest.param(16 * GB, "max", "4096m", id="a-container-without-a-limit"),
        pytest.param(16 * GB, str(6 * GB), "1536m", id="a-container-with-one"),
        pytest.param(2 * GB, None, "1024m", id="at-least"),
        pytest.param(256 * GB, None, "8192m", id="at-most"),
    ],
)
def test_java_gets_a_quarter_of_the_memory_within_bounds(
    machine: int, container: str | None, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(monkeypatch, tmp_path, machine, container)
    assert default_memory() == given


def test_the_files_below_all_folders_count_and_packed_ones_for_more(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two" / "deep"
    one.mkdir()
    two.mkdir(parents=True)
    (one / "a.jsonl").write_bytes(b"x" * 40)
    (two / "b.jsonl.gz").write_bytes(b"x" * 5)

    assert is_below(91, [one, tmp_path / "two"])
    assert not is_below(90, [one, tmp_path / "two"])


def test_a_linked_folder_counts_as_its_target(tmp_path: Path) -> None:
    elsewhere, view = tmp_path / "elsewhere", tmp_path / "view"
    elsewhere.mkdir()
    view.mkdir()
    (elsewhere / "a.jsonl").write_bytes(b"x" * 40)
    (view / "dt=2026-03-02").symlink_to(elsewhere)

    assert not is_below(40, [view])


def test_unknown_input_does_not_count_as_small(tmp_path: Path) -> None:
    assert not is_below(1, [])
    assert is_below(1, [tmp_path / "nowhere"])
