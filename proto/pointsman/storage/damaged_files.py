"""Where files go that cannot be read: out of the way, and kept for an operator to look into."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from pathlib import Path

FOLDER_NAME = "damaged"

log = logging.getLogger(__name__)


def set_aside(directory: Path, names: Iterable[str], *, most: int) -> None:
    """Move files into the folder's ``damaged``; the oldest ones there make room, so that ``most`` are kept.

    A file that cannot be moved stays, with a warning in the log.
    """
    aside = directory / FOLDER_NAME
    for name in names:
        try:
            aside.mkdir(exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                (directory / name).replace(aside / name)
            kept = sorted(aside.iterdir(), key=lambda path: path.lstat().st_ctime_ns)
            for path in kept[:-most]:
                path.unlink()
        except OSError as error:
            facts = {"file": directory / name, "error": str(error)}
            log.warning("a damaged file could not be moved and stays where it is", extra={"facts": facts})
