"""Rows as the files of a name server: by day and run, closed or open, as its recorder leaves them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pointsman.history.row_format import good_row
from pointsman_namesrv.history.folder import day_folder, file_node, pack


def write_own_files(directory: Path, rows: Iterable[dict[str, Any]], *, rows_in_file: int = 10**9) -> Path:
    """Write rows to files of at most this number, all but the last one of a run gzipped."""
    files: dict[Path, list[str]] = {}
    counts: dict[tuple[str, str, str], int] = {}
    for row in rows:
        line = json.dumps(row, ensure_ascii=False)
        parsed = good_row(line)
        assert parsed is not None, line
        key = (str(parsed["dt"]), row["node"], row["boot_id"])
        counts[key] = counts.get(key, 0) + 1
        number = 1 + (counts[key] - 1) // rows_in_file
        name = f"{file_node(row['node'])}-{row['boot_id']}-{parsed['dt']:%d}{number}.jsonl"
        files.setdefault(day_folder(directory / "raw", parsed["dt"]) / name, []).append(line)
    for path, lines in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for path in list(files)[:-1]:
        pack(path)
    return directory
