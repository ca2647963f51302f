"""The check for leaks finds each kind, and none where a test cleaned up."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEAKING = """
import asyncio, gc, socket, subprocess, sys, threading
import tests.leaks

tests.leaks.GRACE_SECONDS = 0.2
KEPT = []

async def test_task():
    KEPT.append(asyncio.create_task(asyncio.sleep(60)))

def test_thread():
    KEPT.append(threading.Thread(target=threading.Event().wait, args=(60,), name="left", daemon=True))
    KEPT[-1].start()

def test_process():
    KEPT.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))

def test_socket():
    KEPT.append(socket.socket())

def test_file(tmp_path):
    KEPT.append((tmp_path / "left").open("w"))

def test_later():
    KEPT.clear()
    gc.collect()

class Unraisable:
    def __del__(self):
        raise ValueError

def test_socket_and_garbage():
    KEPT.append(socket.socket())
    cycle = [Unraisable()]
    cycle.append(cycle)

def test_innocent():
    pass

async def test_clean(tmp_path):
    await asyncio.create_task(asyncio.sleep(0))
    await asyncio.to_thread(subprocess.run, ["true"])
    with (tmp_path / "closed").open("w"), socket.socket():
        pass
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of pytest for the tests above."""
    file = tmp_path_factory.mktemp("leaks") / "test_leaking.py"
    file.write_text(LEAKING, encoding="utf-8")
    options = [
        "-p",
        "tests.leaks",
        "-p",
        "no:cacheprovider",
        "-rp",
        "-W",
        "error",
        "-c",
        os.devnull,
        "--asyncio-mode=auto",
    ]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-o", "asyncio_default_fixture_loop_scope=function", file],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return run.stdout + run.stderr


@pytest.mark.parametrize("kind", ["task", "thread", "process", "socket", "file"])
def test_a_test_that_leaks_a_resource_fails(output: str, kind: str) -> None:
    assert re.search(rf"^_+ ERROR at teardown of test_{kind} _+\nleft behind: {kind} ", output, re.MULTILINE)


@pytest.mark.parametrize("name", ["later", "innocent"])
def test_a_test_after_one_that_leaked_passes(output: str, name: str) -> None:
    assert re.search(rf"^PASSED .*::test_{name}$", output, re.MULTILINE)


def test_a_test_that_cleans_up_passes(output: str) -> None:
    assert re.search(r"^PASSED .*::test_clean$", output, re.MULTILINE)
    assert "9 passed, 6 errors" in output
