"""Operators' settings in ``settings.db``, a table for each kind. Blocking; used by one thread at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from pointsman.clock import Clock
from pointsman.storage.tables import DurableTables, OnRefusal, Row, Table, TablesRefused
from pointsman_namesrv.core.saved_settings import Rows, Setting, SettingKey, SettingKind

FILE_NAME = "settings.db"
APPLICATION_ID = 0x504D5354  # "PMST"
REFRESH_SECONDS = 60.0
"""Longest age of a setting's remaining time on disk: a wall clock that is set back adds at most that."""
_TIMES = ("remaining_seconds", "saved_at")
"""Remaining seconds of a setting, and the Unix time when they were stored; NULL: it has no end."""

_TABLES = {
    SettingKind.KV: Table("kv", ("namespace", "key"), ("value",)),
    SettingKind.WIPED_PERMISSION: Table("wiped_permissions", ("cluster", "broker_name"), ("incarnation",)),
    SettingKind.HIDDEN_TOPIC: Table(
        "hidden_topics", ("cluster", "broker_name", "topic"), ("state_version", "timestamp_millis", "counter")
    ),
    SettingKind.GUARD: Table("guards", ("cluster",), ("mode", *_TIMES)),
    SettingKind.MAINTENANCE: Table("maintenance_windows", ("cluster", "broker_name"), ("note", "set_by", *_TIMES)),
}

log = logging.getLogger(__name__)


class SettingsStore:
    """Tracks what is on disk, and writes the difference to what it is given."""

    def __init__(self, tables: DurableTables, *, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock
        self._saved: dict[SettingKey, Setting] = {}
        self._saved_at: dict[SettingKey, float] = {}
        """For settings that end: monotonic seconds."""

    @property
    def path(self) -> Path:
        """Return the path of the database."""
        return self._tables.path

    def load(self) -> tuple[Mapping[SettingKey, Setting], str]:
        """Open the database; return its settings, and a description of what was wrong with it.

        A damaged or foreign file is moved to ``damaged`` and replaced by an empty one. A read-only file is read. Raises
        PermissionError: an unreadable file is not damaged, and must be neither moved nor replaced.
        """
        try:
            opened = self._tables.open(OnRefusal.EMPTY, reads_in_use=True)
        except TablesRefused as error:
            return {}, self._refused(error)
        except PermissionError:
            raise
        except OSError as error:
            _log_unwritable(error)
            return {}, f"the settings of operators could not be read at the start: {error}"
        if opened.refused is not None:
            return {}, self._refused(opened.refused)
        if opened.unwritable is not None:
            _log_unwritable(opened.unwritable)
        self._saved = dict(_settings(opened.rows, self._clock))
        now = self._clock.monotonic()
        self._saved_at = {key: now for key, setting in self._saved.items() if setting.until is not None}
        return dict(self._saved), ""

    def _refused(self, error: TablesRefused) -> str:
        facts = {"file": self.path, "problem": str(error)}
        log.error("operator settings file rejected, moved to damaged/; set them again", extra={"facts": facts})
        return (
            f"the settings of operators were refused at the start and set aside: {self.path} {error}; set them again, "
            "`pointsmanctl diff` with another name server lists them"
        )

    def differing(self, wanted: Rows) -> dict[SettingKey, Setting | None]:
        """Return the rows that differ from the disk, or whose remaining time on disk is too old."""
        now = self._clock.monotonic()
        return {
            key: setting
            for key, setting in wanted.items()
            if self._saved.get(key) != setting
            or (key in self._saved_at and now - self._saved_at[key] > REFRESH_SECONDS)
        }

    def difference_from(self, wanted: Mapping[SettingKey, Setting]) -> dict[SettingKey, Setting | None]:
        """As :meth:`differing`, for all settings: those on disk that are not wanted are to be removed."""
        return self.differing({**dict.fromkeys(self._saved), **wanted})

    def write(self, rows: Rows) -> None:
        """Save the rows; None removes a row. Durable when it returns. Raises OSError; then nothing was saved."""
        if not self._tables.is_current():
            # Not open yet, or removed by an operator: write everything.
            found = dict(_settings(self._tables.reopen(), self._clock))
            rows = {**dict.fromkeys(found), **self._saved, **rows}
        # In this order: a pause between the two must not extend a setting's remaining time.
        unix_now, now = self._clock.utc_now().timestamp(), self._clock.monotonic()
        self._tables.write(_encoded(key, setting, now=now, unix_now=unix_now) for key, setting in rows.items())
        for key, setting in rows.items():
            self._saved.pop(key, None)
            self._saved_at.pop(key, None)
            if setting is not None:
                self._saved[key] = setting
                if setting.until is not None:
                    self._saved_at[key] = now

    def close(self) -> None:
        """Close the file."""
        self._tables.close()


def table_file(directory: Path) -> DurableTables:
    """Return the database of a folder."""
    return DurableTables(directory / FILE_NAME, _TABLES.values(), application_id=APPLICATION_ID)


def _log_unwritable(error: OSError) -> None:
    log.warning("operator settings cannot be opened for writing", extra={"facts": {"error": str(error)}})


def _encoded(key: SettingKey, setting: Setting | None, *, now: float, unix_now: float) -> tuple[str, Row, Row | None]:
    table = _TABLES[key.kind]
    if setting is None:
        return table.name, key.name, None
    if table.values[-2:] != _TIMES:
        return table.name, key.name, setting.value
    if setting.until is None:
        return table.name, key.name, (*setting.value, None, None)
    return table.name, key.name, (*setting.value, setting.until - now, unix_now)


def _settings(tables: Mapping[str, list[Row]], clock: Clock) -> Iterator[tuple[SettingKey, Setting]]:
    now, unix_now = clock.monotonic(), clock.utc_now().timestamp()
    for kind, table in _TABLES.items():
        for row in tables[table.name]:
            name, values = _texts(row[: len(table.key)]), row[len(table.key) :]
            until: float | None = None
            if table.values[-2:] == _TIMES:
                *values, remaining, saved_at = values  # type: ignore[assignment]
                if isinstance(remaining, int | float) and isinstance(saved_at, int | float):
                    # A wall clock that was set back must not extend it.
                    until = now + remaining - max(0.0, unix_now - saved_at)
            yield SettingKey(kind, name), Setting(_texts(tuple(values)), until)


def _texts(row: Row) -> tuple[str, ...]:
    return tuple(str(value) for value in row)
