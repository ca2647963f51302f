"""Record the frames of a static topic: ``python -m tests.real_rocketmq.record_static_topics CACHE``.

Brokers of RocketMQ 5.5.0 register at RocketMQ's own name server; what passes between them is written to
tests/fixtures/rocketmq_static_topics. CACHE is the folder with RocketMQ's jars (``.pytest_cache/d/rocketmq``).
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from deploy.rocketmq.processes import RocketMQ, fetched, free_port
from pointsman.names import split_addr
from pointsman.rocketmq.codes import RequestCode
from pointsman.rocketmq.frames import FrameReader, read_header
from tests.kit.broker.rocketmq.frames import ask, frames, read_upstream
from tests.kit.waiting import until
from tests.real_rocketmq.name_server import NameServer
from tests.real_rocketmq.record_broker_frames import until_open

FOLDER = Path(__file__).parents[1] / "fixtures" / "rocketmq_static_topics"
VERSION = "5.5.0"
TOPIC, QUEUES = "Static", 4


class Wiretap:
    """Passes connections on to a name server and keeps the requests that it saw."""

    def __init__(self, name_server: str) -> None:
        self._name_server = name_server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.addr = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            here, _ = self._listener.accept()
            there = socket.create_connection(split_addr(self._name_server), 10.0)
            there.settimeout(None)
            threading.Thread(target=self._pass_on, args=(here, there, self.requests), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(there, here, []), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket, kept: list[bytes]) -> None:
        waiting = b""
        try:
            while data := source.recv(65_536):
                waiting += data
                target.sendall(data)
                while len(waiting) >= 4 and len(waiting) >= (end := 4 + int.from_bytes(waiting[:4], "big")):
                    kept.append(waiting[:end])
                    waiting = waiting[end:]
        except OSError:
            pass
        for each in (source, target):
            each.close()

    def registrations(self, broker_name: str) -> list[tuple[bytes, dict[str, Any]]]:
        """Return the registrations of a broker so far: the frame, and the wrapper in its body."""
        found = []
        for data in list(self.requests):
            (frame,) = frames(data)
            command = read_header(frame.form, frame.header)
            if command.code == RequestCode.REGISTER_BROKER and command.ext["brokerName"] == broker_name:
                found.append((data, read_upstream(frame.body)["topicConfigSerializeWrapper"]))
        return found


def write(name: str, data: bytes) -> None:
    (FOLDER / f"{name}.bin").write_bytes(data)


def route(addr: str) -> bytes:
    """Return the frame with which a name server responds to code 105."""
    with socket.create_connection(split_addr(addr), 10.0) as connection:
        connection.sendall(ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC, "acceptStandardJsonOnly": "true"}))
        frame, data = FrameReader(), b""
        while frame.next() is None:
            received = connection.recv(65_536)
            data += received
            frame.feed(received)
    return data


def last(tap: Wiretap, broker_name: str, wanted: Callable[[dict[str, Any]], bool]) -> bytes:
    """Wait for a registration, and return the last one."""
    until(
        lambda: any(wanted(wrapper) for _, wrapper in tap.registrations(broker_name)), what=f"{broker_name} to register"
    )
    return [data for data, wrapper in tap.registrations(broker_name) if wanted(wrapper)][-1]


def record(rocketmq: RocketMQ, tap: Wiretap, name_server: str) -> None:
    """Make a static topic, move it to one broker, and record what both brokers send for it."""

    def is_whole(wrapper: dict[str, Any], epoch: int) -> bool:
        info = wrapper["topicQueueMappingInfoMap"].get(TOPIC)
        return len(wrapper["topicConfigTable"]) > 1 and info is not None and info["epoch"] == epoch

    def is_part(wrapper: dict[str, Any]) -> bool:
        return list(wrapper["topicConfigTable"]) == [TOPIC]

    def epoch_of(broker_name: str) -> int:
        return max(
            int(wrapper["topicQueueMappingInfoMap"].get(TOPIC, {"epoch": 0})["epoch"])
            for _, wrapper in tap.registrations(broker_name)
        )

    for name in ("a", "b"):
        write(f"{name}_before", last(tap, name, lambda wrapper: TOPIC not in wrapper["topicConfigTable"]))
    print(rocketmq.admin("updateStaticTopic", "-t", TOPIC, "-c", "C", "-qn", str(QUEUES)))
    made = {}
    for name in ("a", "b"):
        write(f"{name}_made_part", last(tap, name, is_part))
        made[name] = epoch_of(name)
        write(f"{name}_made", last(tap, name, lambda wrapper: is_whole(wrapper, made[name])))  # noqa: B023
    write("route_made", route(name_server))
    print(rocketmq.admin("remappingStaticTopic", "-t", TOPIC, "-b", "b"))
    for name in ("a", "b"):
        until(lambda: epoch_of(name) > made[name], what="a new epoch")  # noqa: B023
        write(f"{name}_moved_part", last(tap, name, is_part))
        write(f"{name}_moved", last(tap, name, lambda wrapper: is_whole(wrapper, epoch_of(name))))  # noqa: B023
    write("route_moved", route(name_server))


def main() -> None:
    """Record with two brokers."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        addr = f"127.0.0.1:{free_port()}"
        lib = fetched(VERSION, Path(sys.argv[1]))
        stack.callback(RocketMQ(lib, Path(folder), addr).name_server(addr).end)
        until_open(addr)
        tap = Wiretap(addr)
        rocketmq = RocketMQ(lib, Path(folder), tap.addr)
        for name in ("a", "b"):
            stack.callback(rocketmq.broker(name).end)
        server = NameServer(addr)
        until(lambda: server.addrs("a") and server.addrs("b"), what="both brokers")
        record(rocketmq, tap, addr)
    for path in sorted(FOLDER.iterdir()):
        (frame,) = frames(path.read_bytes())
        print(path.name, len(path.read_bytes()), json.dumps(read_upstream(frame.body))[-600:])


if __name__ == "__main__":
    main()
