"""Names in folders that last."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pointsman_client.folder_sync import sync_folder


def test_the_folder_itself_is_synced_and_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    opened = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))

    sync_folder(tmp_path)

    assert synced == [str(tmp_path)]
    assert len(os.listdir("/proc/self/fd")) == opened


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "nowhere")
