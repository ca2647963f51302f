"""Fixtures of the complete job: one history computed in one pass, a part of it again, and a nightly run."""

from __future__ import annotations

import importlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from pointsman_report.cli import main
from pointsman_report.spark_session import MEMORY_SETTING
from tests.leaks import nothing_left
from tests.spark.nights import DAY, Again, Night, Run, write_nights
from tests.spark.storybook import FIRST, LAST, SECOND, Stories, Tables, book
from tests.spark.tables import DayRunner
from tests.spark.topic_days import topic_book


@pytest.fixture(autouse=True)
def no_leak() -> Iterator[None]:
    """As in other tests, except for sockets: Py4J opens connections to Java per thread, and keeps them in a pool."""
    with nothing_left(but="socket"):
        yield


@pytest.fixture(scope="session")
def stories(run_days: DayRunner, tmp_path_factory: pytest.TempPathFactory) -> Stories:
    """All stories, computed in one pass over their three days; also those of modules that are not run."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if "storybook" in path.read_text(encoding="utf-8"):
            importlib.import_module(f"tests.spark.{path.stem}")
    return book.compute(run_days, tmp_path_factory.mktemp("storybook"))


@pytest.fixture(scope="session")
def topic_tables(run_days: DayRunner, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The stages of topics alone over everything in the `topic_book`, in one pass over its three days."""
    warehouse = tmp_path_factory.mktemp("topics") / "warehouse"
    topic_book.compute(run_days.spark, warehouse, FIRST, LAST)
    return Tables(run_days, warehouse)


@pytest.fixture(scope="session")
def again(run_days: DayRunner, stories: Stories, tmp_path_factory: pytest.TempPathFactory) -> Again:
    """The last two days computed again, in a copy, from the state after the first, with intermediates in files."""
    folder = tmp_path_factory.mktemp("again")
    warehouse, report = folder / "warehouse", folder / "report"
    shutil.copytree(stories.warehouse, warehouse)
    # Missing tables must be computed: nothing of the first pass may replace them.
    shutil.rmtree(warehouse / "availability" / f"dt={SECOND}")
    words = ["backfill", f"--history={stories.history}", f"--from={SECOND}", f"--to={LAST}", "--quiet"]
    run_days.spark.conf.set(MEMORY_SETTING, "false")
    try:
        code = main([*words, f"--warehouse={warehouse}", f"--report={report}"])
    finally:
        run_days.spark.conf.set(MEMORY_SETTING, "true")
    return Again(code, Tables(run_days, warehouse), json.loads((report / "report.json").read_text(encoding="utf-8")))


AS_PROCESSES = {"route-at"}
"""In the fast run, where the page on getting started has the night of a process; the others start no Java there."""


@pytest.fixture(scope="session")
def run_report(full: bool, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a command, as a process of the installed program or in this one, where Spark is running."""
    folder = tmp_path_factory.mktemp("process")
    # Java prints notices, which must not appear in a command's output.
    talkative = {"SPARK_SUBMIT_OPTS": "-Xlog:safepoint=info"}
    environment = {key: value for key, value in os.environ.items() if key != "SPARK_LOCAL_IP"} | talkative
    installed = Path(sys.executable).parent / "pointsman-report"

    def run(*words: str, code: int) -> subprocess.CompletedProcess[str]:
        if not full and words[0] not in AS_PROCESSES:
            with redirect_stdout(io.StringIO()) as stdout, redirect_stderr(io.StringIO()) as stderr:
                assert main(list(words)) == code
            return subprocess.CompletedProcess(words, code, stdout.getvalue(), stderr.getvalue())
        ended = subprocess.run(
            [installed, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert ended.returncode == code, f"{ended.stdout}\n{ended.stderr}"
        return ended

    return run


@pytest.fixture(scope="session")
def night(run_report: Run, tmp_path_factory: pytest.TempPathFactory) -> Night:
    """A night as a user computes it."""
    folder = tmp_path_factory.mktemp("night")
    history, warehouse = folder / "history", folder / "warehouse"
    write_nights(history)
    ended = run_report("nightly", f"--history={history}", f"--warehouse={warehouse}", f"--date={DAY}", code=1)
    report = warehouse / "report" / f"dt={DAY}"
    numbers = json.loads((report / "report.json").read_text(encoding="utf-8"))
    page = (report / "report.html").read_text(encoding="utf-8")
    return Night(history, warehouse, numbers, page, ended.stdout, ended.stderr)
