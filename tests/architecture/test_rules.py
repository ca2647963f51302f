"""Rules of the house that no linter knows: who reads a clock, who catches everything, where a page leads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("proto/pointsman/wire", "proto/pointsman/service", "namesrv", "broker_agent", "client", "spark_jobs")

CLOCKS = {"proto/pointsman/service/clock.py", "client/pointsman_client/clock.py"}
CLOCK_READS = {("time", "monotonic"), ("time", "time"), ("datetime", "now"), ("datetime", "utcnow"), ("date", "today")}
BATCH = ("spark_jobs/", "client/pointsman_client/ctl/")
"""Commands that run once and end: what they measure is their own progress."""

CATCHES_EVERYTHING = {
    "namesrv/rpc/calls.py": "the border: every fault becomes a status",
    "namesrv/history/recorder.py": "the writer's loop: the disk may refuse in any way",
    "namesrv/snapshot/keeper.py": "a round of the snapshot: the disk may refuse in any way",
    "broker_agent/probe/prober.py": "the border to foreign code: a fault of a probe is a failed look",
    "broker_agent/topic_source/follower.py": "the border to foreign data: a fault of a source is a failed look",
    "broker_agent/lone_thread.py": "hands what the thread raised to its caller",
    "broker_agent/queue_stats/collector.py": "the border to foreign code: a fault of the broker is a failed look",
    "broker_agent/offsets/file_store.py": "the edge of the thread: whatever it met is carried to whoever waits",
    "broker_agent/rpc/calls.py": "the border: every fault becomes a status",
    "broker_agent/__main__.py": "the edge of the task group",
    "client/pointsman_client/transports/broker_call.py": "the border to foreign code: a fault of a transport is a no",
    "client/pointsman_client/consumer/listener.py": "the border to the application's listener: a fault is a result",
    "client/pointsman_client/consumer/listener_threads.py": "hands what the thread raised to its caller",
    "client/pointsman_client/consumer/rebalancer.py": "the border to a user's strategy: queues stay as they are",
    "client/pointsman_client/sync/callback_thread.py": "the border to the application: a callback may raise anything",
    "spark_jobs/cli.py": "the edge of the command: a fault is one line and exit 2",
    "spark_jobs/io/journal.py": "puts back what it moved, and raises again",
    "spark_jobs/jobs/pipeline.py": "clean-up that raises again",
}


def sources() -> list[Path]:
    found = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    assert len(found) > 60
    return found


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def clock_reads(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=read)) if (owner, read) in CLOCK_READS:
                yield f"line {node.lineno}"


PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("*/README.md")), *sorted((ROOT / "deploy").rglob("README.md"))]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_has_no_placeholder_and_every_file_it_links_to_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"@[A-Z]+@", text) == []
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_the_index_of_deploy_names_every_folder() -> None:
    index = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
    folders = [path.name for path in (ROOT / "deploy").iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert [folder for folder in folders if f"| [{folder}](" not in index] == []


@pytest.mark.parametrize("path", sources(), ids=name)
def test_only_the_clock_reads_a_clock(path: Path) -> None:
    if name(path) in CLOCKS or name(path).startswith(BATCH):
        return
    assert list(clock_reads(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize("path", sources(), ids=name)
def test_only_named_places_catch_everything(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    broad = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"}))
    ]
    assert not broad or name(path) in CATCHES_EVERYTHING, f"lines {broad}"
