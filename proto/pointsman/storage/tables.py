"""Tables in one SQLite file, for data that a process must not lose after it has acknowledged it.

One process owns the file from :meth:`DurableTables.open` to :meth:`DurableTables.close` or its exit, and one thread at
a time uses it. A write is one transaction, which is on disk when :meth:`DurableTables.write` returns. Each row has a
digest, because SQLite does not detect a changed bit in a value. Errors are OSError, whatever SQLite calls them, so that
callers see a full disk as a full disk. What happens to a damaged file is the caller's choice: :class:`OnRefusal`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import logging
import os
import secrets
import shutil
import sqlite3
import stat
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TypeAlias

Value: TypeAlias = str | float | bytes | None
Row: TypeAlias = tuple[Value, ...]

FORMAT_VERSION = 1
DAMAGED_FOLDER = "damaged"
_BUSY_SECONDS = 0.1
_COPY_ATTEMPTS = 3
_MAX_DAMAGED = 16
_MAX_IDLE_LOG_BYTES = 1024 * 1024
"""Size to which the write-ahead log is truncated once its content is in the file."""
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


log = logging.getLogger(__name__)

_FILES: weakref.WeakSet[DurableTables] = weakref.WeakSet()


class TablesRefused(OSError):
    """A file with other content than was written; the message says why, without the file's name."""


class TablesDamaged(TablesRefused):
    """A damaged file of this application, of which a part may be intact."""


class OnRefusal(Enum):
    """What :meth:`DurableTables.open` does with a damaged or foreign file."""

    RAISE = auto()
    """It stays, and TablesRefused is raised."""
    EMPTY = auto()
    """It is moved to the folder ``damaged``, and a new file is created."""
    BACKUP = auto()
    """As EMPTY; the new file has the rows of the last :meth:`DurableTables.back_up`, if they can be read."""
    SALVAGE = auto()
    """As EMPTY; the new file has all rows that are intact. Without any, or if the file cannot be moved: as RAISE."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table: the columns of its key, then the others. Names are not quoted."""

    name: str
    key: tuple[str, ...]
    values: tuple[str, ...]
    is_added: bool = False
    """Whether a file of an earlier version may lack it; then it is created. Without it such a file is damaged."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Return all columns but the digest, in the order of a row."""
        return (*self.key, *self.values)

    def create(self) -> str:
        """Return the statement that creates the table."""
        return (
            f"CREATE TABLE {self.name} ({', '.join(self.columns)}, digest BLOB NOT NULL, "
            f"PRIMARY KEY ({', '.join(self.key)})) WITHOUT ROWID"
        )

    def put(self) -> str:
        """Return the statement that sets a row, with its columns and digest."""
        return f"INSERT OR REPLACE INTO {self.name} VALUES ({', '.join('?' * (len(self.columns) + 1))})"  # noqa: S608

    def delete(self) -> str:
        """Return the statement that removes a row, by its key."""
        return f"DELETE FROM {self.name} WHERE {' AND '.join(f'{name} IS ?' for name in self.key)}"  # noqa: S608

    def read(self, *, order: str = "ASC") -> str:
        """Return the statement that reads all rows with their digests, sorted by key."""
        by = ", ".join(f"{name} {order}" for name in self.key)
        return f"SELECT {', '.join(self.columns)}, digest FROM {self.name} ORDER BY {by}"  # noqa: S608


@dataclass(frozen=True, slots=True)
class Opened:
    """The result of :meth:`DurableTables.open`."""

    rows: Mapping[str, list[Row]]
    """By table, sorted by key."""
    refused: TablesRefused | None = None
    """Why the file was replaced; None: it was not."""
    unwritable: OSError | None = None
    """Why the file is not open, and the rows are those of a copy; None: it is open."""


