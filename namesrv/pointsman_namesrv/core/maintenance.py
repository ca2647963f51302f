"""Announced absences: while a window is open, a departure does not count as an outage, nor for the guard."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pointsman_namesrv.core.model import GroupKey
from pointsman_namesrv.core.node_refusals import LimitExceeded

MAX_WINDOWS = 500
"""All windows go into one response, which gRPC limits to 4 MiB; a note may have 4 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceWindow:
    """One announced absence."""

    key: GroupKey
    """An empty broker name: the whole cluster."""
    until: float
    """End, in monotonic seconds (exclusive)."""
    note: str = ""
    by: str = ""


class MaintenanceWindows:
    """The open windows, one for each cluster and broker name."""

    def __init__(self) -> None:
        self._windows: dict[GroupKey, MaintenanceWindow] = {}

    def open(self, key: GroupKey, *, until: float, note: str = "", by: str = "") -> MaintenanceWindow:
        """Announce an absence; it replaces the window that the key has. Raises LimitExceeded."""
        self.check_open(key)
        window = self._windows[key] = MaintenanceWindow(key=key, until=until, note=note, by=by)
        return window

    def check_open(self, key: GroupKey) -> None:
        """Raise LimitExceeded if there are too many windows for another one."""
        if key not in self._windows and len(self._windows) >= MAX_WINDOWS:
            raise LimitExceeded("maintenance_windows", MAX_WINDOWS)

    def close(self, key: GroupKey) -> bool:
        """End a window early; return whether there was one."""
        return self._windows.pop(key, None) is not None

    def covers(self, key: GroupKey, *, now: float) -> bool:
        """Return whether a group is in its own window or in its cluster's."""
        if not self._windows:
            return False
        own, whole = self._windows.get(key), self._windows.get(GroupKey(key.cluster, ""))
        return (own is not None and now < own.until) or (whole is not None and now < whole.until)

    def window(self, key: GroupKey) -> MaintenanceWindow | None:
        """Return the window of one key, if it has one."""
        return self._windows.get(key)

    def windows(self) -> list[MaintenanceWindow]:
        """Return all windows, sorted by cluster and broker name, overdue ones included."""
        return [self._windows[key] for key in sorted(self._windows)]

    def end_overdue(self, *, now: float) -> list[MaintenanceWindow]:
        """Remove and return the windows that are over, sorted."""
        over = [self._windows[key] for key in sorted(key for key, w in self._windows.items() if w.until <= now)]
        for window in over:
            del self._windows[window.key]
        return over

    def restore(self, windows: Iterable[MaintenanceWindow]) -> None:
        """Restore the windows of a snapshot. Raises LimitExceeded."""
        for window in windows:
            self.open(window.key, until=window.until, note=window.note, by=window.by)
