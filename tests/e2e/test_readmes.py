"""The client's README as a new user reads it: its first five minutes pasted, and its other Python."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.ctl_process import environment
from tests.fakes.deadline import until
from tests.fakes.redis_process import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
README = (ROOT / "client" / "README.md").read_text(encoding="utf-8")
PATIENCE_SECONDS = 90.0
STOP_SECONDS = 90.0

RUN = """
import ast, asyncio, inspect, pathlib, sys
code = compile(pathlib.Path(sys.argv[1]).read_text(), sys.argv[1], "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
running = eval(code, {"__name__": "__main__"})
if inspect.iscoroutine(running):
    asyncio.run(running)
"""
"""Runs a piece whose ``await`` stands outside of any function, as the README writes them."""


def blocks(language: str, heading: str, page: str = README) -> list[str]:
    """The pieces under a heading, with its subsections."""
    text = page[page.index(f"\n## {heading}\n") + 1 :]
    end = text.find("\n## ", 1)
    return re.findall(rf"^```{language}\n(.*?)^```", text[:end], re.DOTALL | re.MULTILINE)


class Fleet:
    """The README's fleet on ports of its own, and the README's commands against it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "pointsman-start"
        self._start = folder
        self._ports = {port: str(free_port()) for port in ("9876", "6390", "9880")}
        self.name_server = self.exchanged("127.0.0.1:9876")
        own = {
            "NAMESRV_SERVER__LISTEN": self.name_server,
            "NAMESRV_MONITORING__LISTEN": "127.0.0.1:0",
            "AGENT_MONITORING__LISTEN": "127.0.0.1:0",
            "POINTSMAN_NAMESRV": self.name_server,
            "PYTHONUNBUFFERED": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        self._environment = environment() | own

    def exchanged(self, text: str) -> str:
        for documented, real in self._ports.items():
            text = re.sub(rf"\b{documented}\b", real, text)
        return text

    def shell(self, commands: str) -> subprocess.Popen[str]:
        return self._popen(["bash", "-c", commands], self._start)

    def run(self, command: str) -> str:
        with self._popen(["bash", "-ec", self.exchanged(command)], self.folder) as process:
            said, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, said
        return said

    def run_python(self, block: str, *, until_said: str = "") -> str:
        """Run a piece of Python to its end, or until it said something; return what it printed."""
        script = self.folder / "block.py"
        script.write_text(self.exchanged(block), encoding="utf-8")
        log = self.folder / "block.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", RUN, str(script)],
                cwd=self.folder,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            if until_said:
                until(lambda: until_said in log.read_text() or process.poll() is not None, seconds=PATIENCE_SECONDS)
                assert until_said in log.read_text(), log.read_text()
                process.send_signal(signal.SIGINT)
                process.wait(PATIENCE_SECONDS)
            else:
                assert process.wait(PATIENCE_SECONDS) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()
        return log.read_text()

    def _popen(self, words: list[str], folder: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            words,
            cwd=folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


@contextlib.contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    """What the second block of the first five minutes starts; stopped as the README says."""
    found = Fleet(folder)
    start = blocks("bash", "First five minutes")[1]
    stop = re.search(r"Stop the fleet with `([^`]+)`", README)
    assert stop is not None
    commands = f"{found.exchanged(start)}\necho started\nread -r _\n{stop[1]}\nwait\necho stopped\n"
    with found.shell(commands) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            yield found
            said, _ = process.communicate("\n", timeout=STOP_SECONDS)
            assert said.endswith("stopped\n")
        finally:
            # Its children are of its session, whatever became of it.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def test_the_clients_readme_works_as_pasted(tmp_path: Path) -> None:
    with fleet(tmp_path) as here:
        (first,) = blocks("python", "First five minutes")
        (here.folder / "first.py").write_text(here.exchanged(first), encoding="utf-8")
        said = here.run(blocks("bash", "First five minutes")[2])
        assert [line for line in said.splitlines() if line.startswith("sent")] == [
            "sent 0 SEND_OK",
            "sent 1 SEND_OK",
            "sent 2 SEND_OK",
        ]
        assert len(re.findall(r"^got order [012] from broker-a queue [0-3]$", said, re.MULTILINE)) == 3
        assert re.search(r"orders.*\bbroker-a\b", said)

        send, to_queues = blocks("python", "Producer")
        said = here.run_python(send)
        assert re.match(r"SEND_OK queue [0-3] of orders on home/broker-a \d+ [0-9a-f]{32}\n", said)
        here.run_python(to_queues)

        listening, pulling, assigned = blocks("python", "Consumer")
        here.run_python(listening, until_said="orders paid ('4711',) b'4711 paid' 0")
        assert "ReceivedMessage(" in here.run_python(assigned)
        here.run_python(pulling, until_said="b'4711 paid'\n")

        (routes,) = blocks("python", "Routes")
        assert "None TopicRoute(topic='orders'" in here.run_python(routes)
        (metrics,) = blocks("python", "Metrics")
        assert "broker_name='broker-a', queue_id=3" in here.run_python(metrics)
        (traces,) = blocks("python", "Traces")
        assert here.run_python(traces) == "SEND_OK\n"
        (blocking,) = blocks("python", "Without an event loop")
        assert here.run_python(blocking) == "SEND_OK\n"

        (looks,) = blocks("bash", "In Redis")
        said = here.run(looks)
        assert "born_at" in said
        assert re.search(r"^orders:[0-3]$", said, re.MULTILINE)


def test_the_tests_of_the_readme_pass_with_the_plugin(tmp_path: Path) -> None:
    (tests,) = blocks("python", "Your tests")
    (tmp_path / "test_orders.py").write_text(tests, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n", encoding="utf-8")
    (naming,) = re.findall(r"`(pytest_plugins = [^`]+)`", README)
    (tmp_path / "conftest.py").write_text(naming + "\n", encoding="utf-8")

    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-o", "asyncio_default_fixture_loop_scope=function"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
