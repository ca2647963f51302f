"""Put a report where people find it: ``report.html`` and ``report.json``, each whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

from spark_jobs.parameters import FlapParameters
from spark_jobs.report.numbers import Drawn, Numbers
from spark_jobs.report.page import page


def write_report(directory: Path, numbers: Numbers, drawn: Drawn, parameters: FlapParameters) -> Path:
    """Write both files and return the page's path."""
    html = page(numbers, drawn, parameters)
    directory.mkdir(parents=True, exist_ok=True)
    _replace(directory / "report.json", json.dumps(numbers, indent=1, ensure_ascii=False) + "\n")
    _replace(directory / "report.html", html)
    return directory / "report.html"


def _replace(path: Path, text: str) -> None:
    unfinished = path.with_name(f".{path.name}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
