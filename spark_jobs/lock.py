"""A lock file that names its process: two runs must not publish into one warehouse at the same time."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark_jobs.errors import ReportError


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """Hold the lock while the block runs; a lock whose process is dead is taken over.

    Raises:
        ReportError: another run holds the lock.
    """
    # Linked into place whole: nobody ever reads a lock without its process.
    mine = lock.with_name(f".lock-{os.getpid()}")
    mine.write_text(f"{os.getpid()} {socket.gethostname()}\n", encoding="utf-8")
    try:
        try:
            lock.hardlink_to(mine)
        except FileExistsError:
            _refuse_if_alive(lock)
            mine.replace(lock)
        else:
            mine.unlink()
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
    finally:
        mine.unlink(missing_ok=True)


def _refuse_if_alive(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8", errors="replace").strip()
    owner = re.fullmatch(r"(\d+) (\S+)", text)
    # A process of another machine cannot be asked.
    if owner and owner[2] == socket.gethostname() and not _alive(int(owner[1])):
        return
    who = f"process {owner[1]} on {owner[2]}" if owner else "somebody"
    raise ReportError(f"another run is at work in this warehouse ({who}); if that is not so, remove {lock}")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
