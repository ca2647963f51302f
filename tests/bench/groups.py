"""Ten thousand consumers in a hundred groups on one agent: heartbeats, time to notify of a leave, cost of each."""

from __future__ import annotations

import asyncio
import functools
import itertools
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from multiprocessing.connection import Connection

import grpc
from prometheus_client import CollectorRegistry

from pointsman.clock import SystemClock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.channel_options import CHANNEL_OPTIONS, KEEPALIVE_OPTIONS
from pointsman_agent.core.group_progress import ProgressMeter
from pointsman_agent.core.group_rules import GroupRules
from pointsman_agent.core.measured_queue_stats import QueueMeter
from pointsman_agent.core.offsets import Offsets
from pointsman_agent.groups.group_queues import GroupQueues
from pointsman_agent.groups.group_servicer import ConsumerGroups
from pointsman_agent.queue_stats.ends import UnknownQueueEnds
from pointsman_agent.rpc.agent_server import AgentServer
from tests.bench import messages
from tests.bench.report import Report
from tests.bench.servers import bare_server, process_commands
from tests.bench.turns import Load, Turn, in_turns
from tests.bench.worker import Worker, serve_commands, worker

CONSUMERS = 10_000
GROUPS = 100
CLIENTS = 2
"""Processes of consumers; all members of a group are in one of them."""
STREAMS_A_CONNECTION = 400
CONCURRENT_CALLS = 50
LEAVES = 30
PAUSE_SECONDS = 0.2
"""Between two leaves: the agent pauses between rounds, too."""

READERS, READ_QUEUES = 1_000, 100
"""Consumers that also say how they read their queues: an agent keeps at most 100,000."""

SERVICE = "/pointsman.v1.ConsumerGroupService"
KEEP, WATCH, LEAVE = f"{SERVICE}/KeepMembership", f"{SERVICE}/WatchGroup", f"{SERVICE}/LeaveGroups"

_Stream = grpc.aio.StreamStreamCall[bytes, bytes]


async def measure(report: Report) -> None:
    """Print the figures."""
    report.subject(
        f"Consumer groups: {CONSUMERS:,} consumers in {GROUPS} groups on one agent, one stream per consumer; "
        f"{CLIENTS} client processes share the cores"
    )
    async with worker(group_server) as ours, worker(bare_server) as bare:
        await bare.ask("answer", wire.KeepMembershipResponse(status=wire.MEMBERSHIP_STATUS_OK).SerializeToString())
        async with _consumers(ours, KEEP) as members, _consumers(bare, messages.KEEP_ALIVE) as echoes:
            report.progress("opening streams")
            our_bytes = await _grown(ours, members, "open")
            bare_bytes = await _grown(bare, echoes, "open")
            turns = {
                "ours": Turn(ours, _beating(members)),
                "reading": Turn(ours, _beating(members, READ_QUEUES)),
                "bare": Turn(bare, _beating(echoes)),
            }
            costs = await in_turns(turns, report, title="heartbeats")
            report.figure(
                "heartbeats per CPU second, share of a bare echo's",
                f"{costs.ratio('ours', 'bare'):.2f} ({costs.median('ours'):.1f} against {costs.median('bare'):.1f} us)",
            )
            more, size = costs.median("reading") - costs.median("ours"), len(_readings("group-0", False, READ_QUEUES))
            report.figure(
                f"{READ_QUEUES} changed queues in a heartbeat",
                f"{more:.0f} us more, {more / READ_QUEUES:.1f} us per queue, {size:,} bytes",
            )
            report.progress("opening watches")
            watch_bytes = await _grown(ours, members, "watch")
            took = [await client.ask("leave", number) for number in range(LEAVES) for client in members]
    report.figure(
        f"from a leave to the last of {CONSUMERS // GROUPS - 1} members",
        f"{statistics.median(took) * 1e3:.0f} ms, at most {max(took) * 1e3:.0f} ms",
        target="1 s",
        is_met=max(took) < 1.0,
    )
    report.figure(
        "memory of the server",
        f"{our_bytes / 1e3:.1f} kB per consumer against {bare_bytes / 1e3:.1f} kB per bare stream; "
        f"{watch_bytes / 1e3:.1f} kB per watch",
    )


