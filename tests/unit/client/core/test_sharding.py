"""From key to queue: keys moved by growth, keys fixed by a table, spreading a hot key."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.sharding import (
    ExplicitTable,
    HashRing,
    KeyQueues,
    ModuloMap,
    OrderKey,
    QueueOfKey,
    ShardingMap,
    SubShards,
    java_hash_code,
)
from pointsman_client.errors import InvalidOptionError
from tests.kit.client.queues import queues, short

KEYS = [f"customer-{number}" for number in range(6_000)]
EIGHT = queues(a=4, b=4)
OF_BILLS = MessageQueue("bills", "c1", "a", 0)
TWELVE = queues(a=4, b=4, c=4)


def moved(map_: ShardingMap, before: tuple[MessageQueue, ...], after: tuple[MessageQueue, ...]) -> list[MessageQueue]:
    """The new queues of the keys that moved."""
    old, new = map_.over(before), map_.over(after)
    return [new.queue_of(key) for key in KEYS if new.queue_of(key) != old.queue_of(key)]


def test_w14_growth_from_8_to_12_queues_moves_a_third_of_the_keys_and_with_modulo_two_thirds_or_more() -> None:
    assert 0.28 < len(moved(HashRing(), EIGHT, TWELVE)) / len(KEYS) < 0.39
    assert len(moved(ModuloMap(), EIGHT, TWELVE)) / len(KEYS) > 0.64


@pytest.mark.parametrize("grown", [TWELVE, queues(a=6, b=6)], ids=["a-broker-more", "more-queues-on-each-broker"])
def test_keys_move_only_to_new_queues(grown: tuple[MessageQueue, ...]) -> None:
    assert set(moved(HashRing(), EIGHT, grown)) == set(grown) - set(EIGHT)


def test_when_queues_are_removed_only_their_keys_move() -> None:
    ring, less = HashRing().over(TWELVE), HashRing().over(EIGHT)
    assert all(less.queue_of(key) == ring.queue_of(key) for key in KEYS if ring.queue_of(key) in EIGHT)


def test_neither_the_order_of_the_queues_nor_the_topic_matters_to_the_ring() -> None:
    shuffled = random.Random(1).sample(EIGHT, len(EIGHT))
    ring, other = HashRing().over(EIGHT), HashRing().over(shuffled)
    payments = HashRing().over(queues("payments", a=4, b=4))
    assert [ring.queue_of(key) for key in KEYS] == [other.queue_of(key) for key in KEYS]
    assert short(ring.queue_of(key) for key in KEYS) == short(payments.queue_of(key) for key in KEYS)


def test_the_ring_is_the_same_in_every_process_and_version() -> None:
    ring = HashRing().over(TWELVE)
    assert short(ring.queue_of(f"key-{number}") for number in range(8)) == "a:0 b:3 a:1 b:3 c:1 a:1 c:0 c:0"


def test_the_same_broker_name_in_two_clusters_is_two_places() -> None:
    both = (*queues("orders", "c1", a=4), *queues("orders", "c2", a=4))
    ring = HashRing().over(both)
    assert {ring.queue_of(key) for key in KEYS} == set(both)


@pytest.mark.parametrize(("count", "bound"), [(8, 1.2), (16, 1.25)])
def test_the_ring_spreads_keys_evenly(count: int, bound: float) -> None:
    ring = HashRing().over(queues(a=count // 2, b=count // 2))
    loads = Counter(ring.queue_of(f"k{number}") for number in range(20_000))
    assert max(loads.values()) / (20_000 / count) < bound


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),
    ],
)
def test_javas_hash_code_counts_utf_16_units(text: str, code: int) -> None:
    assert java_hash_code(text) == code


def test_modulo_is_rocketmqs_select_message_queue_by_hash() -> None:
    modulo = ModuloMap().over(queues(a=7))
    assert [modulo.queue_of(key).queue_id for key in ("", "a", "hello", "polygenelubricants")] == [
        0,
        97 % 7,
        99162322 % 7,
        2**31 % 7,
    ]


def test_a_table_maps_keys_and_prefixes_and_the_longest_prefix_wins() -> None:
    one, two, three = queues(z=3)
    table = ExplicitTable(
        {"vip-1": one}, prefixes={"vip-": two, "vip-eu-": three, "": MessageQueue("payments", "c1", "z", 0)}
    ).over(EIGHT)
    assert [table.queue_of(key) for key in ("vip-1", "vip-2", "vip-eu-1", "vip-1x")] == [one, two, three, two]
    ring = HashRing().over(EIGHT)
    assert [table.queue_of(key) for key in KEYS] == [ring.queue_of(key) for key in KEYS]


def test_a_table_keeps_its_queue_when_the_route_no_longer_has_it_and_ignores_other_topics() -> None:
    fixed = MessageQueue("orders", "c1", "gone", 7)
    table = ExplicitTable({"vip": fixed}, fallback=ModuloMap())
    assert table.over(EIGHT).queue_of("vip") == fixed
    payments = queues("payments", a=4)
    assert table.over(payments).queue_of("vip") == ModuloMap().over(payments).queue_of("vip")


def test_a_hot_key_is_spread_over_as_many_queues_as_it_has_sub_shards_and_others_stay() -> None:
    spread = SubShards({"big": 4}).over(TWELVE)
    turns = [spread.queue_of("big") for _ in range(8)]
    assert turns[:4] == turns[4:]
    assert len(set(turns)) == 4
    ring = HashRing().over(TWELVE)
    assert [spread.queue_of(key, second="x") for key in KEYS] == [ring.queue_of(key) for key in KEYS]


def test_a_second_value_keeps_its_sub_shard() -> None:
    spread = SubShards({"big": 4}).over(TWELVE)
    seconds = [f"order-{number}" for number in range(1_000)]
    once = [spread.queue_of("big", second=second) for second in seconds]
    assert [spread.queue_of("big", second=second) for second in seconds] == once
    loads = Counter(once)
    assert len(loads) == 4
    assert max(loads.values()) < 1.25 * len(seconds) / 4


def test_growth_moves_only_the_share_of_new_queues_of_a_hot_key() -> None:
    before, after = (SubShards({"big": 4}).over(of) for of in (EIGHT, TWELVE))
    seconds = [f"order-{number}" for number in range(1_000)]
    kept = {before.queue_of("big") for _ in range(4)} & {after.queue_of("big") for _ in range(4)}
    stayed = [second for second in seconds if after.queue_of("big", second=second) in kept]
    assert stayed
    went = [s for s in stayed if before.queue_of("big", second=s) != after.queue_of("big", second=s)]
    assert all(before.queue_of("big", second=second) not in kept for second in went)


def test_more_sub_shards_than_queues_are_all_queues() -> None:
    spread = SubShards({"big": 99}, others=ModuloMap()).over(EIGHT)
    assert {spread.queue_of("big") for _ in range(8)} == set(EIGHT)
    assert spread.queue_of("a") == ModuloMap().over(EIGHT).queue_of("a")


@pytest.mark.parametrize(
    "outer",
    [
        ExplicitTable({}, prefixes={"vip-": EIGHT[0]}, fallback=SubShards({"big": 2})),
        SubShards({"bigger": 4}, others=SubShards({"big": 2})),
    ],
    ids=["table", "sub-shards"],
)
def test_sub_shards_inside_another_map_get_the_second_value(outer: ShardingMap) -> None:
    seconds = [str(number) for number in range(20)]
    whole, spread = outer.over(EIGHT), SubShards({"big": 2}).over(EIGHT)
    assert [whole.queue_of("big", second=each) for each in seconds] == [
        spread.queue_of("big", second=each) for each in seconds
    ]


class _OwnMap:
    """A map of an application: it does not say which keys have sub-shards."""

    def over(self, queues: Sequence[MessageQueue]) -> QueueOfKey:
        return HashRing().over(queues)


@pytest.mark.parametrize(
    ("map_", "keys_with_sub_shards"),
    [
        (HashRing(), ""),
        (ModuloMap(), ""),
        (SubShards({"big": 2}), "big"),
        (SubShards({"bigger": 4}, others=SubShards({"big": 2})), "big bigger"),
        (ExplicitTable({"big": EIGHT[0]}, fallback=SubShards({"big": 2, "bigger": 2})), "bigger"),
        (ExplicitTable({}, prefixes={"big": EIGHT[0]}, fallback=SubShards({"big": 2, "bigger": 2})), ""),
        (ExplicitTable({"big": OF_BILLS}, prefixes={"b": OF_BILLS}, fallback=SubShards({"big": 2})), "big"),
        (_OwnMap(), "big bigger vip"),
        (ExplicitTable({"vip": EIGHT[0]}, fallback=_OwnMap()), "big bigger"),
    ],
)
def test_a_sub_shard_is_kept_in_order_by_itself_and_other_keys_whatever_their_second_value(
    map_: ShardingMap, keys_with_sub_shards: str
) -> None:
    maps = KeyQueues(map_)
    for key in ("big", "bigger", "vip"):
        shard = maps.order_key("orders", key, "7")
        if key not in keys_with_sub_shards.split():
            assert shard == maps.order_key("orders", key, None) == OrderKey(key)
        else:
            assert shard == OrderKey(key, "7")


def test_a_hot_key_without_a_second_value_has_no_order_to_keep() -> None:
    assert KeyQueues(SubShards({"big": 2})).order_key("orders", "big", None) is None
    assert KeyQueues(_OwnMap()).order_key("orders", "big", None) == OrderKey("big")


@pytest.mark.parametrize("map_", [HashRing(), ModuloMap(), ExplicitTable({}), SubShards({})])
def test_a_map_over_no_queues_is_refused(map_: ShardingMap) -> None:
    with pytest.raises(InvalidOptionError, match="queues"):
        map_.over(())


def test_settings_out_of_bounds_are_refused_with_their_name() -> None:
    with pytest.raises(InvalidOptionError, match="points_per_queue = 0 must be at least 1"):
        HashRing(points_per_queue=0)
    with pytest.raises(InvalidOptionError, match=r"'big'.* = 0 must be at least 1"):
        SubShards({"big": 0})
