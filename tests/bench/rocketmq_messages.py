"""Messages through a RocketMQ broker 5.3.3: this client against RocketMQ's own for Java, in turns, at one broker.

Beside them the clients that a Python team would pick instead: RocketMQ's own for Python, which needs a proxy before the
same broker, and aiokafka with a broker of Kafka. CPU time is that of the client's process.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from deploy.rocketmq.processes import RocketMQ, fetched, missing_programs
from pointsman_client import Message, Producer, PushConsumer, ReceivedMessage
from pointsman_client.core.message import OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.errors import PointsmanError
from pointsman_client.ports.transport import Reader
from pointsman_client.rocketmq import RocketmqTransport
from tests.bench.peers.load_process import Load, LoadProcess, load_process
from tests.bench.peers.python_clients import Peer, aiokafka, rocketmq_python_client, started
from tests.bench.remoting import JARS, JVM, VERSION
from tests.bench.report import Report
from tests.bench.servers import name_server
from tests.bench.worker import Worker, serve_commands, worker

ROUNDS = 5
ROUND_SECONDS = 1.0
WARM_UP_SECONDS = 6.0
"""Of Java's JIT compiler, for each load."""
IN_FLIGHT = 32
BATCH = 32
BATCHES_IN_FLIGHT = 8
MESSAGES = 80_000
"""Consumed in each round."""
START_SECONDS = 60.0
PRODUCED, CONSUMED, QUEUES = "Produced", "Consumed", 4
PRODUCING_SHARE, CONSUMING_SHARE = 0.5, 1.2
"""Of Java's CPU time per message."""
TIMEOUT_SECONDS = 10.0


Round = Callable[[float], Awaitable[Load]]
"""Runs a load, one that is not bound to a number of messages for these seconds."""


@dataclass(frozen=True)
class _Subject:
    """One row: the same work by both clients, and by the transport without the client above it."""

    title: str
    rivals: Mapping[str, Round]
    share: float


async def measure(report: Report) -> None:
    """Print the figures."""
    report.subject(f"Messages through a RocketMQ broker {VERSION}, against its client for Java; uvloop")
    missing = missing_programs()
    if missing:
        print(f"  skipped: {missing}", flush=True)
        return
    async with worker(name_server) as names:
        remoting, grpc = await names.ask("remoting_addr"), await names.ask("addr")
        with tempfile.TemporaryDirectory() as folder:
            rocketmq = RocketMQ(fetched(VERSION, JARS), Path(folder), remoting)
            rocketmq.topics_on_disk("a", 0, [PRODUCED, CONSUMED])
            broker = rocketmq.broker(
                "a", jvm=JVM, mappedFileSizeCommitLog=str(256 * 1024 * 1024), mappedFileSizeConsumeQueue="6000000"
            )
            try:
                async with (
                    worker(client, grpc, broker.addr) as ours,
                    load_process(rocketmq.load_command(jvm=JVM), "RocketMQ's client") as java,
                    AsyncExitStack() as stack,
                ):
                    report.progress("waiting for the broker, and filling it")
                    await ours.ask("fill")
                    report.progress("fetching and starting other clients for Python")
                    official = await started(stack, rocketmq_python_client(Path(folder), remoting, jvm=JVM))
                    kafka = await started(stack, aiokafka(Path(folder), jvm=JVM))
                    for subject in _subjects(ours, java, official, kafka):
                        await _compare(report, subject)
            finally:
                broker.end()