async def _grown(server: Worker, clients: Iterable[Worker], command: str) -> float:
    """Bytes a consumer that the server grew by while its clients obeyed."""
    before = await server.ask("rss")
    await asyncio.gather(*(client.ask(command) for client in clients))
    return float(await server.ask("rss") - before) / CONSUMERS


def _beating(clients: list[Worker], queues: int = 0) -> Load:
    async def load(seconds: float) -> int:
        return sum(await asyncio.gather(*(client.ask("beat", seconds, queues) for client in clients)))

    return load


@asynccontextmanager
async def _consumers(server: Worker, path: str) -> AsyncIterator[list[Worker]]:
    share = CONSUMERS // CLIENTS
    addr = await server.ask("addr")
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(worker(consumers, addr, path, number * share, share))
            for number in range(CLIENTS)
        ]


# --- processes --------------------------------------------------------------------------------------------------


async def group_server(pipe: Connection) -> None:
    """Serve groups as the agent does."""
    rules = GroupRules(warm_up=0.0)
    clock = SystemClock()
    offsets = Offsets()
    queues = GroupQueues(
        offsets.of_group,
        commit_times=offsets.commit_times,
        ends=UnknownQueueEnds(),
        meter=QueueMeter(),
        progress=ProgressMeter(),
        clock=clock,
    )
    groups = ConsumerGroups(rules, clock=clock, boot=1, max_watchers=20_000, queues=queues)
    server = AgentServer(longest_silence=rules.expiry, clock=clock, registry=CollectorRegistry())
    port = server.bind("127.0.0.1:0")
    await server.start([groups.service()])
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.watch_over())
        await serve_commands(pipe, process_commands(f"127.0.0.1:{port}"))
        await server.stop(0.0)


