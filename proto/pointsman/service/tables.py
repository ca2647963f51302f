"""Small tables in one SQLite file: what a daemon must not lose once it has acknowledged it.

One process owns the file, one thread at a time uses it. A write is one transaction, and it is on the disk when
:meth:`TableFile.write` returns. Each row carries a digest, because SQLite does not notice a changed bit in a value.
Errors are OSError, whatever SQLite calls them, so that a full disk is a full disk to every caller.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Value: TypeAlias = str | float | None
Row: TypeAlias = tuple[Value, ...]

FORMAT_VERSION = 1
_BUSY_SECONDS = 0.1
_DIGEST_BYTES = 8
_ERRNO_OF = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_LOCKED: errno.EBUSY,
    sqlite3.SQLITE_NOMEM: errno.ENOMEM,
    sqlite3.SQLITE_CANTOPEN: errno.ENOENT,
}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_SCHEMA}


class TablesRefused(Exception):
    """A file that does not hold what was written; the text says why, without the file's name."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table: the columns of its key, then the others. The names are not quoted."""

    name: str
    key: tuple[str, ...]
    values: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns but the digest, in the order of a row."""
        return (*self.key, *self.values)

    def create(self) -> str:
        """The statement that makes it."""
        return (
            f"CREATE TABLE {self.name} ({', '.join(self.columns)}, digest BLOB NOT NULL, "
            f"PRIMARY KEY ({', '.join(self.key)})) WITHOUT ROWID"
        )

    def put(self) -> str:
        """The statement that sets a row, for its columns and digest."""
        return f"INSERT OR REPLACE INTO {self.name} VALUES ({', '.join('?' * (len(self.columns) + 1))})"  # noqa: S608

    def delete(self) -> str:
        """The statement that removes a row, for its key."""
        return f"DELETE FROM {self.name} WHERE {' AND '.join(f'{name} IS ?' for name in self.key)}"  # noqa: S608

    def read(self) -> str:
        """The statement that reads all rows, each with its digest, sorted by key."""
        return f"SELECT {', '.join(self.columns)}, digest FROM {self.name} ORDER BY {', '.join(self.key)}"  # noqa: S608


class TableFile:
    """The tables of one file. Blocking."""

    def __init__(self, path: Path, tables: Iterable[Table], *, application_id: int) -> None:
        self.path = path
        self.tables: Mapping[str, Table] = {table.name: table for table in tables}
        self._application_id = application_id
        self._connection: sqlite3.Connection | None = None
        self._opened_as: tuple[int, int] | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all files that belong together, those that SQLite keeps beside the first included."""
        return tuple(f"{self.path.name}{suffix}" for suffix in ("", "-wal", "-shm", "-journal"))

    def open(self) -> dict[str, list[Row]]:
        """Open the file, make what is missing, and return all rows by table.

        Raises TablesRefused for a damaged or foreign file, and OSError, also when the disk is read-only:
        then :meth:`read_copy` may help.
        """
        self.close()
        is_new = not self._refuse_special()
        with self._as_os_error(is_opening=True):
            # Of no thread: the one that opens it at the start is not the one that writes.
            self._connection = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                rows = self._prepare(self._connection)
            except BaseException:  # it is raised again
                self.close()
                raise
        if is_new:
            _sync_folder(self.path.parent)
        self._opened_as = self._identity()
        return rows

    def _prepare(self, connection: sqlite3.Connection) -> dict[str, list[Row]]:
        # The owner alone has it: no shared memory, so any file system will do.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        is_empty = self._check(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        # Each commit is synced before it is acknowledged.
        connection.execute("PRAGMA synchronous = FULL")
        if is_empty:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA application_id = {self._application_id}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            for table in self.tables.values():
                connection.execute(table.create())
            connection.execute("COMMIT")
        return self._rows(connection)

    def read_copy(self) -> dict[str, list[Row]]:
        """Read all rows of a file that cannot be opened for writing, from a copy. Raises as :meth:`open` does."""
        if not self._refuse_special():
            return {name: [] for name in self.tables}
        with tempfile.TemporaryDirectory() as folder:
            for name in self.files:
                if (self.path.parent / name).exists():
                    shutil.copy(self.path.parent / name, folder)
            copy = TableFile(Path(folder) / self.path.name, self.tables.values(), application_id=self._application_id)
            try:
                return copy.open()
            finally:
                copy.close()

    def write(self, rows: Iterable[tuple[str, Row, Row | None]]) -> None:
        """Set or remove rows, each given as table, key and values (None: remove). Raises OSError; then none is done."""
        if self._connection is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self.path))
        connection = self._connection
        with self._as_os_error():
            connection.execute("BEGIN IMMEDIATE")
            try:
                for name, key, values in rows:
                    table = self.tables[name]
                    if values is None:
                        connection.execute(table.delete(), key)
                    else:
                        row = (*key, *values)
                        connection.execute(table.put(), (*row, _digest(table, row)))
                connection.execute("COMMIT")
            except BaseException:  # whatever it is, it is raised again
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def is_current(self) -> bool:
        """Whether the open file is still the one at its path: an operator may have removed it."""
        return self._connection is not None and self._opened_as is not None and self._identity() == self._opened_as

    def close(self) -> None:
        """Close the file; again does nothing."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- within -----------------------------------------------------------------------------------------------

    def _check(self, connection: sqlite3.Connection) -> bool:
        """Refuse what is damaged or foreign; return whether there is nothing yet."""
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application_id, version, objects) == (0, 0, 0):
            return True
        if application_id != self._application_id:
            raise TablesRefused(f"belongs to another application: its id is {application_id:#x}")
        if version != FORMAT_VERSION:
            raise TablesRefused(f"has format version {version}, this version reads {FORMAT_VERSION}")
        (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise TablesRefused(f"is damaged: {found}")
        return False

    def _rows(self, connection: sqlite3.Connection) -> dict[str, list[Row]]:
        read: dict[str, list[Row]] = {}
        for name, table in self.tables.items():
            read[name] = []
            for *values, digest in connection.execute(table.read()):
                row = tuple(values)
                if digest != _digest(table, row):
                    raise TablesRefused(f"is damaged: the digest of a row of {name} does not fit")
                read[name].append(row)
        return read

    def _refuse_special(self) -> bool:
        """Refuse a link, a pipe or a folder at the path; return whether there is a file. Raises PermissionError."""
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(found.st_mode):
            raise TablesRefused("is not a file")
        os.close(os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
        return True

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    @contextmanager
    def _as_os_error(self, *, is_opening: bool = False) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            # A statement that fails on a file as it is found: its schema is not the one that was written.
            if primary in _DAMAGED or (is_opening and primary == sqlite3.SQLITE_ERROR):
                raise TablesRefused(f"is damaged: {error}") from error
            number = _ERRNO_OF.get(primary, errno.EIO)
            detail = f"{os.strerror(number)} ({getattr(error, 'sqlite_errorname', 'SQLITE_ERROR')})"
            raise OSError(number, detail, str(self.path)) from error
        except UnicodeDecodeError as error:
            raise TablesRefused("is damaged: a text is not UTF-8") from error


def _digest(table: Table, row: Row) -> bytes:
    return hashlib.sha256(repr((table.name, row)).encode(errors="backslashreplace")).digest()[:_DIGEST_BYTES]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
