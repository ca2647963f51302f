"""The observer beside two name servers of RocketMQ: one is killed and started again, then their broker is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deploy.rocketmq.processes import RocketMQ, Running, free_port
from tests.kit.http_answer import ask_in_thread
from tests.kit.waiting import until
from tests.real_rocketmq.conftest import Jars
from tests.real_rocketmq.name_server import NameServer

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

WITHIN_SECONDS = 200.0
"""A Java process starts in seconds, a restarted name server hears of its broker after 10 s; on a loaded machine each
takes a minute."""
SAME_SECONDS = 2.0
"""The observer polls every second."""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *command], check=False, timeout=600, capture_output=True, text=True)


class Observed:
    """An observer of name servers, and what it shows."""

    def __init__(self, folder: Path, addrs: list[str]) -> None:
        self.history, self.addrs = folder / "history", addrs
        self.port, self._pages = free_port(), free_port()
        listens = ("--listen", f"127.0.0.1:{self.port}", "--monitoring", f"127.0.0.1:{self._pages}")
        servers = [word for addr in addrs for word in ("--namesrv", addr)]
        options = ["--history", str(self.history), "--topics-seconds", "2", *listens, *servers]
        self.process = Running([sys.executable, "-m", "pointsman_namesrv.observe", *options], folder / "observer")

    def status(self) -> Any:
        try:
            return ask_in_thread(self._pages, "/v1/status").document
        except OSError:  # it starts
            return {"nameServers": [], "states": {}, "gone": []}

    def shows(self, *results: str, up: int) -> bool:
        """Whether the name servers have these results, and this number of brokers is up."""
        document = self.status()
        is_seen = [each["result"] for each in document["nameServers"]] == list(results)
        return is_seen and document["states"].get("UP", 0) == up

    def ctl(self, *words: str) -> Any:
        done = run("pointsman_ctl", "--namesrv", f"observe://127.0.0.1:{self.port}", "--output", "json", *words)
        return json.loads(done.stdout or done.stderr)

    def events(self) -> list[list[str]]:
        """Return the events of broker ``a`` at each name server."""
        return [[each["event"] for each in node["events"]] for node in self.ctl("why", "a")["nodes"]]


@pytest.mark.parametrize("version", ["5.3.3"])
def test_a_killed_name_server_takes_no_broker_with_it_and_why_and_report_agree_on_an_outage(
    jars: Jars, tmp_path: Path, version: str
) -> None:
    with ExitStack() as stack:
        servers = [NameServer(f"127.0.0.1:{free_port()}") for _ in range(2)]
        addrs = [server.addr for server in servers]
        rocketmq = RocketMQ(jars.of(version), tmp_path / "rocketmq", ";".join(addrs))
        upstream = [rocketmq.name_server(addr) for addr in addrs]
        for process in upstream:
            stack.callback(process.end)
        for server in servers:
            until(server.is_there, seconds=WITHIN_SECONDS, what="RocketMQ's name server")
        broker = rocketmq.broker("a")
        stack.callback(broker.end)
        for server in servers:
            until(lambda: set(server.addrs("a")) == {"0"}, seconds=WITHIN_SECONDS, what="the broker")  # noqa: B023
        observed = Observed(tmp_path, addrs)
        stack.callback(observed.process.end)
        until(lambda: observed.shows("WATCHED", "WATCHED", up=1), seconds=WITHIN_SECONDS, what="both to be watched")
        diff = until(
            lambda: (found := observed.ctl("diff")).get("equal") and found, seconds=WITHIN_SECONDS, what="equal routes"
        )
        assert diff["first"]["topicCount"] > 0

        upstream[1].end()
        until(
            lambda: observed.shows("WATCHED", "UNREACHABLE", up=1), seconds=WITHIN_SECONDS, what="the second one away"
        )
        [node, failed] = observed.ctl("brokers")["nodes"]
        assert [each["state"] for each in node["brokers"]] == ["UP"]
        assert "has not watched" in failed["error"]["message"]
        again = rocketmq.name_server(addrs[1])
        stack.callback(again.end)
        until(
            lambda: observed.shows("WATCHED", "WATCHED", up=1),
            seconds=WITHIN_SECONDS,
            what="the second one with its broker",
        )
        events = observed.events()
        assert not any("EXPIRED" in of_node for of_node in events), "a name server ended, and no broker"
        assert events[1][-2:] == ["NAMESRV_STOPPED", "NAMESRV_STARTED"]

        broker.end()
        until(lambda: observed.status()["gone"], seconds=WITHIN_SECONDS, what="the broker to be gone")
        broker.start_again()
        until(lambda: observed.shows("WATCHED", "WATCHED", up=1), seconds=WITHIN_SECONDS, what="the broker back")
        outages = [node["outages"] for node in observed.ctl("why", "a")["nodes"]]
        observed.process.end(signal.SIGTERM)  # a killed one is known up to its last row alone
        [replica] = reported(observed.history, tmp_path / "warehouse")["replicas"]

    assert [len(of_node) for of_node in outages] == [1, 1]
    assert (replica["broker_name"], replica["outages"]) == ("a", 1)
    [down] = [each for each in replica["intervals"] if each["state"] == "down"]
    # It is down while no name server lists it.
    began = max(datetime.fromisoformat(one["beganAt"]) for [one] in outages)
    ended = min(datetime.fromisoformat(one["endedAt"]) for [one] in outages)
    assert abs((datetime.fromisoformat(down["from"]) - began).total_seconds()) < SAME_SECONDS
    assert abs((datetime.fromisoformat(down["to"]) - ended).total_seconds()) < SAME_SECONDS


def reported(history: Path, warehouse: Path) -> Any:
    """Compute this day as the nightly report does, and return what it says of broker ``a``."""
    today = datetime.now(UTC).date().isoformat()
    options = ("--date", today, "--history", str(history), "--warehouse", str(warehouse), "--exit-zero", "--quiet")
    done = run("pointsman_report", "nightly", *options)
    assert done.returncode == 0, done.stderr
    of_broker = ("C/a", "--days", "1", "--warehouse", str(warehouse), "--output", "json", "--exit-zero")
    return json.loads(run("pointsman_report", "history", *of_broker).stdout)
