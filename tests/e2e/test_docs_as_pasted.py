"""The Python of the documentation, against the fleet of "Getting started"."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.kit.broker.redis.process import free_port
from tests.kit.ctl.process import environment
from tests.kit.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(300)]

DOCS = Path(__file__).parents[2] / "docs"
PATIENCE_SECONDS = 90.0
STOP_SECONDS = 90.0

RUN = """
import asyncio, runpy, sys
main = runpy.run_path(sys.argv[1])["main"]()
if main is not None:
    asyncio.run(main)
"""
"""Runs the ``main`` of a page, which may be asynchronous."""


def blocks(language: str, name: str, heading: str = "") -> list[str]:
    """The code of a page, or below a heading of it."""
    page = (DOCS / name).read_text(encoding="utf-8")
    if heading:
        page = page[page.index(f"\n## {heading}\n") + 1 :]
        page = page.partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


class Fleet:
    """The fleet of "Getting started" on free ports, and commands of the pages against it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "pointsman-start"
        self._start = folder
        self._ports = {port: str(free_port()) for port in ("9876", "6390", "9880")}
        self.name_server = self.exchanged("127.0.0.1:9876")
        own = {
            "NAMESRV_SERVER__LISTEN": self.name_server,
            "NAMESRV_MONITORING__LISTEN": "127.0.0.1:0",
            "AGENT_MONITORING__LISTEN": "127.0.0.1:0",
            "AGENT_TOPICS__WRITABLE": "true",
            "POINTSMAN_NAMESRV": self.name_server,
            "PYTHONUNBUFFERED": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        self._environment = environment() | own

    def exchanged(self, text: str) -> str:
        text = re.sub(r"ns[12]:9876", "127.0.0.1:9876", text)
        for documented, real in self._ports.items():
            text = re.sub(rf"\b{documented}\b", real, text)
        return text

    def shell(self, commands: str) -> subprocess.Popen[str]:
        return self._popen(["bash", "-c", commands], self._start)

    def run(self, command: str) -> str:
        with self._popen(["bash", "-ec", self.exchanged(command)], self.folder) as process:
            output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, output
        return output

    def run_python(self, block: str, *, until_printed: str = "", stop: signal.Signals = signal.SIGINT) -> str:
        """Run the ``main`` of a piece of Python to its end, or until it printed a text; return its output."""
        script = self.folder / "block.py"
        script.write_text(self.exchanged(block), encoding="utf-8")
        log = self.folder / "block.log"
        with log.open("w") as output:
            process = self.python(script, output)
        try:
            if until_printed:
                until(lambda: until_printed in log.read_text() or process.poll() is not None, seconds=PATIENCE_SECONDS)
                assert until_printed in log.read_text(), log.read_text()
                process.send_signal(stop)
                process.wait(PATIENCE_SECONDS)
            else:
                assert process.wait(PATIENCE_SECONDS) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()
        return log.read_text()

    def python(self, script: Path, output: IO[str]) -> subprocess.Popen[bytes]:
        """Start the ``main`` of a file."""
        return subprocess.Popen(
            [sys.executable, "-c", RUN, str(script)],
            cwd=self.folder,
            env=self._environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

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


SENDS = """
import asyncio
from pointsman_client import Message, Producer
from pointsman_client.redis_streams import RedisStreamsTransport

async def main():
    async with Producer("ns1:9876", transport=RedisStreamsTransport) as producer:
        while True:
            await producer.send(Message("orders", b"again"))
            await asyncio.sleep(0.2)
"""


@contextlib.contextmanager
def sending(here: Fleet) -> Iterator[None]:
    """Send messages during the block, for consumers that begin at the last one."""
    script, log = here.folder / "sends.py", here.folder / "sends.log"
    script.write_text(here.exchanged(SENDS), encoding="utf-8")
    with log.open("w") as output, here.python(script, output) as process:
        try:
            yield
        finally:
            process.kill()


@contextlib.contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    """What "Start the fleet" starts."""
    found = Fleet(folder)
    (start,) = blocks("bash", "getting-started.md", "Start the fleet")
    commands = f"{found.exchanged(start)}\necho started\nread -r _\nkill $agent $redis $namesrv\nwait\necho stopped\n"
    with found.shell(commands) as process:
        try:
            assert process.stdout is not None
            printed = list(iter(process.stdout.readline, "started\n"))
            # Redis may say last that it is ready.
            assert any(line.startswith("a route of topic orders: 1 broker up, after ") for line in printed), printed
            yield found
            output, _ = process.communicate("\n", timeout=STOP_SECONDS)
            assert output.endswith("stopped\n")
        finally:
            # Its children are of its session.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def test_the_python_of_the_pages_works_as_pasted(tmp_path: Path) -> None:
    with fleet(tmp_path) as here:
        # The group `billing` begins here, so that it misses no message that is sent below.
        (first,) = blocks("python", "getting-started.md")
        (here.folder / "first.py").write_text(here.exchanged(first), encoding="utf-8")
        here.run("python first.py")

        # Those from a delayed message to a request need RocketMQ brokers.
        send, values, by_key, parked, without_waiting, *_in_rocketmq, start_up = blocks("python", "producer.md")
        sent = re.match(r"SEND_OK queue ([0-3]) of orders on home/broker-a \d+ [0-9a-f]{32}\n", here.run_python(send))
        assert sent
        assert here.run_python(values) == "order 4711\n"
        here.run_python(by_key)
        assert here.run_python(parked) == "False 0\n"
        assert "SendResult(" in here.run_python(without_waiting)
        here.run_python(start_up)

        listening, several, pulling, assigned, leasing, popping, readiness = blocks("python", "consumer.md")
        here.run_python(listening, until_printed="orders paid ('4711',) b'4711 paid' 0", stop=signal.SIGTERM)
        with sending(here):
            here.run_python(several, until_printed="b'again'")
            here.run_python(leasing, until_printed="b'again'")
            here.run_python(popping, until_printed="b'again'")
        assert "ReceivedMessage(" in here.run_python(assigned)
        here.run_python(pulling, until_printed="b'4711 paid'\n")
        assert re.fullmatch(r"(503 .+\n)+200\n", here.run_python(readiness))

        routes, _ = blocks("python", "routes.md")  # the second one needs RocketMQ brokers: tests/real_rocketmq
        assert "None TopicRoute(topic='orders'" in here.run_python(routes, until_printed="None TopicRoute(")
        metrics, traces = blocks("python", "monitoring.md")
        assert "broker_name='broker-a', queue_id=3" in here.run_python(metrics)
        here.run_python(traces)
        (blocking,) = blocks("python", "migrating-from-rocketmq-client.md")
        assert here.run_python(blocking).startswith("SEND_OK ")

        (queries,) = blocks("bash", "redis.md")
        stream = f"orders:queue:{sent[1]}"  # queue 3, as on the page, can be empty
        output = here.run(queries.replace("orders:queue:3", stream))
        assert f"{stream}\n" in output
        assert "born_at" in output
        assert re.search(r"^orders:[0-3]$", output, re.MULTILINE)