def _subjects(ours: Worker, java: LoadProcess, official: tuple[Peer, ...], kafka: tuple[Peer, ...]) -> list[_Subject]:
    groups = (f"bench-{number}" for number in itertools.count())

    def send(in_flight: int, batch: int) -> dict[str, Round]:
        rounds: dict[str, Round] = {
            "ours": lambda seconds: ours.ask("send", seconds, in_flight, batch),
            "java": lambda seconds: java.measure(f"send {PRODUCED} {seconds} {in_flight} {batch}"),
            "transport": lambda seconds: ours.ask("send_bare", seconds, in_flight, batch),
        }
        # The official one has no batches.
        for peers, more in ((official if batch == 1 else (), ""), (kafka, f" {batch}")):
            for name, process in peers:
                rounds[name] = partial(_sent, process, f"send {PRODUCED} {{}} {in_flight}{more}")
        return rounds

    consume: dict[str, Round] = {
        "ours": lambda _: ours.ask("consume", next(groups)),
        "java": lambda _: java.measure(f"consume {CONSUMED} {MESSAGES} {next(groups)}"),
        "transport": lambda _: ours.ask("pull_bare"),
    }
    return [
        _Subject(f"produced, {IN_FLIGHT} in flight", send(IN_FLIGHT, 1), PRODUCING_SHARE),
        _Subject(
            f"produced in batches of {BATCH}, {BATCHES_IN_FLIGHT} in flight",
            send(BATCHES_IN_FLIGHT, BATCH),
            PRODUCING_SHARE,
        ),
        _Subject("consumed by a push consumer", consume, CONSUMING_SHARE),
    ]


async def _sent(process: LoadProcess, command: str, seconds: float) -> Load:
    return await process.measure(command.format(seconds))


async def _compare(report: Report, subject: _Subject) -> None:
    for name in [name for name in subject.rivals if name not in {"ours", "transport"}]:
        report.progress(f"{subject.title}: warming {name}")
        await subject.rivals[name](WARM_UP_SECONDS)
    rounds: dict[str, list[Load]] = {name: [] for name in subject.rivals}
    for number in range(ROUNDS + 1):
        report.progress(f"{subject.title}: round {number} of {ROUNDS}")
        for name in [*rounds][:: 1 if number % 2 else -1]:
            load = await subject.rivals[name](ROUND_SECONDS)
            if number:
                rounds[name].append(load)
    cpu = {name: [load.cpu_seconds / load.messages * 1e6 for load in loads] for name, loads in rounds.items()}
    speed = {name: statistics.median(load.messages / load.seconds for load in loads) for name, loads in rounds.items()}
    ratio = {name: statistics.median(a / b for a, b in zip(cpu[name], cpu["java"], strict=True)) for name in cpu}
    micros = {name: statistics.median(each) for name, each in cpu.items()}
    report.figure(
        subject.title,
        f"{ratio['ours']:.2f} of Java's CPU time per message ({micros['ours']:.1f} against {micros['java']:.1f} us), "
        f"{speed['ours']:,.0f} against {speed['java']:,.0f} per second",
        target=f"at most {subject.share}",
        is_met=ratio["ours"] <= subject.share,
    )
    report.figure(
        "  the transport alone",
        f"{ratio['transport']:.2f} of Java's CPU time ({micros['transport']:.1f} us), "
        f"{speed['transport']:,.0f} per second",
    )
    for name in [name for name in subject.rivals if name not in {"ours", "transport", "java"}]:
        report.figure(
            f"  {name}",
            f"{ratio[name]:.2f} of Java's CPU time ({micros[name]:.1f} us), {ratio[name] / ratio['ours']:.2f} of ours, "
            f"{speed[name]:,.0f} per second",
        )
    failed = {name: sum(load.failed for load in loads) for name, loads in rounds.items()}
    if any(failed.values()):
        report.figure("  failed sends, not counted", ", ".join(f"{name}: {each:,}" for name, each in failed.items()))


# --- this client, in its own process --------------------------------------------------------------------------


async def client(pipe: Connection, namesrv: str, broker: str) -> None:
    """Serve the commands of the bench."""
    transport = RocketmqTransport()
    async with Producer(namesrv, transport=RocketmqTransport) as producer:
        loads = _Loads(producer, transport, namesrv, broker)
        await serve_commands(
            pipe,
            {
                "fill": loads.fill,
                "send": loads.send,
                "send_bare": loads.send_bare,
                "consume": loads.consume,
                "pull_bare": loads.pull_bare,
            },
        )
    await transport.close()


