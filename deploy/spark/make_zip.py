"""Pack the report for ``spark-submit --py-files``: ``make spark-zip``.

The zip holds ``pointsman_report`` with its data files, and the modules of ``pointsman`` that need no gRPC. The same
sources give the same bytes.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKED = (
    (ROOT / "spark_jobs", "pointsman_report/**/*"),
    (ROOT / "proto", "pointsman/*.py"),
    (ROOT / "proto", "pointsman/history/*.py"),
)
"""Folders, and which of their files."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_LEFT_OUT = {"__pycache__", ".mypy_cache"}


def main(arguments: list[str]) -> None:
    target = Path(arguments[0]) if arguments else ROOT / "dist" / "pointsman-spark.zip"
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in _members():
            packed.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    print(target)


def _members() -> Iterator[tuple[str, bytes]]:
    for part, files in PACKED:
        for path in sorted(part.glob(files)):
            if path.is_file() and not _LEFT_OUT & set(path.parts):
                yield path.relative_to(part).as_posix(), path.read_bytes()


if __name__ == "__main__":
    main(sys.argv[1:])
