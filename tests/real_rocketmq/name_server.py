"""The installed name server with RocketMQ's wire."""

from __future__ import annotations

import json
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from deploy.rocketmq.processes import Running, free_port
from pointsman.names import split_addr
from pointsman.rocketmq.bodies import read_json
from pointsman.rocketmq.frames import FrameReader, read_header
from tests.kit.broker.rocketmq.frames import ask
from tests.kit.history.rows import rows_in
from tests.kit.waiting import until

COMMAND = Path(sys.executable).with_name("pointsman-namesrv")

_SERVING = '"message": "serving"'

T = TypeVar("T")


def ask_at(addr: str, code: int, **ext: str) -> tuple[int, Any]:
    """Send one request to a process with RocketMQ's wire; return the code and the body."""
    with socket.create_connection(split_addr(addr), timeout=10.0) as connection:
        connection.sendall(ask(code, ext))
        frames = FrameReader()
        while (frame := frames.next()) is None:
            data = connection.recv(65_536)
            assert data, f"{addr} closed the connection"
            frames.feed(data)
    return int(read_header(frame.form, frame.header).code), read_json(frame.body) if frame.body else None


class NameServer:
    """The responses of a name server at host:port, RocketMQ's own or this one."""

    def __init__(self, addr: str) -> None:
        self.addr = addr

    def ask(self, code: int, **ext: str) -> tuple[int, Any]:
        """Send one request on its own connection; return the code and the body."""
        return ask_at(self.addr, code, **ext)

    def is_there(self) -> bool:
        """Return whether it responds."""
        try:
            return self.ask(106)[0] == 0
        except OSError:
            return False

    def addrs(self, name: str) -> dict[str, str]:
        """Return the addresses of a broker name by id."""
        table = self.ask(106)[1]["brokerAddrTable"]
        return dict(table[name]["brokerAddrs"]) if name in table else {}

    def topics(self) -> set[str]:
        """Return all topics."""
        return set(self.ask(206)[1]["topicList"])

    def perms(self, topic: str) -> dict[str, int]:
        """Return the permission by broker name; none: the topic does not exist."""
        code, body = self.ask(105, topic=topic, acceptStandardJsonOnly="true")
        assert code in {0, 17}
        return {} if code else {data["brokerName"]: data["perm"] for data in body["queueDatas"]}


class Pointsman(NameServer):
    """The installed name server with RocketMQ's wire, on the same ports after a restart."""

    def __init__(
        self,
        folder: Path,
        *,
        warm_up_seconds: float = 0.0,
        settings: Mapping[str, str] | None = None,
        shares_port: bool = False,
    ) -> None:
        """``shares_port``: gRPC and RocketMQ's wire on one port."""
        super().__init__(f"127.0.0.1:{free_port()}")
        self.folder = folder
        self.started_at = 0.0
        self._settings = {
            "server.listen": self.addr if shares_port else "127.0.0.1:0",
            "server.node": "ns1",
            "server.warm_up_seconds": f"{warm_up_seconds:g}",
            "monitoring.listen": "127.0.0.1:0",
            "remoting.listen": self.addr,
            # A closed connection counts only an expiry after a start: 30 s here, of brokers that register each 10 s.
            "liveness.max_heartbeat_interval_seconds": "10",
            "liveness.max_expiry_seconds": "30",
            "history.directory": str(folder / "history"),
            "snapshot.directory": str(folder / "state"),
            "snapshot.interval_seconds": "0.5",
            **(settings or {}),
        }
        self.start()

    def start(self) -> None:
        environment = {f"NAMESRV_{name.replace('.', '__').upper()}": value for name, value in self._settings.items()}
        starts = 0 if not hasattr(self, "_running") else self._starts()
        self._running = Running([str(COMMAND)], self.folder, environment)
        until(lambda: self._starts() > starts, what="the name server")
        self.started_at = time.monotonic()

    def _starts(self) -> int:
        return sum(_SERVING in line for line in self._running.said())

    def restart(self, number: signal.Signals) -> None:
        self._running.end(number)
        self.start()

    def stop(self) -> None:
        self._running.end()

    def until_connections_count(self) -> None:
        """Wait until the end of a connection marks its broker again."""
        time.sleep(max(0.0, self.started_at + 31.0 - time.monotonic()))

    def errors(self) -> list[str]:
        return [line for line in self._running.said() if '"level": "ERROR"' in line]

    def metric(self, sample: str) -> float:
        """Return a sample of ``/metrics`` by its name and labels; 0 for one that is not there."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._serving['metrics']}/metrics", timeout=5.0) as page:
            lines = [line.rpartition(" ") for line in page.read().decode().splitlines()]
        return sum(float(value) for name, _, value in lines if name == sample)

    @property
    def grpc_addr(self) -> str:
        """Where it serves gRPC."""
        return str(self._serving["addr"])

    @property
    def _serving(self) -> dict[str, Any]:
        return next(json.loads(line) for line in reversed(self._running.said()) if _SERVING in line)

    def rows(self, broker_name: str) -> list[dict[str, Any]]:
        """Return the history of a broker name."""
        rows = [row for row in rows_in(self.folder / "history") if row.get("broker_name") == broker_name]
        return sorted(rows, key=lambda row: (row["event_at"], row["seq"]))

    def events(self, broker_name: str, broker_id: int = 0) -> list[tuple[str, str | None]]:
        """Return event and reason of one broker's events, without its topics and heartbeats."""
        quiet = {"TOPICS", "HEARTBEATS", "CHECKPOINT", "LATE_HEARTBEAT"}
        rows = [
            row for row in self.rows(broker_name) if row["event"] not in quiet and row.get("broker_id") == broker_id
        ]
        return [(row["event"], row["reason"]) for row in rows]