async def consumers(pipe: Connection, addr: str, path: str, first: int, count: int) -> None:
    """Run ``count`` consumers that send heartbeats on ``path``."""
    options = (*CHANNEL_OPTIONS, *KEEPALIVE_OPTIONS)
    channels = [grpc.aio.insecure_channel(addr, options=options) for _ in range(-(-2 * count // STREAMS_A_CONNECTION))]
    fleet = _Fleet(channels, path, range(first, first + count))
    await serve_commands(pipe, {"open": fleet.open, "beat": fleet.beat, "watch": fleet.watch, "leave": fleet.leave})
    await fleet.close()
    for channel in channels:
        await channel.close()


class _Fleet:
    def __init__(self, channels: list[grpc.aio.Channel], path: str, numbers: range) -> None:
        self._channels = itertools.cycle(channels)
        self._path = path
        # Neighbours share a group, so that the members of each are all here.
        self._groups = {number: f"group-{number * GROUPS // CONSUMERS}" for number in numbers}
        self._beats = {number: _beat(number, group) for number, group in self._groups.items()}
        self._streams: dict[int, _Stream] = {}
        self._is_second = dict.fromkeys(numbers, False)
        self._reading: list[asyncio.Task[None]] = []
        self._received: dict[str, list[float]] = {group: [] for group in self._groups.values()}
        self._changed = asyncio.Event()

    async def open(self) -> None:
        """Open a stream for each, with a first heartbeat."""

        async def one(number: int) -> None:
            call: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = next(self._channels).stream_stream(self._path)
            self._streams[number] = call()
            await self._beat(number)

        await _each(one, self._groups)

    async def beat(self, seconds: float, queues: int) -> int:
        """Send heartbeats for ``seconds``, one consumer after the other, some concurrently; return how many.

        Each says how its consumer reads this many queues, all of which changed.
        """
        until = time.monotonic() + seconds

        async def some(numbers: list[int]) -> int:
            count = 0
            for number in itertools.cycle(numbers):
                if time.monotonic() > until:
                    return count
                if queues:
                    self._is_second[number] ^= True
                    await self._beat(number, _readings(self._groups[number], self._is_second[number], queues))
                else:
                    await self._beat(number)
                count += 1
            return count

        # The last ones, which the turn without readings does not reach: an unchanged heartbeat costs less.
        numbers = list(self._streams)[-READERS // CLIENTS if queues else 0 :]
        return sum(await asyncio.gather(*(some(numbers[i::CONCURRENT_CALLS]) for i in range(CONCURRENT_CALLS))))

    async def watch(self) -> None:
        """Open a watch for each; return when all have the first state."""

        async def one(number: int) -> None:
            call: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = next(self._channels).unary_stream(WATCH)
            group = self._groups[number]
            stream = call(wire.WatchGroupRequest(group=group, client_id=_client_id(number)).SerializeToString())
            assert isinstance(await stream.read(), bytes), "the watch ended"
            self._reading.append(asyncio.create_task(self._read(stream, group)))

        await _each(one, self._groups)

    async def leave(self, number: int) -> float:
        """Let one leave; return the seconds until every watcher of its group is notified. It rejoins after that."""
        who = list(self._groups)[number * 37 % len(self._groups)]
        group = self._groups[who]
        watchers = sum(each == group for each in self._groups.values())
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = next(self._channels).unary_unary(LEAVE)
        await asyncio.sleep(PAUSE_SECONDS)
        self._received[group].clear()
        started = time.monotonic()
        await call(wire.LeaveGroupsRequest(client_id=_client_id(who)).SerializeToString())
        took = await self._all_notified(group, watchers) - started
        await asyncio.sleep(PAUSE_SECONDS)
        self._received[group].clear()
        await self._beat(who)
        await self._all_notified(group, watchers)
        return took

    async def close(self) -> None:
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)

    async def _all_notified(self, group: str, watchers: int) -> float:
        async with asyncio.timeout(messages.CALL_SECONDS):
            while len(self._received[group]) < watchers:
                self._changed.clear()
                await self._changed.wait()
        return max(self._received[group])

    async def _read(self, stream: grpc.aio.UnaryStreamCall[bytes, bytes], group: str) -> None:
        while isinstance(await stream.read(), bytes):
            self._received[group].append(time.monotonic())
            self._changed.set()

    async def _beat(self, number: int, readings: bytes = b"") -> None:
        stream = self._streams[number]
        await stream.write(self._beats[number] + readings)
        assert isinstance(await stream.read(), bytes), "the stream ended"


def _client_id(number: int) -> str:
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}@8123#1700000000000"


def _beat(number: int, group: str) -> bytes:
    subscriptions = [wire.Subscription(topic=f"topic-{i}", expression="*") for i in range(3)]
    held = wire.GroupSubscription(
        group=group,
        consume_type=wire.CONSUME_TYPE_PUSH,
        message_model=wire.MESSAGE_MODEL_CLUSTERING,
        subscriptions=subscriptions,
    )
    return wire.KeepMembershipRequest(client_id=_client_id(number), groups=[held]).SerializeToString()


@functools.cache
def _readings(group: str, is_second: bool, count: int) -> bytes:
    """How a consumer reads its queues, to be added to a heartbeat: protobuf merges the two."""
    queues = [
        wire.QueueReading(queue_id=number, position=1_000_000 + is_second, committed=999_000 + is_second, in_flight=32)
        for number in range(count)
    ]
    for queue in queues:
        queue.oldest_call.FromMilliseconds(40)
    reading = wire.GroupReading(group=group, topics=[wire.TopicReading(topic="topic-0", queues=queues)])
    return wire.KeepMembershipRequest(readings=[reading]).SerializeToString()


async def _each(call: Callable[[int], Awaitable[None]], numbers: Iterable[int]) -> None:
    waiting = iter(numbers)

    async def some() -> None:
        for number in waiting:
            await call(number)

    await asyncio.gather(*(some() for _ in range(CONCURRENT_CALLS)))
