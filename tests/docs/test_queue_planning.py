"""Each share and ratio of docs/queue-planning.md is computed here; its times are those of ``make bench``."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from pointsman_client import MessageQueue
from pointsman_client.core.allocation import AllocationRequest, AllocationStrategy, Averagely, AveragelyByCircle
from pointsman_client.core.sharding import HashRing, ModuloMap, ShardingMap, SubShards
from pointsman_client.core.weighted_queues import new_publish_info

PAGE = Path(__file__).parents[2].joinpath("docs/queue-planning.md").read_text(encoding="utf-8")
KEYS = [f"{random.Random(number).getrandbits(64):x}" for number in range(20_000)]
MOVED = re.findall(r"^\| (\d+ to \d+|doubled) \| (\d+) % \| (\d+) % \|$", PAGE, re.MULTILINE)


def queues(count: int) -> tuple[MessageQueue, ...]:
    return tuple(MessageQueue("orders", "c1", "a", number) for number in range(count))


def moved(sharding: ShardingMap, before: int, after: int) -> float:
    """The percentage of keys that another queue has."""
    old, new = sharding.over(queues(before)), sharding.over(queues(after))
    return 100 * sum(old.queue_of(key) != new.queue_of(key) for key in KEYS) / len(KEYS)


def fullest(chosen: Iterable[MessageQueue], count: int) -> float:
    """Messages of the fullest queue, as a multiple of the mean."""
    messages = Counter(chosen)
    return max(messages.values()) * count / messages.total()


def test_all_rows_of_the_table_are_compared() -> None:
    assert [row[0] for row in MOVED] == ["8 to 12", "16 to 20", "64 to 68", "doubled"]


@pytest.mark.parametrize(("growth", "by_ring", "by_modulo"), MOVED)
def test_the_share_of_keys_that_move(growth: str, by_ring: str, by_modulo: str) -> None:
    before, after = (16, 32) if growth == "doubled" else map(int, growth.split(" to "))
    assert moved(HashRing(), before, after) == pytest.approx(float(by_ring), abs=4)
    assert moved(ModuloMap(), before, after) == pytest.approx(float(by_modulo), abs=2)


def test_a_large_key_and_its_sub_shards() -> None:
    assert "With 30 % of all messages and 8 queues, its queue gets 3.1 times the mean." in PAGE
    assert '`SubShards({"big-customer": 4})`: 1.35 times.' in PAGE
    seconds = [f"order-{number}" for number in range(3 * len(KEYS) // 7)]
    for sharding, times in ((ModuloMap(), 3.1), (SubShards({"big-customer": 4}, others=ModuloMap()), 1.35)):
        of_key = sharding.over(queues(8))
        chosen = [of_key.queue_of(key) for key in KEYS]
        chosen += [of_key.queue_of("big-customer", second=second) for second in seconds]
        assert fullest(chosen, 8) == pytest.approx(times, abs=0.08)


def test_the_fullest_queue_of_a_ring_with_many_queues() -> None:
    assert "with a fullest queue of 1.37 times the mean instead of 1.20" in PAGE
    for ring, times in ((HashRing(points_per_queue=64), 1.37), (HashRing(), 1.20)):
        of_key = ring.over(queues(1_024))
        assert fullest((of_key.queue_of(f"key-{n}") for n in range(600_000)), 1_024) == pytest.approx(times, abs=0.12)


@pytest.mark.parametrize(("strategy", "brokers"), [(Averagely(), {"a"}), (AveragelyByCircle(), {"a", "b"})])
def test_by_circle_a_member_has_queues_of_all_brokers(strategy: AllocationStrategy, brokers: set[str]) -> None:
    everywhere = tuple(MessageQueue("orders", "c1", broker, number) for broker in "ab" for number in range(4))
    own = strategy.allocate(AllocationRequest("g", "x", everywhere, ("x", "y")))
    assert {queue.broker_name for queue in own} == brokers


def test_the_shares_of_a_broker_with_a_weight() -> None:
    brokers = {"broker-a": 3, "broker-b": 1}
    four = tuple(MessageQueue("orders", "c1", name, number) for name in brokers for number in range(4))
    weights = {("c1", name): weight for name, weight in brokers.items()}
    info = new_publish_info(four, weights, rng=random.Random(1))
    sent = Counter(info.next() for _ in range(16_000))
    for name, weight in brokers.items():
        of_broker = [sent[queue] / 160 for queue in four if queue.broker_name == name]
        each, whole = round(of_broker[0]), round(sum(of_broker))
        assert re.search(rf"^\| {name} \| 4 \| {weight}[^|]* \| {each} % \| {whole} % \|$", PAGE, re.MULTILINE)
