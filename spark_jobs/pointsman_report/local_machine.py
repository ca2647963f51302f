"""What a session on this machine is shaped by: its memory, and how much there is to read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

LEAST_MB, MOST_MB = 1_024, 8_192
PACKED_HOLDS = 10
"""A gzip of history unpacks to some ten times its size."""
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def default_memory() -> str:
    """Give Java a quarter of what this machine or container has, within bounds."""
    return f"{min(MOST_MB, max(LEAST_MB, _memory_bytes() // 4 // 2**20))}m"


def _memory_bytes() -> int:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(machine, int(_CONTAINER_LIMIT.read_text(encoding="ascii")))
    except (OSError, ValueError):
        # No container, or one without a limit, which says "max".
        return machine


def is_below(most: int, folders: Iterable[Path]) -> bool:
    """Say whether the files below some folders hold less than so many bytes, unpacked; False if there is no folder."""
    known, total = False, 0
    for folder in folders:
        known = True
        for size in _sizes(folder):
            total += size
            if total >= most:
                return False
    return known


def _sizes(folder: Path) -> Iterator[int]:
    # Spark reads what a link leads to.
    for path, _, names in os.walk(folder, followlinks=True):
        for name in names:
            try:
                size = (Path(path) / name).stat().st_size
            except OSError:
                # Packed or removed meanwhile.
                continue
            yield size * (PACKED_HOLDS if name.endswith(".gz") else 1)
