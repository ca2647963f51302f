"""Results of nightly runs, and the history of the one that runs as a process."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.spark.histories import MIDNIGHT, NameServer, broker, moment, write_history
from tests.spark.storybook import Tables

DAY = MIDNIGHT.date()
Run = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Again:
    """The result of recomputing days."""

    code: int
    tables: Tables
    numbers: dict[str, Any]


@dataclass(frozen=True)
class Night:
    """The result of one run of ``nightly``."""

    history: Path
    warehouse: Path
    numbers: dict[str, Any]
    page: str
    output: str
    progress: str


def write_nights(history: Path) -> None:
    """Two name servers; a flaps, b is left alone; a row is lost, lines are bad, some things lie there twice."""
    one, two = NameServer(node="127.0.0.1:1").start(), NameServer(node="[::1]:2").start()
    for server in (one, two):
        for name in ("a", "b"):
            server.say("REGISTERED", moment(10), broker(name))
        for n in range(5):
            server.outage(broker("a"), moment(100 + n * 8), until=moment(104 + n * 8))
        server.say("SOMETHING_NEW", moment(300))
        server.stop(moment(600))
    del two.rows[-2]
    write_history(history, one.rows + two.rows)
    write_history(history, one.rows, packed=True)
    folder = history / "raw" / f"dt={DAY}"
    good = json.dumps(one.rows[0])
    bad = "\n".join(['{"event_at": "2026-03-02T', "", "[1]", '{"colour": "red"}', good.replace("T00:", " 00:")])
    (folder / "bad.jsonl").write_text(bad, encoding="utf-8")
    (folder / "bad.jsonl.gz").write_bytes(gzip.compress(bad.encode()))
    (folder / "notes.txt").write_text("not history", encoding="utf-8")
    # The folder decides nothing.
    misfiled = history / "raw" / "dt=2001-01-01"
    misfiled.mkdir()
    shutil.move(next(folder.glob("[[]*")), misfiled / "elsewhere.jsonl")
