"""Put a report where people find it: ``report.html`` and ``report.json``, each whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

from pointsman_report.files import Files
from pointsman_report.parameters import Parameters
from pointsman_report.report.numbers import Drawn, Numbers
from pointsman_report.report.page import page

PAGE = "report.html"


def report_files(numbers: Numbers, drawn: Drawn, parameters: Parameters) -> dict[str, str]:
    """Render both files, by name; the page comes last, so that whoever waits for it finds the other."""
    return {
        "report.json": json.dumps(numbers, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        PAGE: page(numbers, drawn, parameters),
    }


def write_report(directory: Path, texts: dict[str, str]) -> str:
    """Write the files into a folder of this machine and return the page's path."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        unfinished = directory / f".{name}.tmp"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(directory / name)
    return str(directory / PAGE)


def write_report_far_away(files: Files, folder: str, texts: dict[str, str]) -> str:
    """Write the files into a folder that only Hadoop can name and return the page's path."""
    files.make(folder)
    for name, text in texts.items():
        files.write(f"{folder}/{name}", text)
    return f"{folder}/{PAGE}"
