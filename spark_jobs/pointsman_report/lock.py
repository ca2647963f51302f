"""A lock file with the id of its process: only one run may publish into a warehouse at a time."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from py4j.protocol import Py4JJavaError

from pointsman_report.hadoop_files import Files
from pointsman_report.report_errors import ReportError


@contextmanager
def locked(lock: Path) -> Iterator[None]:
    """Hold the lock while the block runs; a lock of a process that has ended is taken over.

    Raises:
        ReportError: another run holds the lock.
    """
    # Linked into place, so that no reader sees a lock file without its process id.
    mine = lock.with_name(f".lock-{os.getpid()}")
    mine.write_text(f"{os.getpid()} {socket.gethostname()}\n", encoding="utf-8")
    try:
        try:
            lock.hardlink_to(mine)
        except FileExistsError:
            _reject_if_running(lock)
            mine.replace(lock)
        else:
            mine.unlink()
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
    finally:
        mine.unlink(missing_ok=True)


@contextmanager
def locked_remotely(files: Files, lock: str) -> Iterator[None]:
    """Hold a lock on a remote file system. A lock left behind is not taken over, except on an object store, from a
    process of this machine that has ended: only there can one of several runs replace it.

    Raises:
        ReportError: another run holds the lock, or held it when it was killed.
    """
    mine = f"{os.getpid()} {socket.gethostname()}\n"
    try:
        files.create(lock, mine)
    except Py4JJavaError:
        etag = files.etag(lock) if files.is_object_store(lock) else None
        text = files.text(lock)
        if text is None:
            raise
        if etag is None or not _has_ended(text):
            raise _locked_error(text, lock, since=files.modified_at(lock)) from None
        files.put(lock, mine, replaces=etag)
    try:
        yield
    finally:
        files.delete(lock)


def _reject_if_running(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8", errors="replace")
    if not _has_ended(text):
        raise _locked_error(text, str(lock), since=datetime.fromtimestamp(lock.stat().st_mtime, tz=UTC))


def _has_ended(text: str) -> bool:
    owner = _owner(text)
    # Whether a process of another machine runs is unknown.
    return owner is not None and owner[2] == socket.gethostname() and not _is_running(int(owner[1]))


def _owner(text: str) -> re.Match[str] | None:
    return re.fullmatch(r"(\d+) (\S+)", text.strip())


def _locked_error(text: str, lock: str, *, since: datetime) -> ReportError:
    owner = _owner(text)
    who = f"process {owner[1]} on {owner[2]}" if owner else "unknown process"
    minutes = max(0, round((datetime.now(tz=UTC) - since).total_seconds() / 60))
    age = f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"
    return ReportError(
        f"the warehouse is locked by another run ({who}, for {age}); if that run has ended, remove {lock}"
    )


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
