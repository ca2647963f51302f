"""Make a new virtual environment fit for another folder and the same in every build: finish_environment.py BUILT FINAL.

Run by the Python that the environment is for; FINAL is where it will stand.
"""

from __future__ import annotations

import base64
import compileall
import csv
import hashlib
import os
import py_compile
import sys
from pathlib import Path

OF_THE_BUILD = ("direct_url.json", "uv_cache.json")
"""Metadata of an installation that name the build's folders."""


def finish(built: Path, final: str) -> None:
    """Replace the folder in the scripts, remove what differs between builds, and compile."""
    scripts = built / "bin"
    of_uv = [built / ".gitignore", built / ".lock", built / "CACHEDIR.TAG"]
    for path in [*scripts.glob("[Aa]ctivate*"), *scripts.glob("*.bat"), *of_uv]:
        path.unlink(missing_ok=True)
    changed = set[Path]()
    for path in scripts.iterdir():
        text = path.read_bytes()
        if not path.is_symlink() and str(built).encode() in text:
            path.write_bytes(text.replace(str(built).encode(), final.encode()))
            changed.add(path.resolve())
    for record in built.glob("lib/python*/site-packages/*.dist-info/RECORD"):
        for name in OF_THE_BUILD:
            record.with_name(name).unlink(missing_ok=True)
        rewrite_record(record, changed)
    os.environ["PYTHONHASHSEED"] = "0"
    # The daemons cannot write below /opt. By hash, because a package manager sets other times.
    compileall.compile_dir(
        built / "lib",
        maxlevels=40,
        quiet=2,
        stripdir=str(built),
        prependdir=final,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def rewrite_record(record: Path, changed: set[Path]) -> None:
    """Write the list of a distribution's files again: sorted, with new digests, without files that were removed."""
    site = record.parent.parent
    rows = []
    for name, digest, size in csv.reader(record.read_text(encoding="utf-8").splitlines()):
        path = site / name
        if not path.exists():
            continue
        if path.resolve() in changed:
            content = path.read_bytes()
            sha = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            digest, size = f"sha256={sha}", str(len(content))  # noqa: PLW2901  # the row as it becomes
        rows.append((name, digest, size))
    with record.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(sorted(rows))


if __name__ == "__main__":
    finish(Path(sys.argv[1]), sys.argv[2])