class _Loads:
    def __init__(self, producer: Producer, transport: RocketmqTransport, namesrv: str, broker: str) -> None:
        self._producer = producer
        self._transport = transport
        self._namesrv = namesrv
        self._broker = broker
        self._body = bytes(100)

    async def fill(self) -> None:
        """Send what the consumers read, when the broker is ready."""
        messages = [Message(CONSUMED, self._body)] * BATCH
        deadline = time.monotonic() + START_SECONDS
        sent = 0
        while sent < MESSAGES + QUEUES * BATCH:
            try:
                await self._producer.send_batch(messages)
                sent += BATCH
            except PointsmanError:
                assert time.monotonic() < deadline, f"the broker is not ready within {START_SECONDS:g} s"
                await asyncio.sleep(0.2)

    async def send(self, seconds: float, in_flight: int, batch: int) -> Load:
        """Send by as many tasks."""

        async def once(_: int) -> None:
            if batch == 1:
                await self._producer.send(Message(PRODUCED, self._body))
            else:
                await self._producer.send_batch([Message(PRODUCED, self._body) for _ in range(batch)])

        return await _repeated(once, seconds, in_flight=in_flight, batch=batch)

    async def send_bare(self, seconds: float, in_flight: int, batch: int) -> Load:
        """Do the same through the transport."""
        queues = [MessageQueue(PRODUCED, "C", "a", number) for number in range(QUEUES)]
        first = OutgoingMessage(Message(PRODUCED, self._body), "01JD8B7Z6Q3M5N8K2T4V", datetime.now(UTC))

        async def once(number: int) -> None:
            queue = queues[number % QUEUES]
            await self._transport.send(self._broker, queue, [first] * batch, timeout_seconds=TIMEOUT_SECONDS)

        return await _repeated(once, seconds, in_flight=in_flight, batch=batch)

    async def consume(self, group: str) -> Load:
        """Consume from the first message on; measured from the first call of the listener."""
        done: asyncio.Future[Load] = asyncio.get_running_loop().create_future()
        clocks, seen = _Clocks(), 0

        async def listener(_: ReceivedMessage) -> None:
            nonlocal clocks, seen
            seen += 1
            if seen == 1:
                clocks = _Clocks()
            elif seen == MESSAGES:
                done.set_result(clocks.load(seen))

        async with PushConsumer(
            self._namesrv,
            group=group,
            subscriptions={CONSUMED: "*"},
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            transport=RocketmqTransport,
        ):
            return await done

    async def pull_bare(self) -> Load:
        """Read as many messages through the transport, with a pull at a time for each queue."""
        clocks, seen = _Clocks(), 0

        async def pull(queue: MessageQueue) -> None:
            nonlocal seen
            offset = 0
            while seen < MESSAGES:
                pulled = await self._transport.pull(
                    self._broker,
                    queue,
                    offset,
                    max_messages=BATCH,
                    wait_seconds=0.0,
                    timeout_seconds=TIMEOUT_SECONDS,
                    reader=Reader("bench-bare"),
                )
                if not pulled.messages:
                    return
                offset = pulled.next_offset
                seen += len(pulled.messages)

        await asyncio.gather(*(pull(MessageQueue(CONSUMED, "C", "a", number)) for number in range(QUEUES)))
        return clocks.load(seen)


class _Clocks:
    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.monotonic()

    def load(self, messages: int, failed: int = 0) -> Load:
        return Load(messages, failed, time.process_time() - self._cpu, time.monotonic() - self._wall)


async def _repeated(once: Callable[[int], Awaitable[None]], seconds: float, *, in_flight: int, batch: int) -> Load:
    clocks, until, failed = _Clocks(), time.monotonic() + seconds, 0

    async def repeat(number: int) -> int:
        nonlocal failed
        count = 0
        while time.monotonic() < until:
            try:
                await once(number + count)
                count += 1
            except PointsmanError:
                failed += batch
        return count

    calls = sum(await asyncio.gather(*map(repeat, range(in_flight))))
    return clocks.load(calls * batch, failed)
