"""A RocketMQ broker for tests, in this process: it stores messages, and misbehaves as the test says."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import (
    ANSWER_FLAG,
    JSON_FORM,
    ONE_WAY_FLAG,
    BadFrame,
    Command,
    FrameReader,
    encode,
    read_header,
)
from pointsman_client.rocketmq.message_codec import read_stored, store_times
from tests.kit.broker.rocketmq.stored_messages import property_map, read_batch, stored_message


@dataclass
class Answer:
    """What a request is answered with; ``flag`` and opaque come with it."""

    code: int = Code.SUCCESS
    ext: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    remark: str | None = None


@dataclass
class Log:
    """One queue."""

    first: int = 0
    records: list[bytes] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.first + len(self.records)


Handler = Callable[[Command, bytes], Answer | Awaitable[Answer]]


class FakeBroker:
    """``version`` is 479 (5.3.3) or 407 (4.9.7); waiting pulls end on a grid of ``grid_seconds``.

    Sets of request codes say what goes wrong: ``held`` (answered by :meth:`release`), ``dropped`` (never answered),
    ``doubled`` (answered twice), ``cut`` (half an answer, then the connection is closed).
    """

    def __init__(self, *, version: int = 479, grid_seconds: float = 5.0, tls: ssl.SSLContext | None = None) -> None:
        self.addr = ""
        self.version = version
        self.form = JSON_FORM
        self.grid_seconds = grid_seconds
        self._tls = tls
        self.requests: list[Command] = []
        self.replies: list[tuple[Command, bytes]] = []
        """What clients answered to requests of the broker."""
        self.logs: defaultdict[tuple[str, int], Log] = defaultdict(Log)
        self.delayed: list[dict[str, str]] = []
        """Properties of messages that it keeps for later."""
        self.sent_back: list[Command] = []
        self.answers: dict[int, Answer] = {}
        """Given to requests of a code instead of doing it."""
        self.handlers: dict[int, Handler] = {
            Request.SEND_MESSAGE_V2: self._send,
            Request.SEND_BATCH_MESSAGE: self._send,
            Request.PULL_MESSAGE: self._pull,
            Request.GET_MIN_OFFSET: lambda command, _: self._offset(self._log(command).first),
            Request.GET_MAX_OFFSET: lambda command, _: self._offset(self._log(command).end),
            Request.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            Request.CONSUMER_SEND_MSG_BACK: self._send_back,
            Request.QUERY_MESSAGE: self._query,
            Request.VIEW_MESSAGE_BY_ID: self._view,
        }
        self.held: set[int] = set()
        self.dropped: set[int] = set()
        self.doubled: set[int] = set()
        self.cut: set[int] = set()
        self.is_hanging = False
        self.master: FakeBroker | None = None
        self.peers: set[asyncio.StreamWriter] = set()
        self.connections = 0
        self._waiting: list[tuple[asyncio.StreamWriter, bytes]] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._serving: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Condition()

    async def start(self) -> Self:
        """Listen; on the same port after :meth:`stop`."""
        port = int(self.addr.rpartition(":")[2] or 0)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, ssl=self._tls)
        self.addr = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def stop(self) -> None:
        """Close all connections without a word, as a broker does; what is stored stays."""
        assert self._server is not None
        self._server.close()
        self.close_connections()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._serving, return_exceptions=True)
        await self._server.wait_closed()
        self._waiting.clear()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def close_connections(self) -> None:
        """Close each, as for idleness."""
        for writer in self.peers:
            writer.transport.abort()

    def push(self, command: Command, body: bytes = b"") -> None:
        """Send a request of the broker to every client."""
        for writer in self.peers:
            writer.write(encode(command, body))

    def release(self, *, reverse: bool = False) -> None:
        """Send what was held, in the order of the requests or the other way round."""
        waiting, self._waiting = self._waiting, []
        for writer, data in reversed(waiting) if reverse else waiting:
            writer.write(data)

    async def append(self, topic: str, queue_id: int, records: Iterable[bytes]) -> None:
        """Store records, whatever they say."""
        self.logs[topic, queue_id].records += records
        async with self._changed:
            self._changed.notify_all()

    def codes(self) -> list[int]:
        """Codes of all requests so far."""
        return [command.code for command in self.requests]

    async def until_asked(self, code: int, times: int = 1) -> None:
        """Wait until this number of requests of a code came."""
        async with asyncio.timeout(20), self._changed:
            await self._changed.wait_for(lambda: self.codes().count(code) >= times)

    async def until_held(self, times: int = 1) -> None:
        """Wait until this number of answers is held."""
        async with asyncio.timeout(20), self._changed:
            await self._changed.wait_for(lambda: len(self._waiting) >= times)

    # Connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peers.add(writer)
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        frames = FrameReader()
        try:
            with contextlib.suppress(ConnectionError, BadFrame):
                while data := await reader.read(65_536):
                    frames.feed(data)
                    while (frame := frames.next()) is not None:
                        await self._take(read_header(frame.form, frame.header), frame.body, writer)
        finally:
            self.peers.discard(writer)
            writer.close()

    async def _take(self, command: Command, body: bytes, writer: asyncio.StreamWriter) -> None:
        if command.is_answer:
            self.replies.append((command, body))
        else:
            self.requests.append(command)
            # Each by itself: answers come in any order, as a pull waits.
            task = asyncio.create_task(self._answer(command, body, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        async with self._changed:
            self._changed.notify_all()

    async def _answer(self, command: Command, body: bytes, writer: asyncio.StreamWriter) -> None:
        answer = self.answers.get(command.code)
        if answer is None:
            handler = self.handlers.get(command.code)
            made = Answer(Code.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {command.code} not supported")
            found = made if handler is None else handler(command, body)
            answer = found if isinstance(found, Answer) else await found
        if command.flag & ONE_WAY_FLAG or command.code in self.dropped or self.is_hanging:
            return
        header = Command(
            code=answer.code,
            opaque=command.opaque,
            flag=ANSWER_FLAG,
            language="JAVA",
            version=self.version,
            remark=answer.remark,
            ext=answer.ext,
        )
        data = encode(header, answer.body, form=self.form)
        if command.code in self.held:
            self._waiting.append((writer, data))
            async with self._changed:
                self._changed.notify_all()
        elif command.code in self.cut:
            writer.write(data[: len(data) // 2])
            writer.close()
        else:
            writer.write(data * (2 if command.code in self.doubled else 1))

    # Codes

    def _log(self, command: Command) -> Log:
        return self.logs[command.ext["topic"], int(command.ext["queueId"])]

    def _offset(self, offset: int) -> Answer:
        return Answer(ext={"offset": str(offset)})

    def _search(self, command: Command, _: bytes) -> Answer:
        """The first at the time or later; before 5.1.4 the nearest."""
        log, at = self._log(command), int(command.ext["timestamp"])
        times = [stored_ms for record in log.records for _, stored_ms in store_times(record)]
        if self.version < 441 and times:
            return self._offset(log.first + min(range(len(times)), key=lambda index: abs(times[index] - at)))
        return self._offset(log.first + sum(stored_ms < at for stored_ms in times))

    async def _send(self, command: Command, body: bytes) -> Answer:
        ext = command.ext
        if self.master is not None:
            return Answer(Code.SERVICE_NOT_AVAILABLE, remark="the broker's role is SLAVE")
        topic, queue_id = ext["b"], int(ext["e"])
        parts = read_batch(body) if ext["m"] == "true" else [(body, ext["i"])]
        log = self.logs[topic, queue_id]
        first = log.end
        records = []
        for number, (part, properties) in enumerate(parts):
            known = property_map(properties)
            if known.keys() & {"DELAY", "TIMER_DELIVER_MS"}:
                self.delayed.append(known)
                continue
            records.append(
                stored_message(
                    part,
                    offset=first + number,
                    queue_id=queue_id,
                    topic=topic,
                    properties=properties,
                    sys_flag=int(ext["f"]),
                    born_ms=int(ext["g"]),
                    stored_ms=int(ext["g"]),
                    reconsume_times=int(ext["j"]),
                    log_offset=1_000 * (first + number),
                )
            )
        await self.append(topic, queue_id, records)
        return Answer(ext={"msgId": "", "queueId": str(queue_id), "queueOffset": str(first)})

    def _query(self, command: Command, _: bytes) -> Answer:
        """By the hash of a key in a real broker: here each key that begins with the same character has the same."""
        topic, key = command.ext["topic"], command.ext["key"]
        found = list[bytes]()
        for (name, _queue_id), log in self.logs.items():
            for record in log.records if name == topic else ():
                with contextlib.suppress(ValueError):  # a damaged one
                    (message,) = read_stored(record, cluster="", broker_name="", max_body_bytes=1 << 24)
                    if any(each[0] == key[0] for each in (message.message_id, *message.keys)):
                        found.append(record)
        return Answer(body=b"".join(found)) if found else Answer(Code.QUERY_NOT_FOUND, remark="can not find message")

    def _view(self, command: Command, _: bytes) -> Answer:
        for log in self.logs.values():
            for record in log.records:
                if int.from_bytes(record[28:36], "big") == int(command.ext["offset"]):
                    return Answer(body=record)
        return Answer(Code.SYSTEM_ERROR, remark=f"can not find message by the offset, {command.ext['offset']}")

    async def _send_back(self, command: Command, _: bytes) -> Answer:
        self.sent_back.append(command)
        return Answer()

    async def _pull(self, command: Command, _: bytes) -> Answer:
        offset, most = int(command.ext["queueOffset"]), int(command.ext["maxMsgNums"])
        answer = self._read(self._log(command), offset, most)
        if answer.code != Code.PULL_NOT_FOUND or not int(command.ext["sysFlag"]) & 2:
            return answer
        seconds = int(command.ext["suspendTimeoutMillis"]) / 1000
        grid = self.grid_seconds
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout((seconds // grid + 1) * grid), self._changed:
                await self._changed.wait_for(
                    lambda: self._read(self._log(command), offset, most).code != Code.PULL_NOT_FOUND
                )
        return self._read(self._log(command), offset, most)

    def _read(self, log: Log, offset: int, most: int) -> Answer:
        ext = {"minOffset": str(log.first), "maxOffset": str(log.end), "suggestWhichBrokerId": "0"}
        if offset > log.end:
            return Answer(
                Code.PULL_OFFSET_MOVED, ext | {"nextBeginOffset": str(log.end)}, remark="OFFSET_OVERFLOW_BADLY"
            )
        if offset < log.first:
            return Answer(Code.PULL_OFFSET_MOVED, ext | {"nextBeginOffset": str(log.first)}, remark="OFFSET_TOO_SMALL")
        found: Sequence[bytes] = log.records[offset - log.first :][:most]
        if not found:
            return Answer(Code.PULL_NOT_FOUND, ext | {"nextBeginOffset": str(offset)}, remark="OFFSET_OVERFLOW_ONE")
        return Answer(Code.SUCCESS, ext | {"nextBeginOffset": str(offset + len(found))}, b"".join(found), "FOUND")
