"""Cheap processes that act as RocketMQ's clients and brokers: frames are precomputed, responses counted by length."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import NamedTuple, TypeVar

from pointsman.names import split_addr
from pointsman.rocketmq.bodies import read_json
from tests.bench.worker import serve_commands
from tests.kit.broker.rocketmq.frames import ask, broker_ext, register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import remoting_peer

CONNECTIONS = 32
OPAQUES = 4_096
FIRST_OPAQUE = 10_000
"""A client counts its requests; starting here, all have the same number of digits, and all frames one length."""
RENEW_SECONDS = 30.0
POLL_SECONDS = 5.0
"""How often a broker registers, and how often one of 5.x requests the cluster."""
SYSTEM_TOPICS = tuple(f"SYSTEM_TOPIC_{number}" for number in range(12))
ANSWER_SECONDS = 30.0

P = TypeVar("P", bound="_Peer")


class Asked(NamedTuple):
    """Responses to a load."""

    answers: int
    seconds: float
    p99: float
    """Seconds."""
    answer_bytes: int


class _Peer(asyncio.Protocol):
    """A connection that counts responses."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.lengths: set[int] = set()
        """Lengths of the responses."""
        self.bytes = 0
        """Total of all responses."""
        self._left = 0
        """Bytes of a frame that are still to come."""
        self._start = b""
        """Bytes of an incomplete length prefix."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's are of no class of asyncio's

    def data_received(self, data: bytes) -> None:
        size, at, answers = len(data), self._left, 0
        self.bytes += size
        if at > size:
            self._left -= size
            return
        if at:
            answers, self._left = 1, 0
        elif self._start:
            data, size, self._start = self._start + data, size + len(self._start), b""
        while size - at >= 4:
            length = 4 + int.from_bytes(data[at : at + 4], "big")
            self.lengths.add(length)
            at += length
            if at > size:
                self._left = at - size
                break
            answers += 1
        else:
            self._start = data[at:]
        if answers:
            self.answered(answers)

    def answered(self, count: int) -> None:
        """Add the number of responses that a read contained."""


class _Client(_Peer):
    """Keeps requests in flight for a time."""

    def load(self, frames: bytes, depth: int, until: float) -> asyncio.Future[None]:
        """Begin; ``frames`` are OPAQUES requests of one length."""
        self.answers = 0
        self.lengths.clear()
        self.waits: list[tuple[float, int]] = []
        self._frames, self._until, self._at = frames, until, 0
        self._length = len(frames) // OPAQUES
        self._sent: deque[tuple[float, int]] = deque()
        self._done = asyncio.get_running_loop().create_future()
        self._send(depth, time.monotonic())
        return self._done

    def _send(self, count: int, now: float) -> None:
        size = count * self._length
        if self._at + size > len(self._frames):
            self._at = 0
        self.transport.write(self._frames[self._at : self._at + size])
        self._at += size
        self._sent.append((now, count))

    def answered(self, count: int) -> None:
        # In their order: Java may respond in another, which makes only its longest times look shorter.
        now, left = time.monotonic(), count
        while left:
            at, sent = self._sent.popleft()
            if sent > left:
                self._sent.appendleft((at, sent - left))
            self.waits.append((now - at, min(sent, left)))
            left -= min(sent, left)
        self.answers += count
        if now < self._until:
            self._send(count, now)
        elif not self._sent:
            self._done.set_result(None)


async def clients(pipe: Connection) -> None:
    """Query routes on CONNECTIONS connections."""
    peers: dict[str, list[_Client]] = {}

    async def load(addr: str, topic: str, depth: int, seconds: float) -> Asked:
        """Query until the time is over, with ``depth`` requests in flight on each connection."""
        if addr not in peers:
            peers[addr] = [await _connect(addr, _Client) for _ in range(CONNECTIONS)]
        frames = _one_after_another(105, topic=topic)
        began = time.monotonic()
        await asyncio.gather(*(peer.load(frames, depth, began + seconds) for peer in peers[addr]))
        took = time.monotonic() - began
        waits = [wait for peer in peers[addr] for wait in peer.waits]
        lengths = set().union(*(peer.lengths for peer in peers[addr]))
        assert len(lengths) == 1, f"answers of {lengths} bytes to one question"
        return Asked(sum(peer.answers for peer in peers[addr]), took, _percentile(waits, 0.99), lengths.pop())

    await serve_commands(pipe, {"load": load, "read": _read})


async def _read(addr: str, code: int, ext: dict[str, str]) -> tuple[object, int]:
    """Read one response; return its body as JSON, and the size of the body."""
    async with remoting_peer(addr) as peer:
        answer = await peer.ask(code, ext)
    assert answer.code == 0, answer.command.remark
    return read_json(answer.body), len(answer.body)


def _one_after_another(code: int, **ext: str) -> bytes:
    return b"".join(ask(code, ext, opaque=FIRST_OPAQUE + number) for number in range(OPAQUES))


def _percentile(waits: list[tuple[float, int]], share: float) -> float:
    wanted = share * sum(count for _, count in waits)
    for wait, count in sorted(waits):
        wanted -= count
        if wanted <= 0:
            return wait
    return 0.0


async def _connect(addr: str, kind: Callable[[], P]) -> P:
    host, port = split_addr(addr)
    _, peer = await asyncio.get_running_loop().create_connection(kind, host, port)
    return peer


# --- brokers --------------------------------------------------------------------------------------------------


class _Broker(_Peer):
    """One broker with its topics, as 5.3.3 registers them."""

    number = 0
    topics: tuple[str, ...] = ()
    _waiting: asyncio.Future[None] | None = None

    def registration(self) -> bytes:
        """The frame of its table; two differ in their time of sending alone."""
        body = register_body({topic: topic_config(topic) for topic in self.topics}, sent_at=time.time_ns() // 1_000_000)
        return register(self.ext(), body)

    def ext(self) -> dict[str, str]:
        """Its identity."""
        addr = f"10.0.{self.number // 250}.{self.number % 250}"
        return broker_ext(f"broker-{self.number:04}", addr=f"{addr}:10911", haServerAddr=f"{addr}:10912")

    async def send(self, frame: bytes) -> None:
        """Send a request and wait for its response."""
        self._waiting = asyncio.get_running_loop().create_future()
        self.transport.write(frame)
        await asyncio.wait_for(self._waiting, ANSWER_SECONDS)

    def answered(self, _: int) -> None:
        if self._waiting is not None:
            self._waiting.set_result(None)
            self._waiting = None


class _LargeTable:
    """Precomputed registrations of a broker with many topics: the server is measured, not the encoder."""

    def __init__(self, topics: int) -> None:
        self._counter = 0
        self._text = self._first = _table_text(topics, changed=0)
        self._changed = {changed: _table_text(topics, changed=changed) for changed in (1, topics)}

    def body(self, *, changed: int) -> bytes:
        """The next one; ``changed``: 0, 1 or all topics, changed back by every other, each with a new version."""
        if changed:
            self._counter += 1
            self._text = self._changed[changed] if self._text is self._first else self._first
        empty = register_body({}, counter=self._counter, sent_at=time.time_ns() // 1_000_000)
        return empty.replace(b'"topicConfigTable":{}', b'"topicConfigTable":' + self._text)


def _table_text(topics: int, *, changed: int) -> bytes:
    names = [f"large-{number:05}" for number in range(topics)]
    table = {name: topic_config(name, perm=4 if number < changed else 6) for number, name in enumerate(names)}
    return json.dumps(table, separators=(",", ":")).encode()


async def brokers(pipe: Connection, large: int) -> None:
    """Run brokers at each address; on request the first of them adds a table of ``large`` topics."""
    fleets: dict[str, list[_Broker]] = {}
    tables: dict[str, _LargeTable] = {}
    renewing: list[asyncio.Task[None]] = []

    async def join(addr: str, topics: list[list[str]]) -> None:
        """Add brokers with these topics."""
        if addr not in fleets:
            fleets[addr], tables[addr] = [], _LargeTable(large)
            renewing.append(asyncio.create_task(renew(fleets[addr])))
        for of_one in topics:
            broker = await _connect(addr, _Broker)
            broker.number, broker.topics = len(fleets[addr]), (*SYSTEM_TOPICS, *of_one)
            fleets[addr].append(broker)
            await broker.send(broker.registration())

    async def register_large(addr: str, count: int, changed: int) -> int:
        """Register the large table ``count`` times, an even number, each with ``changed`` topics changed."""
        broker = fleets[addr][0]
        for _ in range(count):
            await broker.send(register(broker.ext(), tables[addr].body(changed=changed)))
        return count

    async def poll(addr: str, seconds: float, size: int) -> None:
        """Let each request the cluster as often as a broker of 5.x does; await the responses of ``size`` bytes."""
        fleet, question = fleets[addr], ask(106, opaque=FIRST_OPAQUE)
        before, pause, began = sum(broker.bytes for broker in fleet), POLL_SECONDS / len(fleet), time.monotonic()
        for number, broker in enumerate(itertools.cycle(fleet)):
            if number * pause >= seconds:
                break
            broker.transport.write(question)
            await asyncio.sleep(max(0.0, began + (number + 1) * pause - time.monotonic()))
        wanted = int(seconds / pause)
        while (answers := (sum(broker.bytes for broker in fleet) - before) // size) < wanted:
            assert time.monotonic() < began + seconds + ANSWER_SECONDS, f"{answers} responses to {wanted} requests"
            await asyncio.sleep(0.01)

    async def renew(fleet: list[_Broker]) -> None:
        """Register each broker in turn; the one with the large table one-way: register_large awaits its responses."""
        for at in itertools.count(1):
            await asyncio.sleep(RENEW_SECONDS / max(1, len(fleet)))
            broker = fleet[at % len(fleet)]
            broker.transport.write(broker.registration() if broker.number else ask(904, broker.ext(), flag=2))

    await serve_commands(pipe, {"join": join, "register_large": register_large, "poll": poll})
    for task in renewing:
        task.cancel()
