"""The Python of docs/rocketmq-brokers.md as pasted, with RocketMQ's own name server and broker of each version."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.rocketmq.processes import RocketMQ, Running, free_port
from pointsman_client import Message
from pointsman_client.sync import Producer
from tests.e2e.test_docs_as_pasted import blocks
from tests.kit.waiting import until
from tests.real_rocketmq.conftest import VERSIONS, Jars
from tests.real_rocketmq.name_server import NameServer

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

PAGE = "rocketmq-brokers.md"
ADDRS = ("mq-ns1:9876", "mq-ns2:9876")
ORDERS, DEAD = "orders", "%DLQ%billing"


@pytest.fixture(params=VERSIONS)
def addr(request: pytest.FixtureRequest, jars: Jars, tmp_path: Path) -> Iterator[str]:
    """The name server's, with a broker that has the page's topics."""
    addr = f"127.0.0.1:{free_port()}"
    rocketmq = RocketMQ(jars.of(request.param), tmp_path, addr)
    rocketmq.topics_on_disk("a", 0, [ORDERS, DEAD])
    with ExitStack() as stack:
        for process in (rocketmq.name_server(addr), rocketmq.broker("a", enablePropertyFilter="true")):
            stack.callback(process.end)
        until(lambda: NameServer(addr).is_there() and {ORDERS, DEAD} <= NameServer(addr).topics(), what="the topics")
        yield addr


def test_the_page_runs_as_pasted(addr: str, tmp_path: Path) -> None:
    def command(heading: str) -> list[str]:
        code = blocks("python", PAGE, heading.replace("SQL92", "Consume"))[heading == "SQL92"]
        for name in ADDRS:
            code = code.replace(name, addr)
        file = tmp_path / f"{heading}.py"
        file.write_text(code)
        return [sys.executable, "-u", str(file)]

    def printed(process: Running, text: str) -> bool:
        assert process.is_alive, process.said()
        return any(text in line for line in process.said())

    def output(heading: str) -> str:
        return subprocess.run(command(heading), capture_output=True, text=True, check=True, timeout=60.0).stdout

    with ExitStack() as stack:
        expected = {
            "Consume": "orders paid ('4711',) b'4711 paid'",
            "SQL92": "b'large'",
            "In order": "b'4711 shipped'",
            "By pulling": "b'4711 paid'",
            "Retries and dead letters": "",
        }
        processes = {heading: Running(command(heading), tmp_path / f"of {heading}") for heading in expected}
        for process in processes.values():
            stack.callback(process.end)
        # The group of "Consume" begins with what is sent from now on, less a minute.
        assert "SEND_OK" in output("Send")
        assert "SEND_OK" in output("Delays")
        with Producer(f"rocketmq://{addr}") as producer:
            producer.send(Message(ORDERS, b"large", properties={"amount": "501", "region": "EU"}))
        for heading, text in expected.items():
            until(lambda: not text or printed(processes[heading], text), what=text)  # noqa: B023
        assert processes["Retries and dead letters"].is_alive
