"""Lag of groups on a draining broker: which queues are queried, and in which batches."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pointsman.clock import SystemClock
from pointsman.group_topics import retry_topic
from pointsman_agent.core.measured_queue_stats import QueueEnd
from pointsman_agent.core.offsets import Offsets
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.topic_set import TopicConfig, TopicSet
from pointsman_agent.drain.group_lags import SLICE, GroupLags
from pointsman_agent.queue_stats.collector import MAX_QUEUES
from pointsman_agent.queue_stats.ends import QueueEndsError

READ_WRITE, WRITE = 6, 2


@dataclass
class Broker:
    """A broker whose queue ends the test sets, and what groups committed on it."""

    topics: list[TopicConfig] = field(default_factory=lambda: [TopicConfig("orders", 2, 2, READ_WRITE)])
    found: dict[QueueKey, QueueEnd] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=Offsets)
    members: dict[str, int] | None = field(default_factory=dict)
    asked: list[Collection[QueueKey]] = field(default_factory=list)
    problem: str = ""

    def __post_init__(self) -> None:
        topics = TopicSet.from_content(self.topics, state_version=0)
        self.lags = GroupLags(
            self,
            topics=lambda: topics,
            offsets=self.offsets,
            members=lambda: self.members,
            clock=SystemClock(),
        )

    def put(self, topic: str, queue_id: int, end: int) -> None:
        self.found[QueueKey(topic, queue_id)] = QueueEnd(0, end, end)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.offsets.commit(group, {QueueKey(topic, queue_id): offset})

    async def ends(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, QueueEnd]:
        if self.problem:
            raise QueueEndsError(self.problem)
        self.asked.append(queues)
        return {queue: self.found[queue] for queue in queues if queue in self.found}

    async def max_offsets(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, int]:
        raise NotImplementedError

    async def lag_of(self) -> dict[str, tuple[int, int]]:
        report = await self.lags.measure()
        assert report is not None
        return {each.group: (each.lag, each.retry_lag) for each in report.groups}


async def test_each_group_has_the_lag_of_all_queues_that_it_committed() -> None:
    broker = Broker(members={"billing": 2, "audit": 1})
    broker.put("orders", 0, 10)
    broker.put("orders", 1, 5)
    for group, offset in (("billing", 4), ("audit", 9)):
        broker.commit(group, "orders", 0, offset)
    broker.commit("billing", "orders", 1, 5)

    assert await broker.lag_of() == {"billing": (6, 0), "audit": (1, 0)}


async def test_a_queue_added_to_a_topic_is_unread_from_its_first_message_by_each_group_that_began_the_topic() -> None:
    broker = Broker(topics=[TopicConfig("orders", 4, 4, READ_WRITE)], members={"billing": 1})
    broker.commit("billing", "orders", 0, 10)
    for queue_id, end in enumerate((10, 0, 5, 7)):
        broker.put("orders", queue_id, end)
    for group in ("billing", "stopped"):
        broker.offsets.begin(group, {"orders": 1})

    assert await broker.lag_of() == {"billing": (12, 0), "stopped": (22, 0)}


async def test_retry_queues_count_also_before_their_group_committed_anything_there() -> None:
    broker = Broker(members={"young": 1})
    broker.commit("billing", "orders", 0, 0)
    broker.put(retry_topic("billing"), 0, 3)
    broker.commit("billing", retry_topic("billing"), 0, 1)
    broker.put(retry_topic("billing"), 15, 4)
    broker.put(retry_topic("young"), 2, 1)

    assert await broker.lag_of() == {"billing": (6, 6), "young": (1, 1)}


async def test_a_queue_without_read_permission_is_not_waited_for() -> None:
    broker = Broker([TopicConfig("orders", 1, 4, READ_WRITE), TopicConfig("sealed", 4, 4, WRITE)], members={"g": 1})
    for topic, queue_id in (("orders", 1), ("sealed", 0), ("deleted", 0)):
        broker.put(topic, queue_id, 9)
        broker.commit("g", topic, queue_id, 0)

    assert await broker.lag_of() == {}


async def test_where_the_broker_does_not_respond_the_lag_is_unknown() -> None:
    broker = Broker(problem="no response")
    broker.commit("g", "orders", 0, 0)

    assert await broker.lags.measure() is None


async def test_a_broker_with_thousands_of_queues_is_queried_in_batches_and_for_each_queue_once() -> None:
    broker = Broker([TopicConfig(f"t{number}", 8, 8, READ_WRITE) for number in range(500)], members={"a": 1, "b": 1})
    for number in range(500):
        for queue_id in range(8):
            broker.put(f"t{number}", queue_id, 3)
            for group in ("a", "b"):
                broker.commit(group, f"t{number}", queue_id, 1)

    assert await broker.lag_of() == {"a": (8_000, 0), "b": (8_000, 0)}
    assert max(map(len, broker.asked)) <= SLICE
    asked = [queue for queues in broker.asked for queue in queues if queue.topic.startswith("t")]
    assert len(asked) == len(set(asked)) == 4_000


async def test_beyond_its_bound_queues_are_counted_as_not_measured() -> None:
    topics = [TopicConfig(f"t{number}", 1_000, 1_000, READ_WRITE) for number in range(51)]
    broker = Broker(topics, members={"a": 1})
    for each in topics:
        broker.offsets.commit("a", {QueueKey(each.topic, queue_id): 0 for queue_id in range(1_000)})

    report = await broker.lags.measure()

    assert report is not None
    assert report.unmeasured_queue_count == 1_000 + 16
    assert sum(map(len, broker.asked)) == MAX_QUEUES
