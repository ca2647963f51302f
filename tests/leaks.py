"""A pytest plugin: a test that leaves a task, thread, process, socket or file behind fails.

What a fixture of a wider scope opened is not the test's. Some things close with a delay (gRPC closes sockets in its
own threads), so a leak is what is still there after GRACE_SECONDS and GRACE_LOOKS. Processes, sockets and files are
read from /proc: without it (macOS), only tasks and threads are checked.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path

import grpc
import pytest
from _pytest.unraisableexception import collect_unraisable

GRACE_SECONDS, GRACE_LOOKS = 5.0, 50
"""On a very busy machine this process may not run for seconds, nor do gRPC's threads."""
NOT_OF_A_TEST = ("/dev/", "/proc/", sys.prefix)
"""Files in these folders are ignored; in the environment's folder matplotlib keeps its fonts open."""
OPEN_FILES, OWN_THREADS = Path("/proc/self/fd"), Path("/proc/self/task")
_KEPT: list[list[object]] = []


def held() -> set[str]:
    """Name what this process holds: threads, child processes, sockets and regular files."""
    return {*_threads(), *_processes(), *_sockets_and_files()}


def leaks(before: set[str], now: Callable[[], set[str]]) -> list[str]:
    """Name what is open now, was not before, and did not close within GRACE_SECONDS and GRACE_LOOKS."""
    deadline, looks = time.monotonic() + GRACE_SECONDS, 0
    while (found := sorted(now() - before)) and (time.monotonic() < deadline or looks < GRACE_LOOKS):
        looks += 1
        if time.monotonic() > deadline - GRACE_SECONDS / 2:
            gc.unfreeze()  # A name server in this process froze all objects, so garbage as well. Slow, so not at first.
        gc.collect()
        time.sleep(0.02)
    return found


def _threads() -> Iterator[str]:
    for thread in threading.enumerate():
        if not thread.name.startswith("asyncio_"):  # of a loop's default executor: a loop that is closed has joined it
            yield f"thread {thread.name} ({thread.ident})"


def _processes() -> Iterator[str]:
    for thread in _entries(OWN_THREADS):
        try:
            children = (OWN_THREADS / thread / "children").read_text()
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended
            continue
        yield from (f"process {child}" for child in children.split())


def _sockets_and_files() -> Iterator[str]:
    for number in _entries(OPEN_FILES):
        try:
            link = os.readlink(OPEN_FILES / number)
        except FileNotFoundError:  # closed since
            continue
        if link.startswith("socket:"):
            yield f"socket {link} ({number})"
        elif link.startswith("/") and not link.startswith(NOT_OF_A_TEST):
            yield f"file {link} ({number})"


def _entries(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.exists() else []


def pytest_sessionstart() -> None:
    """Start what is otherwise started by its first user and runs as long as the process, or per user."""
    resource_tracker.ensure_running()  # of multiprocessing: a process
    grpc.aio.init_grpc_aio()  # gRPC's poller: a thread and a pair of sockets


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Check tasks only in tests that have an event loop."""
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        item.fixturenames.insert(item.fixturenames.index("no_leak") + 1, "no_leaked_task")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Drop what a failed teardown could not raise: pytest would report it in the next test, which is innocent."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            collect_unraisable(item.config)
        raise


@contextmanager
def nothing_left(*, but: str = "nothing") -> Iterator[None]:
    """Fail a test that leaves a thread, process, socket or file behind; ``but`` is a kind that may stay."""

    def now() -> set[str]:
        return {each for each in held() if not each.startswith(but)}

    before = now()
    yield
    if found := leaks(before, now):
        # Keep all objects of this moment: what is left behind would warn when it is collected, during another test.
        _KEPT.append(gc.get_objects())
        pytest.fail(f"left behind: {', '.join(found)}", pytrace=False)


@pytest.fixture(autouse=True)
def no_leak() -> Iterator[None]:
    """Fail a test that leaves a thread, process, socket or file behind."""
    with nothing_left():
        yield


@pytest.fixture
async def no_leaked_task() -> AsyncIterator[None]:
    """Fail a test that leaves a task behind in its event loop."""
    yield
    if tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        _, tasks = await asyncio.wait(tasks, timeout=GRACE_SECONDS)
    if tasks:
        pytest.fail(f"left behind: {', '.join(sorted(f'task {task!r}' for task in tasks))}", pytrace=False)
