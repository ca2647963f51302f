"""Pack the package ``spark_jobs`` into a zip for ``spark-submit --py-files``: ``make spark-zip``.

The zip holds the package with its data files and the metadata that its version is read from; the same sources give the
same bytes.
"""

from __future__ import annotations

import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
    for path in sorted((ROOT / "spark_jobs").rglob("*")):
        if path.is_file() and not _LEFT_OUT & set(path.parts):
            yield path.relative_to(ROOT).as_posix(), path.read_bytes()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    yield f"{project['name']}-{project['version']}.dist-info/METADATA", metadata.encode()


if __name__ == "__main__":
    main(sys.argv[1:])
