"""docs/queue-planning.md: shares and ratios are computed here, times are those of ``make bench``, rules have tests."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

import pytest

from pointsman.names import MAX_QUEUE_WEIGHT, MAX_QUEUES
from pointsman_agent.config import TopicRow
from pointsman_client import MessageQueue
from pointsman_client.consumer.consumer_options import ConsumerOptions
from pointsman_client.core.allocation import AllocationRequest, AllocationStrategy, Averagely, AveragelyByCircle
from pointsman_client.core.sharding import POINTS_PER_QUEUE, HashRing, ModuloMap, ShardingMap, SubShards
from pointsman_client.core.weighted_queues import new_publish_info
from pointsman_client.producer.producer_options import ProducerOptions
from pointsman_client.redis_streams.options import RedisOptions
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions
from tests.architecture.test_coverage_table import problem

ROOT = Path(__file__).parents[2]
PAGE = ROOT.joinpath("docs/queue-planning.md").read_text(encoding="utf-8")
MIB = 1024 * 1024
CONSUMER, PRODUCER = "tests/integration/client/consumer", "tests/integration/client/producer"
HELD_BY = {
    "A queue is read by one member of a group at a time.": [
        "tests/property/test_allocation.py::test_every_queue_goes_to_exactly_one_member"
    ],
    "Consumers read each new queue from its first message, whatever `consume_from` is": [
        f"{CONSUMER}/test_topic_growth.py::test_a_group_that_is_stopped_while_the_topic_grows_reads_the_new_queues_from_their_first_message",
    ],
    "(`TIMESTAMP`: from that time on.)": [
        f"{CONSUMER}/test_topic_growth.py::test_first_offset_and_timestamp_determine_where_a_new_queue_begins"
    ],
    "moves after they are sent": [
        f"{PRODUCER}/test_parked_keys.py::test_a_key_with_parked_messages_keeps_its_queue_when_queues_are_added",
        "tests/e2e/test_parked_keys.py::test_five_keys_keep_their_order_when_queues_are_added_while_their_messages_are_parked",
    ],
    "With `HashRing` keys move only to the new queues": [
        "tests/unit/client/core/test_sharding.py::test_keys_move_only_to_new_queues"
    ],
    "also gives all of them the same queues, whenever they were started": [
        "tests/unit/client/core/test_message_queue.py::test_an_order_topic_has_the_queues_of_its_configuration_in_its_order_for_any_route",
    ],
    "A change of it moves keys as added and removed queues do": [
        "tests/integration/ctl/test_ctl_changes.py::test_keys_that_an_order_configuration_moves_are_shown_before_it_applies",
    ],
    "A queue that is not in the route is not read": [
        f"{CONSUMER}/test_topic_growth.py::test_a_queue_that_can_only_be_read_is_read_to_its_end_and_one_that_left_the_route_is_not",
    ],
    "Producers stop using the removed queues": [
        f"{PRODUCER}/test_weights.py::test_a_heavy_broker_that_loses_queues_gets_less_and_only_what_it_has",
    ],
    "had parked for them follow their keys": [
        f"{PRODUCER}/test_parked_keys.py::test_parked_messages_follow_their_key_when_their_queue_was_removed"
    ],
    'With `topics.source = "redis"` the streams themselves are the queues': [
        "tests/integration/broker_agent/topic_source/test_topic_source_redis.py::test_a_topic_has_the_queues_of_its_streams_and_is_readable_and_writable",
    ],
    "Messages with the same `second=` value stay in order": [
        "tests/unit/client/core/test_sharding.py::test_a_second_value_keeps_its_sub_shard"
    ],
    "running producers get it with their watch": [
        "tests/integration/broker_agent/registration/test_name_server.py::test_a_weight_in_the_file_reaches_running_clients_after_sighup",
        f"{PRODUCER}/test_weights.py::test_a_weight_that_changes_while_the_producer_runs_applies",
    ],
    "`pointsmanctl diff` shows name servers that have different ones": [
        "tests/unit/ctl/output/test_route_difference.py::test_a_changed_weight_is_a_line_and_a_weight_of_1_is_not_in_one",
    ],
    "`pointsmanctl route orders` shows weights if there are any": [
        "tests/unit/ctl/output/test_output_layout.py::test_weights_have_a_column_where_there_are_some",
    ],
    "are spread between those of others": [
        "tests/unit/client/core/test_weighted_queues.py::test_the_turns_of_a_heavy_broker_are_spread"
    ],
    "A broker that failed is left out whatever its weight, and the others share its messages by their weights": [
        "tests/unit/client/core/test_weighted_queues.py::test_an_isolated_broker_is_avoided_whatever_its_weight",
        "tests/unit/client/core/test_weighted_queues.py::test_a_skipped_brokers_turns_are_divided_by_weight_and_it_comes_back_without_a_burst",
    ],
    "`send_by_key` and `send_to` do not depend on weights": [
        f"{PRODUCER}/test_weights.py::test_a_keys_queue_does_not_depend_on_weights",
        f"{PRODUCER}/test_producer_queues.py::test_a_message_goes_to_the_queue_that_was_named_in_one_try",
    ],
    "the weight that the master registers applies": [
        "tests/integration/namesrv/routes/test_routes.py::test_the_masters_weight_applies_and_a_slaves_when_it_is_promoted",
    ],
    "RocketMQ's routes have no weights": [
        "tests/integration/namesrv/remoting/test_codes.py::test_a_weight_changes_nothing_for_rocketmqs_clients",
    ],
    "or one message more; the rest is pulled again": [
        "tests/unit/client/rocketmq/test_pulling.py::test_all_bodies_of_a_response_have_one_limit"
    ],
    "| largest message |": [f"{PRODUCER}/test_producer.py::test_an_invalid_message_is_refused_before_any_request"],
    "bodies of 4 KiB or more": ["tests/unit/client/rocketmq/test_message_codec.py::test_large_bodies_are_compressed"],
    "`max_length` messages of any size. Memory: length x size, and up to a quarter more": [
        "tests/integration/client/transports/test_redis_transport.py::test_large_messages_are_counted_as_small_ones_are_and_need_memory_for_their_size",
    ],
    "the pull fails, and all pulls from this broker that share its connection fail with it": [
        "tests/integration/client/transports/test_redis_transport.py::test_a_pull_beyond_the_limit_fails_with_those_on_its_connection_until_it_requests_less",
    ],
    "tries the same pull again: its group reads no further until": [
        f"{CONSUMER}/test_large_messages.py::test_a_group_reads_on_after_a_start_with_a_smaller_batch",
    ],
    "and lose their oldest messages at `max_length`": [
        "tests/integration/client/transports/test_transport_contract.py::test_a_queue_keeps_about_its_maximum_length",
    ],
    "Give it a separate topic for some days": [
        "tests/e2e/test_temporary_topic.py::test_a_topic_is_added_drained_and_removed_and_no_message_is_lost_or_overtaken",
    ],
    "A topic that does not exist yet is logged as a warning, and read when it is there": [
        f"{CONSUMER}/test_push_consumer_rebalance.py::test_a_topic_that_is_created_later_is_consumed_from_then_on",
    ],
    "A batch that is delivered again may have other borders": [
        "tests/docs/test_aggregation_example.py::test_parts_of_two_members_are_right_after_one_of_them_ended_between_add_and_commit",
    ],
    "or was stored twice by a retried send": [
        "tests/docs/test_aggregation_example.py::test_any_redelivery_from_an_earlier_offset_leaves_the_totals",
    ],
    "a crash between `add` and `commit` delivers the messages again": [
        "tests/docs/test_aggregation_example.py::test_the_program_of_the_page_commits_what_it_has_added",
    ],
}
"""The rules of the page that no test here computes, with their tests. What is left is advice."""
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


def test_four_queues_per_member_leave_no_member_more_than_a_quarter_above_the_mean() -> None:
    assert "plan four queues for each member" in PAGE
    assert "no member has more than a quarter above the mean" in PAGE
    for most in range(1, 41):
        everywhere = queues(4 * most)
        for members in range(1, most + 1):
            names = tuple(f"member-{number:02}" for number in range(members))
            largest = max(len(Averagely().allocate(AllocationRequest("g", name, everywhere, names))) for name in names)
            assert largest * members <= 1.25 * len(everywhere)


def test_the_same_members_get_one_queue_more_in_every_topic() -> None:
    assert "the same members get one more in every topic" in PAGE
    names = ("x", "y", "z", "zz")
    for topic in ("orders", "bills", "refunds"):
        five = tuple(MessageQueue(topic, "c1", "a", number) for number in range(5))
        shares = [len(Averagely().allocate(AllocationRequest("g", name, five, names))) for name in names]
        assert shares == [2, 1, 1, 1]


def test_times_are_those_that_the_benchmarks_measured() -> None:
    readme = ROOT.joinpath("client/README.md").read_text(encoding="utf-8")
    measured = re.search(
        r"1,024 queues and 1,000 members, a rebalance \| (\d+ us), ([\d.]+ ms) \((\d+ ms) when", readme
    )
    assert measured
    average, ring, changed = measured.groups()
    assert f"share in {average}\n  (`consistent_hash`: {ring}, {changed} when the members changed)" in PAGE
    source = ROOT.joinpath("client/pointsman_client/core/sharding.py").read_text(encoding="utf-8")
    building = re.search(r"which is 2 ms with 16 queues and ([\d.]+ s) with 1,024", source)
    assert building
    assert (
        f"1,024 queues build in {building[1]}; `HashRing(points_per_queue={POINTS_PER_QUEUE // 4})` in a quarter"
        in PAGE
    )


def test_limits_are_those_of_the_code() -> None:
    assert f"| queues of a topic on one broker | {MAX_QUEUES:,} |" in PAGE
    assert f"| `queue_weight` | 1 to {MAX_QUEUE_WEIGHT} |" in PAGE
    assert "(default)" in PAGE
    assert TopicRow(name="orders", read_queues=1, write_queues=1).queue_weight == 1


def test_sizes_of_messages_are_those_of_the_code() -> None:
    redis, rocketmq = RedisOptions(), RocketmqOptions()
    largest = ProducerOptions(name_servers="ns1:9876").max_message_size
    assert f"| largest message | {largest // MIB} MiB, or the producer's `max_message_size` |" in PAGE
    assert rocketmq.compress_from_bytes is not None
    assert f"bodies of {rocketmq.compress_from_bytes // 1024} KiB or more, by `RocketmqTransport`" in PAGE
    assert not [field.name for field in fields(redis) if "compress" in field.name]
    assert f"up to `max_reply_bytes` ({redis.max_reply_bytes // MIB} MiB)" in PAGE
    assert f"up to `max_body_bytes` ({rocketmq.max_body_bytes // MIB} MiB)" in PAGE
    assert redis.max_length is not None
    gigabytes = redis.max_length * 256 * 1024 * 1.25 / 1e9
    assert f"{gigabytes:.0f} GB for {redis.max_length:,} messages of 256 KiB" in PAGE
    batch = ConsumerOptions(name_servers="ns1:9876", group="g").pull_batch_size
    assert f"The defaults are enough: {batch} x {largest // MIB} MiB are {batch * largest // MIB} MiB." in PAGE
    assert batch * largest < redis.max_reply_bytes


def test_each_rule_of_the_page_is_held_by_tests_that_exist() -> None:
    wrong = [f"not in the page: {rule}" for rule in HELD_BY if rule not in " ".join(PAGE.split())]
    wrong += [f"{test}: {why}" for tests in HELD_BY.values() for test in tests if (why := problem("", test))]
    assert not wrong, "\n".join(wrong)