class DurableTables:
    """The tables of one file. Blocking."""

    def __init__(
        self,
        path: Path,
        tables: Iterable[Table],
        *,
        application_id: int,
        mode: int = 0o644,
        creates_folder: bool = True,
    ) -> None:
        self.path = path
        self.backup = path.with_name(f"{path.name}.bak")
        """The file of :meth:`back_up`."""
        self.tables: Mapping[str, Table] = {table.name: table for table in tables}
        self._repaired = path.with_name(f"{path.name}.repaired")
        """What replaces a damaged file; it has the file's own name when that one was moved."""
        self._application_id = application_id
        self._mode = mode
        """Permissions of a new file, less the umask."""
        self._creates_folder = creates_folder
        self._connection: sqlite3.Connection | None = None
        _FILES.add(self)
        self._opened_as: tuple[int, int] | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """Return all files that belong together, SQLite's own included."""
        return tuple(self.path.with_name(f"{self.path.name}{suffix}") for suffix in ("", "-wal", "-shm", "-journal"))

    def open(self, on_refusal: OnRefusal = OnRefusal.RAISE, *, reads_in_use: bool = False) -> Opened:
        """Open the file, create what is missing, and return all rows.

        With EMPTY and BACKUP, a file that cannot be opened for writing is read: from a copy, and while another process
        uses it only if ``reads_in_use``. Raises TablesRefused, unless the file was replaced, and OSError when it can be
        neither opened nor read: PermissionError for a file that this user may not read, EBUSY for one in use.
        """
        self.close()
        try:
            return Opened(self._open())
        except TablesRefused as error:
            return Opened(self._replace(error, on_refusal), refused=error)
        except OSError as error:
            if on_refusal in {OnRefusal.RAISE, OnRefusal.SALVAGE} or (error.errno == errno.EBUSY and not reads_in_use):
                raise
            return Opened(self._read_copy(), unwritable=error)

    def reopen(self) -> Mapping[str, list[Row]]:
        """Open a file that was removed by an operator, or could not be opened before; return its rows.

        Raises OSError, EIO for a damaged or foreign file, which stays.
        """
        try:
            return self.open().rows
        except TablesRefused as error:
            raise OSError(errno.EIO, f"the file {error}", str(self.path)) from error

    def write(self, rows: Iterable[tuple[str, Row, Row | None]]) -> None:
        """Set or remove rows, each as table, key and values (None: remove). Raises OSError; then nothing was
        changed."""
        connection = self._connected()
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
            except BaseException:  # re-raised below
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def back_up(self) -> None:
        """Copy the open file to :attr:`backup`, whose previous content stays until then. Raises OSError."""
        part = self.backup.with_name(f"{self.backup.name}.part")
        part.unlink(missing_ok=True)
        try:
            with self._as_os_error():
                self._connected().execute("VACUUM INTO ?", (str(part),))
            with part.open("rb+") as copied:
                os.fsync(copied.fileno())
            part.replace(self.backup)
        finally:
            part.unlink(missing_ok=True)
        _sync_folder(self.path.parent)

    def size(self) -> int:
        """Return the size of all files in bytes."""
        return sum(found.st_size for found in map(_stat, self.files) if found)

    def is_current(self) -> bool:
        """Return whether the open file is still the one at its path: an operator may have removed it."""
        return self._connection is not None and self._opened_as is not None and self._identity() == self._opened_as

    def close(self) -> None:
        """Close the file; does nothing if it is closed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            if not self.path.exists():  # removed by an operator; its log has to follow
                for path in self.files[1:]:
                    with contextlib.suppress(OSError):
                        path.unlink()

    # --- internals --------------------------------------------------------------------------------------------

    def _open(self) -> dict[str, list[Row]]:
        if self._creates_folder:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._repaired.exists() and not self.path.exists():
            self._set_aside()  # a log, if a process ended between two steps of a repair
            self._repaired.replace(self.path)
            _sync_folder(self.path.parent)
        if not self._refuse_special():
            self._create()
        elif not os.access(self.path, os.W_OK):
            raise OSError(errno.EROFS, "the disk or the file is read-only", str(self.path))
        with self._as_os_error(is_opening=True):
            # The opening thread and the writing thread may differ.
            self._connection = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                rows = self._prepare(self._connection)
            except BaseException:  # re-raised below
                self.close()
                raise
        self._opened_as = self._identity()
        return rows

    def _replace(self, refused: TablesRefused, on_refusal: OnRefusal) -> dict[str, list[Row]]:
        """Replace a refused file by a new one, and open it. Raises TablesRefused, OSError if it cannot be copied."""
        rescued = self._rescued(refused, on_refusal)
        if on_refusal is OnRefusal.RAISE or (on_refusal is OnRefusal.SALVAGE and not rescued):
            raise refused
        try:
            self._repaired.unlink(missing_ok=True)
            if rescued:
                with contextlib.closing(self._at(self._repaired)) as repaired:
                    repaired.open()
                    repaired.write(rescued)
            if self._set_aside():
                return self._open()
        except OSError as error:
            raise TablesRefused(f"{refused}: it could not be replaced: {error}") from error
        # SQLite would apply a remaining log to the new file.
        raise TablesRefused(f"{refused}: it could not be moved to the directory {DAMAGED_FOLDER}")

    def _rescued(self, refused: TablesRefused, on_refusal: OnRefusal) -> list[tuple[str, Row, Row | None]]:
        """Return the rows of the new file, as :meth:`write` takes them."""
        rows: Mapping[str, list[Row]] = {}
        if on_refusal is OnRefusal.SALVAGE and isinstance(refused, TablesDamaged):
            rows = self._read_undamaged()
        elif on_refusal is OnRefusal.BACKUP:
            try:
                rows = self._at(self.backup)._read_copy()  # noqa: SLF001  # of this class
            except OSError as error:
                facts = {"file": self.backup, "error": str(error)}
                log.warning("backup of a damaged file cannot be read", extra={"facts": facts})
        keys = {name: len(table.key) for name, table in self.tables.items()}
        return [(name, row[: keys[name]], row[keys[name] :]) for name in rows for row in rows[name]]

    def _prepare(self, connection: sqlite3.Connection) -> dict[str, list[Row]]:
        # Single owner, no shared memory: any file system will do.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._check(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA journal_size_limit = {_MAX_IDLE_LOG_BYTES}")
        # Each commit is synced before it is acknowledged.
        connection.execute("PRAGMA synchronous = FULL")
        self._add_tables(connection)
        return self._rows(connection)

    def _create(self) -> None:
        """Create the file with all tables under another name, and give it its own when it is on disk.

        So an empty file is never one that was being created, but one that has lost its content.
        """
        with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            connection.execute("PRAGMA auto_vacuum = FULL")  # removed rows make the file shorter
            connection.execute(f"PRAGMA application_id = {self._application_id}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            for table in self.tables.values():
                connection.execute(table.create())
            content = connection.serialize()
        fresh = self.path.with_name(f"{self.path.name}.{secrets.token_hex(4)}.new")
        try:
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, self._mode), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(fresh, self.path)
            except FileExistsError:  # another process was faster
                pass
            except OSError:  # a file system without links
                fresh.replace(self.path)
        except (FileNotFoundError, PermissionError) as error:
            # No PermissionError: that is an existing file which this user may not read.
            problem = "its folder does not exist or cannot be written"
            raise OSError(errno.ENOENT, problem, str(self.path)) from error
        finally:
            with contextlib.suppress(OSError):
                fresh.unlink()
        _sync_folder(self.path.parent)

    def _read_copy(self) -> Mapping[str, list[Row]]:
        """Read all rows of a file that cannot be opened for writing, from a copy. Raises TablesRefused and OSError.

        Not for a file that this process has open: reading it would release its lock.
        """
        if not self._refuse_special():
            return self._no_rows()
        with tempfile.TemporaryDirectory() as folder:
            self._copy_to(folder)
            with contextlib.closing(self._at(Path(folder) / self.path.name)) as copy:
                return copy.open().rows

    def _read_undamaged(self) -> dict[str, list[Row]]:
        """Read the intact rows of a refused file, from a copy; there may have been more.

        Returns none for a file with other tables. Raises OSError.
        """
        found: dict[str, dict[Row, Row]] = {name: {} for name in self.tables}
        with tempfile.TemporaryDirectory() as folder:
            self._copy_to(folder)
            with contextlib.closing(sqlite3.connect(Path(folder) / self.path.name)) as connection:
                connection.text_factory = lambda text: text.decode(errors="surrogateescape")
                for name, table in self.tables.items():
                    for order in ("ASC", "DESC"):  # up to the unreadable place, from both ends
                        with contextlib.suppress(sqlite3.Error):
                            for *values, digest in connection.execute(table.read(order=order)):
                                row = tuple(values)
                                if digest == _digest(table, row):
                                    found[name][row[: len(table.key)]] = row
        return {name: [rows[key] for key in sorted(rows)] for name, rows in found.items()}

    def _set_aside(self) -> bool:
        """Move the file, with those beside it, into the folder ``damaged``, for an operator to inspect.

        The oldest files there are removed if necessary. Returns whether all were moved; one that cannot be moved stays,
        with a warning in the log.
        """
        aside = self.path.parent / DAMAGED_FOLDER
        for path in self.files:
            try:
                aside.mkdir(exist_ok=True)
                with contextlib.suppress(FileNotFoundError):
                    path.replace(aside / path.name)
                kept = sorted(aside.iterdir(), key=lambda path: path.lstat().st_ctime_ns)
                for old in kept[:-_MAX_DAMAGED]:
                    old.unlink()
            except OSError as error:
                facts = {"file": path, "error": str(error)}
                log.warning("damaged file could not be moved and stays where it is", extra={"facts": facts})
        return not any(path.exists() for path in self.files)

    def _at(self, path: Path) -> DurableTables:
        """Return tables of the same form in another file."""
        return DurableTables(path, self.tables.values(), application_id=self._application_id, mode=self._mode)

    def _no_rows(self) -> dict[str, list[Row]]:
        return {name: [] for name in self.tables}

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self.path))
        return self._connection

    def _check(self, connection: sqlite3.Connection) -> None:
        """Refuse a damaged or foreign file."""
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application_id != self._application_id:
            raise TablesRefused(f"belongs to another application: its id is {application_id:#x}")
        if version != FORMAT_VERSION:
            raise TablesRefused(f"has format version {version}, this version reads {FORMAT_VERSION}")
        (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise TablesDamaged(f"is damaged: {found}")

    def _add_tables(self, connection: sqlite3.Connection) -> None:
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table in self.tables.values():
            if table.is_added and table.name not in there:
                connection.execute(table.create())

    def _rows(self, connection: sqlite3.Connection) -> dict[str, list[Row]]:
        read: dict[str, list[Row]] = {}
        for name, table in self.tables.items():
            read[name] = []
            for *values, digest in connection.execute(table.read()):
                row = tuple(values)
                if digest != _digest(table, row):
                    raise TablesDamaged(f"is damaged: the digest of a row of {name} does not fit")
                read[name].append(row)
        return read

    def _copy_to(self, folder: str) -> None:
        """Copy all files in one consistent state. Raises OSError, EBUSY if another process keeps writing."""
        for _ in range(_COPY_ATTEMPTS):
            before = self._stamps()
            for path in self.files:
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(path, Path(folder) / path.name)  # not its mode: the copy is written to
            if self._stamps() == before:
                return
        raise _in_use(self.path)

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [found and (found.st_ino, found.st_size, found.st_mtime_ns) for found in map(_stat, self.files)]

    def _refuse_special(self) -> bool:
        """Refuse a link, a pipe, a folder or an empty file at the path; return whether the file exists.

        Raises PermissionError.
        """
        # Looked up first: another process that is creating the file writes its log after it.
        logs = [path.name for path in self.files[1:] if path.exists()]
        try:
            found = self.path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            if logs:  # a new file must not replay it
                raise TablesDamaged(f"is damaged: it is missing, but its {logs[0]} is there") from None
            return False
        if not stat.S_ISREG(found.st_mode):
            raise TablesRefused("is not a file")
        # Without opening it: closing a file releases all locks of this process on it.
        if not os.access(self.path, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self.path))
        if found.st_size == 0:
            raise TablesDamaged("is damaged: it is empty")
        return True

    def _identity(self) -> tuple[int, int] | None:
        found = _stat(self.path)
        return found and (found.st_dev, found.st_ino)

    @contextlib.contextmanager
    def _as_os_error(self, *, is_opening: bool = False) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            # A statement failed because of the file's schema: it is not the one that was written.
            if primary in _DAMAGED or (is_opening and primary == sqlite3.SQLITE_ERROR):
                raise TablesDamaged(f"is damaged: {error}") from error
            number = _ERRNO_OF.get(primary, errno.EIO)
            if number == errno.EBUSY:
                raise _in_use(self.path) from error
            problem = (
                "its folder does not exist or cannot be written" if number == errno.ENOENT else os.strerror(number)
            )
            detail = f"{problem} ({getattr(error, 'sqlite_errorname', 'SQLITE_ERROR')})"
            raise OSError(number, detail, str(self.path)) from error
        except UnicodeDecodeError as error:
            raise TablesDamaged("is damaged: a text is not UTF-8") from error


def _abandon_in_child() -> None:
    """Keep a forked child from closing its parent's files: SQLite would remove the log that the parent is writing."""
    for file in _FILES:
        if file._connection is not None:  # noqa: SLF001  # of this module
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(file._connection))  # noqa: SLF001
            file._connection = None  # noqa: SLF001


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_in_child)


def _digest(table: Table, row: Row) -> bytes:
    # Large values are replaced by their digest: their text would be several times as large.
    short = tuple(hashlib.sha256(value).digest() if isinstance(value, bytes) else value for value in row)
    return hashlib.sha256(repr((table.name, short)).encode(errors="backslashreplace")).digest()[:_DIGEST_BYTES]


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _in_use(path: Path) -> OSError:
    return OSError(errno.EBUSY, "another process uses it: stop that one, or give each its own file", str(path))


def _sync_folder(folder: Path) -> None:
    """Make a new name durable, where folders can be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
