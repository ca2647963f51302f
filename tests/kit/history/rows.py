"""What a history holds, read as its readers do: every complete line of every file, gzipped or not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any


def files_in(history: Path) -> list[str]:
    """The files that readers see, as ``dt=.../name``, sorted."""
    raw = history / "raw"
    return sorted(str(path.relative_to(raw)) for path in raw.rglob("*.jsonl*") if not path.name.startswith("."))


def rows_in(history: Path) -> list[dict[str, Any]]:
    """Every row by boot and number, a row found in several files once; a torn last line is ignored."""
    found = {}
    for name in files_in(history):
        file = history / "raw" / name
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        for line in content.splitlines(keepends=True):
            if line.endswith(b"\n"):
                row = json.loads(line)
                found[row["boot_id"], row["seq"]] = row
    return [found[key] for key in sorted(found)]
