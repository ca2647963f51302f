"""A disk for operators' settings that completes its writes when a test allows it."""

from __future__ import annotations

import threading
from typing import Any

from pointsman_namesrv.core.saved_settings import Rows
from pointsman_namesrv.settings.settings_store import SettingsStore

GATE_SECONDS = 30.0


class GatedStore(SettingsStore):
    """A disk that writes nothing until the test allows it, and keeps what was written."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.gate = threading.Event()
        self.gate.set()
        self.writes: list[Rows] = []
        self.refuses: OSError | None = None

    def write(self, rows: Rows) -> None:
        self.writes.append(rows)
        assert self.gate.wait(GATE_SECONDS)
        if self.refuses is not None:
            raise self.refuses
        super().write(rows)
