"""``validate``: hold files of raw history against the row's JSON Schema; needs no Java."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pointsman_report import validation
from pointsman_report.commands.arguments import add_outcome
from pointsman_report.commands.command import FAILED, FINDINGS, FINE, Command, exit_code


def _arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a .jsonl or .jsonl.gz file")
    add_outcome(command)


def _run(options: argparse.Namespace) -> int:
    rows, bad = 0, []
    found = []
    unreadable = []
    for file in options.files:
        faulty: set[int] = set()
        try:
            for problem in validation.problems_of(file):
                if problem is None:
                    rows += 1
                    continue
                found.append(problem)
                faulty.add(problem.line)
                if options.output == "table":
                    print(problem)
        except validation.UnreadableFileError as error:
            # The other files are still worth a look.
            unreadable.append(str(error))
            print(f"pointsman-report: {error}", file=sys.stderr)
        bad.append(len(faulty))
    if options.output == "json":
        problems = [{"file": p.file, "line": p.line, "field": p.field, "problem": p.problem} for p in found]
        told = {"files": len(bad), "unreadable": unreadable, "good_rows": rows, "bad_lines": sum(bad)}
        print(json.dumps(told | {"problems": problems}, indent=1))
    else:
        print(f"{len(bad)} files: {rows} good rows, {sum(bad)} bad lines")
    return exit_code(FAILED if unreadable else FINDINGS if found else FINE, options)


COMMAND = Command(
    name="validate",
    summary="check files of raw history against the row's JSON Schema (needs no Java)",
    details="""\
  pointsman-report validate /var/lib/pointsman/history/raw/dt=2026-11-20/*

names each bad line with its file, number, field and fault.""",
    arguments=_arguments,
    run=_run,
)
