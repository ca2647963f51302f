"""The pytest plugin in a user's own project: a folder with a test file.

Pytest runs in this process, except where the process itself is what is tested: what is imported, and its end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pointsman_client.sync
import pointsman_client.testing
from tests.kit.waiting import until

pytest_plugins = ("pytester",)
IMPORTED = (pointsman_client.sync, pointsman_client.testing)
"""Imported here: pytester drops what a user's test imports first, and gRPC cannot be imported twice."""

PLUGIN = "pointsman_client.testing.plugin"

FAILOVER = """
from pointsman_client.core.message import Message
from pointsman_client.sync import Producer

def test_orders_survive_a_broker(pointsman):
    pointsman.add_broker("broker-a", topics={"orders": 4})
    pointsman.add_broker("broker-b", topics={"orders": 4})
    with Producer(pointsman.name_servers, transport=pointsman.transport, clock=pointsman.clock) as producer:
        used = {producer.send(Message("orders", b"1")).queue.broker_name for _ in range(8)}
        assert used == {"broker-a", "broker-b"}
        pointsman.kill_broker("broker-a")
        assert {producer.send(Message("orders", b"2")).queue.broker_name for _ in range(8)} == {"broker-b"}
        pointsman.advance(130)
        assert {queue.broker_name for queue in producer.client.publish_queues("orders")} == {"broker-b"}
        pointsman.restart_broker("broker-a")
        pointsman.advance(60)
        used = {producer.send(Message("orders", b"3")).queue.broker_name for _ in range(8)}
        assert used == {"broker-a", "broker-b"}
"""

FAILOVER_ASYNC = """
import asyncio

from pointsman_client.consumer.pull_consumer import PullConsumer
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.core.message import Message
from pointsman_client.producer.producer import Producer

async def test_orders_are_read_on_from_the_slave(pointsman):
    pointsman.add_broker("broker-a", topics={"orders": 1})
    pointsman.add_broker("broker-a-1", replica_of="broker-a")
    here = {"transport": pointsman.transport, "clock": pointsman.clock}
    async with Producer(pointsman.name_servers, **here) as producer:
        await producer.send(Message("orders", b"1"))
    pointsman.kill_broker("broker-a")
    await pointsman.advance(130)
    async with PullConsumer(
        pointsman.name_servers, group="g", subscriptions={"orders": "*"}, consume_from=ConsumeFrom.FIRST_OFFSET, **here
    ) as consumer:
        polling = asyncio.ensure_future(consumer.poll(timeout_seconds=120.0))
        await pointsman.advance_until(polling.done)
        messages = polling.result()
        assert [message.body for message in messages] == [b"1"]
"""

FAILING = """
import json, pathlib

def test_fails(pointsman):
    pointsman.add_broker("broker-a", topics={"orders": 4})
    pathlib.Path("pids.json").write_text(json.dumps(pointsman.pids))
    ENDING
"""

NOT_USING = f"""
import sys

PLUGIN = {PLUGIN!r}

def test_it_costs_nothing():
    assert not any(name.startswith("pointsman_client.testing.") for name in sys.modules.keys() - {{PLUGIN}})
    assert not sys.modules.keys() & {{"pytest_asyncio", "pointsman_namesrv", "pointsman_client.memory"}}
"""


def project(folder: Path, test: str, *options: str) -> list[str]:
    """Write a user's project; return the arguments for pytest."""
    (folder / "test_users_own.py").write_text(test, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n", encoding="utf-8")
    if "no:asyncio" not in options:
        options += ("-o", "asyncio_default_fixture_loop_scope=function")
    return ["-p", PLUGIN, "-p", "no:cacheprovider", "-q", *options]


@contextmanager
def started(folder: Path, test: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Pytest on a user's test, as a process that is killed at the end of the block if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *project(folder, test, *options)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run(folder: Path, test: str, *options: str) -> tuple[int, str]:
    with started(folder, test, *options) as process:
        output, _ = process.communicate(timeout=60)
        return process.returncode, output


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_a_producer_fails_over_in_a_users_test(pytester: pytest.Pytester) -> None:
    ended = pytester.runpytest_inprocess(*project(pytester.path, FAILOVER))
    ended.assert_outcomes(passed=1)


def test_a_consumer_reads_from_the_slave_in_a_users_async_test(pytester: pytest.Pytester) -> None:
    ended = pytester.runpytest_inprocess(*project(pytester.path, FAILOVER_ASYNC, "-o", "asyncio_mode=auto"))
    ended.assert_outcomes(passed=1)


def test_a_project_that_does_not_use_it_is_left_alone(tmp_path: Path) -> None:
    code, output = run(tmp_path, NOT_USING, "-p", "no:asyncio")
    assert code == 0, output


def test_the_fixture_is_listed_with_its_description(pytester: pytest.Pytester) -> None:
    ended = pytester.runpytest_inprocess(*project(pytester.path, NOT_USING, "--fixtures"))
    ended.stdout.fnmatch_lines(["pointsman*", "*one real name server without brokers*"])


def test_nothing_is_left_after_a_test_that_fails(pytester: pytest.Pytester) -> None:
    ended = pytester.runpytest_inprocess(
        *project(pytester.path, FAILING.replace("ENDING", "assert False, 'as it should'"))
    )
    ended.assert_outcomes(failed=1)
    ended.stdout.fnmatch_lines(["*as it should*"])
    assert not any(map(is_running, json.loads((pytester.path / "pids.json").read_text())))


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL])
def test_nothing_is_left_after_a_test_that_is_interrupted(tmp_path: Path, how: signal.Signals) -> None:
    with started(tmp_path, FAILING.replace("ENDING", "import time; time.sleep(60)")) as process:
        pids = tmp_path / "pids.json"
        until(lambda: pids.exists() and pids.read_text().endswith("]"))
        running = json.loads(pids.read_text())
        assert len(running) == 2
        assert all(map(is_running, running))
        process.send_signal(how)
        process.communicate(timeout=20)
        until(lambda: not any(map(is_running, running)))
