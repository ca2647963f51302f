"""Cost of the client's choices per call, against the minimum that any program would do, and their evenness."""

from __future__ import annotations

import itertools
import random
import statistics
import timeit
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from pointsman_client.core.allocation import (
    AllocationRequest,
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    Pinned,
)
from pointsman_client.core.fault_strategy import LatencyFaultTolerance, PublishInfo, QueueSelector
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.sharding import ExplicitTable, HashRing, ModuloMap, ShardingMap, SubShards
from tests.bench.report import Report

QUEUES = (16, 1_024)
MEMBERS = (4, 1_000)
ROOMS = ("r1", "r2")
ROUNDS = 7
ROUND_SECONDS = 0.02
KEYS = [f"customer-{number}" for number in range(100_000)]
KEYS_A_QUEUE = 2_000

Call = Callable[[], object]


async def measure(report: Report) -> None:
    """Print the figures. They are all of pure functions: nothing is awaited."""
    report.subject("Allocation: time per call, and its ratio to slicing the share out of a tuple")
    _allocation(report)
    report.subject("Queues that move between the existing members when one member joins (1,024 queues)")
    _moved_queues(report)
    report.subject("Queue choice: time per call, and its ratio to next(itertools.cycle(queues))")
    _queue_choice(report)
    report.subject("Queue of a key: time per call, and its ratio to queues[hash(key) % n]")
    _key_choice(report)
    report.subject("Keys: how many move when 8 queues become 12, and the fullest queue against the mean")
    _keys(report)


