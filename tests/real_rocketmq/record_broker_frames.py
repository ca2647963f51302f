"""Record what unmodified brokers respond to the client: ``python -m tests.real_rocketmq.record_broker_frames CACHE``.

Writes tests/fixtures/rocketmq_broker_frames. CACHE is the folder with RocketMQ's jars (``.pytest_cache/d/rocketmq``).
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from deploy.rocketmq.processes import RocketMQ, fetched, free_port
from pointsman.names import split_addr
from pointsman.rocketmq.codes import BrokerRequestCode as Code
from pointsman.rocketmq.frames import FrameReader
from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.ports.transport import Reader
from pointsman_client.rocketmq.pulling import pull_fields
from pointsman_client.rocketmq.request_frames import request_frame, request_head
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions
from pointsman_client.rocketmq.sending import SendRequests

FOLDER = Path(__file__).parents[1] / "fixtures" / "rocketmq_broker_frames"
BORN_AT = datetime(2026, 1, 1, tzinfo=UTC)
QUEUE = MessageQueue("Recorded", "C", "a", 0)
JAVA = """
import java.util.*;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.*;

public class Compressed {
  public static void main(String[] a) throws Exception {
    DefaultMQProducer p = new DefaultMQProducer("recorder");
    p.setNamesrvAddr(a[0]);
    p.setVipChannelEnabled(false);
    p.start();
    while (true) {
      try {
        p.fetchPublishMessageQueues(a[1]);
        break;
      } catch (Exception e) {
        Thread.sleep(500);  // until the broker is registered
      }
    }
    byte[] body = new byte[5000];
    Arrays.fill(body, (byte) 'x');
    p.send(new Message(a[1], "paid", "k1 k2", body), new MessageQueue(a[1], "a", 0));
    p.send(List.of(new Message(a[1], "t", "first".getBytes()), new Message(a[1], "t", "second".getBytes())),
        new MessageQueue(a[1], "a", 0));
    System.exit(0);
  }
}
"""


_ADDRESS = re.compile(rb"(UNIQ_KEY\x01)(?:([0-9A-F]{8})([0-9A-F]{24})|([0-9A-F]{32})([0-9A-F]{24}))(?=\x02)")


def _hidden(found: re.Match[bytes]) -> bytes:
    """The id of a Java client without the address of this machine."""
    return found[1] + b"0" * len(found[2] or found[4]) + (found[3] or found[5])


class Recorder:
    """One connection to a broker; writes each exchange to two files."""

    def __init__(self, addr: str, version: str) -> None:
        self._socket = socket.create_connection(split_addr(addr), 10.0)
        self._frames = FrameReader()
        self._version = version
        self._opaque = 0

    def record(self, name: str, head: bytes, body: bytes = b"") -> None:
        self._opaque += 1
        request = request_frame(head, self._opaque, body)
        self._socket.sendall(request)
        response = self._response()
        path = FOLDER / f"{name}_{self._version}"
        path.with_name(path.name + ".request.bin").write_bytes(request)
        path.with_name(path.name + ".response.bin").write_bytes(_ADDRESS.sub(_hidden, response))

    def _response(self) -> bytes:
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            data += self._socket.recv(65_536)
        return data

    def close(self) -> None:
        self._socket.close()


def messages() -> Iterator[tuple[str, list[OutgoingMessage]]]:
    """What is sent, by name."""
    plain = Message("Recorded", b"plain", "paid", ("k1", "k2"), {"trace": "\u00fc"})
    yield "send", [OutgoingMessage(plain, "id-1", BORN_AT)]
    yield "send_zlib", [OutgoingMessage(Message("Recorded", b"z" * 5_000), "id-2", BORN_AT)]
    batch = [OutgoingMessage(Message("Recorded", body), f"id-{body.decode()}", BORN_AT) for body in (b"b1", b"b2")]
    yield "send_batch", batch


def record(version: str, cache: Path, folder: Path, stack: ExitStack) -> None:
    """Start a name server and a broker, and record."""
    namesrv = f"127.0.0.1:{free_port()}"
    rocketmq = RocketMQ(fetched(version, cache), folder, namesrv)
    stack.callback(rocketmq.name_server(namesrv).end)
    rocketmq.topics_on_disk("a", 0, ["Recorded"])
    broker = rocketmq.broker("a")
    stack.callback(broker.end)
    until_open(broker.addr)
    recorder = Recorder(broker.addr, version)
    stack.callback(recorder.close)
    requests = SendRequests(RocketmqOptions())
    for name, sent in messages():
        recorder.record(name, *requests.to_request(QUEUE, sent, now=BORN_AT, version=0))
    beyond = MessageQueue("Recorded", "C", "a", 99)
    recorder.record("send_refused", *requests.to_request(beyond, sent[:1], now=BORN_AT, version=0))
    java = folder / "Compressed.java"
    java.write_text(JAVA)
    for method in ("ZLIB", "LZ4", "ZSTD") if version.startswith("5.") else ("ZLIB",):
        options = [f"-Drocketmq.message.compressType={method}", f"-Drocketmq.client.logRoot={folder}"]
        jars = str(cache / version / "*")
        command = ["java", *options, "-cp", jars, str(java), namesrv, "Recorded"]
        subprocess.run(command, check=True, timeout=60, capture_output=True)
    time.sleep(1.0)  # until the last one can be read
    reader = Reader("recorder")

    def pull(name: str, offset: int, expression: str = "*") -> None:
        how = Reader(reader.group, expression)
        fields = pull_fields(QUEUE, offset, max_messages=32, suspend_seconds=0.0, reader=how)
        recorder.record(name, request_head(Code.PULL_MESSAGE, fields))

    pull("pull", 0)
    pull("pull_tag", 0, "paid")
    pull("pull_nothing_matches", 1, "none")
    pull("pull_beyond_end", 1_000)
    fields = {"topic": "Recorded", "queueId": "0"}
    recorder.record("min_offset", request_head(Code.GET_MIN_OFFSET, fields))
    recorder.record("max_offset", request_head(Code.GET_MAX_OFFSET, fields))
    recorder.record("search", request_head(Code.SEARCH_OFFSET_BY_TIMESTAMP, fields | {"timestamp": "0"}))
    pull("pull_at_end", 7 if version.startswith("4.") else 13)


def until_open(addr: str) -> None:
    """Wait until a port accepts."""
    for _ in range(600):
        try:
            socket.create_connection(split_addr(addr), 1.0).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(addr)


def main() -> None:
    """Record both versions."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for version in ("5.3.3", "4.9.7"):
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            record(version, Path(sys.argv[1]), Path(folder), stack)


if __name__ == "__main__":
    main()
