"""The lock of a warehouse."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pointsman_report import lock
from pointsman_report.report_errors import ReportError


def test_a_lock_whose_process_is_dead_is_taken_over(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / "lock").write_text(f"{dead.pid} {socket.gethostname()}\n", encoding="utf-8")

    with lock.locked(tmp_path / "lock"):
        assert (tmp_path / "lock").exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["4194304 another-machine\n", "rubbish\n"])
def test_a_lock_of_a_process_that_cannot_be_checked_is_kept(text: str, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(text, encoding="utf-8")

    with pytest.raises(ReportError, match="locked by another run"), lock.locked(tmp_path / "lock"):
        pass
    assert (tmp_path / "lock").read_text(encoding="utf-8") == text