def queues(count: int, *, brokers: int | None = None) -> tuple[MessageQueue, ...]:
    """Return ``count`` queues of one topic on brokers in two machine rooms."""
    brokers = brokers or min(16, count // 4)
    return tuple(
        MessageQueue("orders", "c1", f"broker-{number:02}", queue_id)
        for number in range(brokers)
        for queue_id in range(count // brokers)
    )


def members(count: int) -> tuple[str, ...]:
    """Return ``count`` client ids in two machine rooms, sorted."""
    return tuple(
        sorted(f"10.0.{number // 250}.{number % 250}@{4_000 + number}@{ROOMS[number % 2]}" for number in range(count))
    )


def _zones(of: tuple[MessageQueue, ...]) -> Mapping[tuple[str, str], str]:
    names = sorted({(queue.cluster, queue.broker_name) for queue in of})
    return {name: ROOMS[number % 2] for number, name in enumerate(names)}


def _allocation(report: Report) -> None:
    strategies: dict[str, AllocationStrategy] = {
        "averagely": Averagely(),
        "averagely_by_circle": AveragelyByCircle(),
        "by_config": ByConfig(queues(16)[:4]),
        "machine_room": MachineRoom(ROOMS),
        "machine_room_nearby": MachineRoomNearby(),
        "consistent_hash": ConsistentHash(),
    }
    for count, group in itertools.product(QUEUES, MEMBERS):
        of, these = queues(count), members(group)
        request = AllocationRequest("G", these[group // 2], of, these, _zones(of))
        size = max(1, count // group)
        strategies["pinned to a quarter"] = Pinned(Averagely(), these[::4])
        calls: dict[str, Call] = {name: partial(strategy.allocate, request) for name, strategy in strategies.items()}
        # More lists of members than rings are kept: each call builds its own.
        others = [replace(request, client_ids=(*these[:-1], f"z@{number}")) for number in range(8)]
        calls["consistent_hash, ring not kept"] = partial(_allocate_next, ConsistentHash(), itertools.cycle(others))
        report.progress(f"{count} queues, {group} members")
        _report_times(report, f"{count:,} queues, {group:,} members", calls, partial(_cut, of, size))


def _allocate_next(strategy: AllocationStrategy, requests: Iterator[AllocationRequest]) -> None:
    strategy.allocate(next(requests))


def _cut(of: tuple[MessageQueue, ...], size: int) -> tuple[MessageQueue, ...]:
    return of[size : size + size]


def _moved_queues(report: Report) -> None:
    of = queues(1_024)
    for name, strategy in (
        ("averagely", Averagely()),
        ("averagely_by_circle", AveragelyByCircle()),
        ("consistent_hash", ConsistentHash()),
        ("consistent_hash, 100 virtual nodes", ConsistentHash(100)),
    ):
        moves = []
        for group in (4, 16, 100):
            these = members(group + 1)
            # One in the middle: the last in the order would be the kindest case of some.
            newcomer = these[group // 2]
            fewer = tuple(member for member in these if member != newcomer)
            before, after = _owners(strategy, of, fewer), _owners(strategy, of, these)
            moved = sum(before[queue] != after[queue] != newcomer for queue in of)
            fullest = max(Counter(before.values()).values()) / (len(of) / group)
            moves.append(f"{group} to {group + 1}: {moved / len(of):.0%} (fullest {fullest:.2f})")
        report.figure(name, ", ".join(moves))


def _owners(
    strategy: AllocationStrategy, of: tuple[MessageQueue, ...], these: tuple[str, ...]
) -> dict[MessageQueue, str]:
    return {queue: member for member in these for queue in strategy.allocate(AllocationRequest("G", member, of, these))}


def _queue_choice(report: Report) -> None:
    for count in QUEUES:
        of = queues(count)
        info = PublishInfo(of, rng=random.Random(1))
        tolerant, one_out = LatencyFaultTolerance(), LatencyFaultTolerance()
        first = (of[0].cluster, of[0].broker_name)
        one_out.update(first, topic="orders", latency_seconds=3.0, isolation=True, reachable=False, now=0.0)
        off, on, isolated = QueueSelector(None), QueueSelector(tolerant), QueueSelector(one_out)
        calls: dict[str, Call] = {
            "fault tolerance off": partial(off.select, info, last_broker=None, now=1.0),
            "on": partial(on.select, info, last_broker=None, now=1.0),
            "on, a broker isolated": partial(isolated.select, info, last_broker=None, now=1.0),
            "on, a second try": partial(isolated.select, info, last_broker=first, now=1.0),
        }
        _report_times(
            report, f"{count:,} queues on {len(info.brokers)} brokers", calls, partial(next, itertools.cycle(of))
        )


def _key_choice(report: Report) -> None:
    for count in QUEUES:
        of = queues(count)
        table = ExplicitTable({"vip": of[0]}, prefixes={f"eu-{n}-": of[n] for n in range(9)})
        maps: dict[str, ShardingMap] = {
            "hash ring": HashRing(),
            "modulo, as RocketMQ": ModuloMap(),
            "table, then ring": table,
            "hot key in 4": SubShards({KEYS[0]: 4}),
        }
        key = KEYS[0]
        calls: dict[str, Call] = {name: partial(map_.over(of).queue_of, key) for name, map_ in maps.items()}
        hot = maps["hot key in 4"].over(of)
        calls["hot key in 4 by a second value"] = partial(hot.queue_of, key, second="order-7")
        _report_times(report, f"{count:,} queues", calls, partial(_by_hash, of, key))
        took = _seconds_a_call(partial(HashRing().over, of))
        report.figure(f"{count:,} queues: building the ring", f"{took * 1e3:.1f} ms when the queues change")


def _keys(report: Report) -> None:
    before, after = queues(8, brokers=2), queues(12, brokers=3)
    for name, map_, target in (("hash ring", HashRing(), 0.4), ("modulo", ModuloMap(), None)):
        old, new = map_.over(before), map_.over(after)
        moved = sum(old.queue_of(key) != new.queue_of(key) for key in KEYS) / len(KEYS)
        report.figure(
            f"{name}: keys moved from 8 to 12 queues",
            f"{moved:.1%} of {len(KEYS):,}",
            target="about a third" if target else "",
            is_met=moved < target if target else None,
        )
    for count in (8, 16, 1_024):
        report.progress(f"keys over {count} queues")
        ring = HashRing().over(queues(count))
        loads = Counter(ring.queue_of(f"k{number}") for number in range(KEYS_A_QUEUE * count))
        most, least = max(loads.values()) / KEYS_A_QUEUE, min(loads.values()) / KEYS_A_QUEUE
        report.figure(f"hash ring over {count:,} queues", f"fullest {most:.2f}, emptiest {least:.2f} of the mean")


def _by_hash(of: tuple[MessageQueue, ...], key: str) -> MessageQueue:
    return of[hash(key) % len(of)]


def _report_times(report: Report, what: str, calls: Mapping[str, Call], bare: Call) -> None:
    """Alternate each call with the bare one, so that disturbances of the machine affect both."""
    for name, call in calls.items():
        rounds = [(_seconds_a_call(call), _seconds_a_call(bare)) for _ in range(ROUNDS)]
        took = statistics.median(ours for ours, _ in rounds)
        times = statistics.median(ours / base for ours, base in rounds)
        report.figure(f"{what}: {name}", f"{took * 1e6:,.2f} us, {times:,.{0 if times > 10 else 1}f} times")


def _seconds_a_call(call: Call) -> float:
    timer, calls = timeit.Timer(call), 1
    while (took := timer.timeit(calls)) < ROUND_SECONDS:
        calls *= 2
    return took / calls
