"""OffsetService on real gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from prometheus_client import CollectorRegistry

from pointsman.manual_clock import ManualClock
from pointsman.v1 import offset_service_pb2 as wire
from pointsman.v1.offset_service_pb2_grpc import OffsetServiceStub
from pointsman_agent.core.offsets import BEGIN_ID, MAX_OFFSET, OffsetKey, Offsets
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.replica_offsets import ReplicaOffsets
from pointsman_agent.core.topic_set import TopicSet
from pointsman_agent.offsets.flusher import Flusher, OffsetMetrics
from pointsman_agent.offsets.servicer import OffsetServicer
from tests.kit.agent.memory_store import MemoryStore
from tests.kit.agent.services import TableOfEnds, served, topic_set
from tests.kit.refusal import refusal_of

if TYPE_CHECKING:
    from pointsman.v1.offset_service_pb2_grpc import OffsetServiceAsyncStub  # of the stubs alone


def stub_of(channel: grpc.aio.Channel) -> OffsetServiceAsyncStub:
    """The service at the other end."""
    return OffsetServiceStub(channel)


@dataclass
class Serving:
    """The service and what it uses."""

    stub: OffsetServiceAsyncStub
    offsets: Offsets
    store: MemoryStore
    flusher: Flusher
    ends: TableOfEnds = field(default_factory=TableOfEnds)
    topics: TopicSet = field(default_factory=lambda: topic_set(orders=2_000, bills=2))

    async def commit(self, offsets: Mapping[int, int], *, group: str = "g", reset: bool = False) -> dict[int, int]:
        request = wire.CommitOffsetsRequest(group=group, offsets=of_orders(offsets), reset=reset)
        answer: wire.CommitOffsetsResponse = await self.stub.CommitOffsets(request)
        return {each.queue_id: each.offset for each in answer.kept}

    async def begin(self, moments: Mapping[str, float | None], *, group: str = "g") -> dict[str, float]:
        request = wire.BeginTopicsRequest(group=group)
        for topic, seconds in moments.items():
            named = request.topics.add(topic=topic)
            if seconds is not None:
                named.first_consumed_at.FromMilliseconds(round(seconds * 1000))
        answer: wire.BeginTopicsResponse = await self.stub.BeginTopics(request)
        return {each.topic: each.first_consumed_at.ToMilliseconds() / 1000 for each in answer.topics}

    async def get(self, *ids: int, group: str = "g") -> dict[int, int]:
        request = wire.GetOffsetsRequest(group=group, queues=of_orders(dict.fromkeys(ids, 0)))
        answer: wire.GetOffsetsResponse = await self.stub.GetOffsets(request)
        return {each.queue_id: each.offset for each in answer.offsets}


def of_orders(offsets: Mapping[int, int]) -> list[wire.QueueOffset]:
    return [wire.QueueOffset(topic="orders", queue_id=queue_id, offset=n) for queue_id, n in offsets.items()]


@pytest.fixture
async def serving(clock: ManualClock) -> AsyncIterator[Serving]:
    """Loaded and empty; 1,500 offsets at most, no end of a queue is known."""
    offsets, store = Offsets(max_offsets=1_500), MemoryStore()
    flusher = Flusher(offsets, store, interval=5.0, clock=clock, metrics=OffsetMetrics(CollectorRegistry()))
    await flusher.refresh()
    ends = TableOfEnds()
    servicer = OffsetServicer(
        ReplicaOffsets(offsets), flushers=[flusher], clock=clock, topics=lambda: held.topics, ends=ends
    )
    async with served(servicer.service()) as channel:
        held = Serving(stub_of(channel), offsets, store, flusher, ends)
        yield held
    offsets.check_invariants()


async def test_what_is_committed_is_read_again_and_never_goes_backwards(serving: Serving) -> None:
    assert await serving.commit({0: 5, 1: MAX_OFFSET}) == {}
    assert await serving.commit({0: 4, 1: 0, 2: 7}) == {0: 5, 1: MAX_OFFSET}
    assert await serving.get(0, 1, 2, 3) == {0: 5, 1: MAX_OFFSET, 2: 7}
    assert await serving.get(0, group="other") == {}


async def test_a_reset_goes_backwards_and_keeps_nothing(serving: Serving) -> None:
    await serving.commit({0: 5})
    assert await serving.commit({0: 2}, reset=True) == {}
    assert await serving.get(0) == {0: 2}


async def test_an_offset_beyond_the_end_is_out_of_range_and_nothing_of_its_batch_is_committed(serving: Serving) -> None:
    serving.ends.table = {QueueKey("orders", 0): 10, QueueKey("orders", 1): 10}
    request = wire.CommitOffsetsRequest(group="g", offsets=of_orders({2: 99, 0: 10, 1: 11}))
    refusal = await refusal_of(serving.stub.CommitOffsets(request))
    assert refusal.status is grpc.StatusCode.OUT_OF_RANGE
    assert refusal.message == "offsets[2].offset is beyond the end of queue 1 of topic 'orders', which is 10: 11"
    assert refusal.fields == ["offsets[2].offset"]
    assert await serving.get(0, 1, 2) == {}
    # The end itself is the next message to read; a queue whose end is unknown accepts any offset.
    assert await serving.commit({2: 99, 0: 10}) == {}


async def test_a_reset_beyond_the_end_is_refused_as_well(serving: Serving) -> None:
    serving.ends.table = {QueueKey("orders", 0): 10}
    request = wire.CommitOffsetsRequest(group="g", offsets=of_orders({0: 11}), reset=True)
    assert (await refusal_of(serving.stub.CommitOffsets(request))).status is grpc.StatusCode.OUT_OF_RANGE


async def test_a_broker_that_does_not_report_its_queue_ends_blocks_no_commit(serving: Serving) -> None:
    serving.ends.problem = "redis is away"
    assert await serving.commit({0: 5}) == {}
    listed = await serving.stub.ListOffsets(wire.ListOffsetsRequest())
    assert not listed.progress[0].HasField("max_offset")


async def test_errors_of_many_offsets_beyond_their_ends_fit_into_one_response(serving: Serving) -> None:
    serving.ends.table = {QueueKey("orders", n): 1 for n in range(1_000)}
    request = wire.CommitOffsetsRequest(group="g", offsets=of_orders(dict.fromkeys(range(1_000), MAX_OFFSET)))
    refusal = await refusal_of(serving.stub.CommitOffsets(request))
    assert refusal.status is grpc.StatusCode.OUT_OF_RANGE
    assert refusal.details.violations[-1].description == "and 995 more errors"


@pytest.mark.parametrize(
    ("request_", "field_", "said"),
    [
        (wire.CommitOffsetsRequest(), "group", "must not be empty: ''"),
        (wire.CommitOffsetsRequest(group="a/b"), "group", "'a/b'"),
        (
            wire.CommitOffsetsRequest(group="g", offsets=[wire.QueueOffset(topic="bills", queue_id=2)]),
            "offsets[0].queue_id",
            "is beyond the 2 queues of topic 'bills': 2",
        ),
        (
            wire.CommitOffsetsRequest(group="g", offsets=[wire.QueueOffset(topic="other")]),
            "offsets[0].topic",
            "is not a topic of this broker: 'other'",
        ),
        (
            wire.CommitOffsetsRequest(group="g", offsets=[wire.QueueOffset(topic="t t")]),
            "offsets[0].topic",
            "'t t'",
        ),
        (
            wire.CommitOffsetsRequest(group="g", offsets=[*of_orders({1: 5}), *of_orders({1: 6})]),
            "offsets[1]",
            "repeats offsets[0]: queue 1 of 'orders'",
        ),
        (
            wire.CommitOffsetsRequest(group="g", offsets=of_orders(dict.fromkeys(range(1_001), 0))),
            "offsets",
            "has 1001 entries, at most 1000 are allowed",
        ),
    ],
)
async def test_invalid_input_is_refused_with_field_and_value(
    serving: Serving, request_: wire.CommitOffsetsRequest, field_: str, said: str
) -> None:
    refusal = await refusal_of(serving.stub.CommitOffsets(request_))
    assert (refusal.status, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, [field_])
    assert said in refusal.message
    assert len(serving.offsets) == 0


async def test_a_request_with_too_many_queues_is_refused_for_reads_too(serving: Serving) -> None:
    request = wire.GetOffsetsRequest(group="g", queues=of_orders(dict.fromkeys(range(1_001), 0)))
    refusal = await refusal_of(serving.stub.GetOffsets(request))
    assert (refusal.status, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["queues"])


async def test_the_offset_of_a_deleted_queue_can_still_be_read(serving: Serving) -> None:
    await serving.commit({5: 1})
    serving.topics = topic_set(bills=1)
    assert await serving.get(5) == {5: 1}


async def test_offsets_beyond_the_bound_are_refused_and_named(serving: Serving) -> None:
    await serving.commit(dict.fromkeys(range(1_000), 1))
    request = wire.CommitOffsetsRequest(group="h", offsets=of_orders(dict.fromkeys(range(501), 1)))
    refusal = await refusal_of(serving.stub.CommitOffsets(request))
    assert refusal.status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refusal.details.facts == {"limit": "offsets", "bound": "1500"}
    assert await serving.get(0, group="h") == {}


async def test_offsets_are_listed_in_pages_with_the_ends_that_are_known(serving: Serving) -> None:
    await serving.commit({10: 3, 9: 4}, group="h")
    await serving.commit({1: 5, 3: 6})
    serving.ends.table = {QueueKey("orders", 1): 50, QueueKey("orders", 10): 30}

    pages, token = [], ""
    while True:
        page = await serving.stub.ListOffsets(wire.ListOffsetsRequest(page_size=3, page_token=token))
        pages.append(
            [
                (
                    row.group,
                    row.committed.queue_id,
                    row.committed.offset,
                    row.max_offset if row.HasField("max_offset") else None,
                )
                for row in page.progress
            ]
        )
        token = page.next_page_token
        if not token:
            break

    assert pages == [[("g", 1, 5, 50), ("g", 3, 6, None), ("h", 9, 4, None)], [("h", 10, 3, 30)]]
    of_group = await serving.stub.ListOffsets(wire.ListOffsetsRequest(group="h", page_size=1))
    assert [row.committed.queue_id for row in of_group.progress] == [9]
    rest = await serving.stub.ListOffsets(wire.ListOffsetsRequest(group="h", page_token=of_group.next_page_token))
    assert [row.committed.queue_id for row in rest.progress] == [10]


async def test_a_list_reports_the_age_of_the_last_flush(serving: Serving, clock: ManualClock) -> None:
    async def said() -> float:
        return (await serving.stub.ListOffsets(wire.ListOffsetsRequest())).durable_within.ToMilliseconds() / 1000

    assert await said() == 5.0
    serving.store.problem = "the disk is full"
    await serving.commit({0: 1})
    clock.now += 60.0
    await serving.flusher.flush()
    assert await said() == 60.0
    serving.store.problem = ""
    await serving.flusher.flush()
    assert await said() == 5.0


@pytest.mark.parametrize(
    ("request_", "field_"),
    [
        (wire.ListOffsetsRequest(group="a b"), "group"),
        (wire.ListOffsetsRequest(page_size=1_001), "page_size"),
        (wire.ListOffsetsRequest(page_token="g/orders"), "page_token"),
    ],
)
async def test_a_page_that_cannot_be_is_refused(
    serving: Serving, request_: wire.ListOffsetsRequest, field_: str
) -> None:
    refusal = await refusal_of(serving.stub.ListOffsets(request_))
    assert (refusal.status, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, [field_])


async def test_nothing_is_served_or_committed_before_the_store_is_read(clock: ManualClock) -> None:
    offsets, store = Offsets(), MemoryStore()
    flusher = Flusher(offsets, store, interval=5.0, clock=clock, metrics=OffsetMetrics(CollectorRegistry()))
    servicer = OffsetServicer(
        ReplicaOffsets(offsets), flushers=[flusher], clock=clock, topics=lambda: topic_set(orders=1), ends=TableOfEnds()
    )
    store.table = {OffsetKey("g", "orders", 0): 7}
    store.problem = "redis 10.0.0.1:6379: Connection refused"
    async with served(servicer.service()) as channel:
        stub = stub_of(channel)
        for call in (
            lambda: stub.CommitOffsets(wire.CommitOffsetsRequest(group="g", offsets=of_orders({0: 1}))),
            lambda: stub.GetOffsets(wire.GetOffsetsRequest(group="g", queues=of_orders({0: 0}))),
            lambda: stub.ListOffsets(wire.ListOffsetsRequest()),
        ):
            refusal = await refusal_of(call())
            assert refusal.status is grpc.StatusCode.UNAVAILABLE
            assert (refusal.details.code, refusal.details.facts) == ("NOT_READY", {"state": "loading"})
        await flusher.refresh()
        assert "Connection refused" in (await refusal_of(stub.ListOffsets(wire.ListOffsetsRequest()))).message

        store.problem = ""
        await flusher.refresh()
        got = await stub.GetOffsets(wire.GetOffsetsRequest(group="g", queues=of_orders({0: 0})))
    assert got.offsets[0].offset == 7


# --- when groups began topics -------------------------------------------------------------------------------------


async def test_the_earliest_moment_wins_and_a_lookup_records_nothing(serving: Serving) -> None:
    assert await serving.begin({"orders": None}) == {}
    assert await serving.begin({"orders": 20.5, "bills": None}) == {"orders": 20.5}
    assert await serving.begin({"orders": 30.0}) == {"orders": 20.5}
    assert await serving.begin({"orders": 10.0, "bills": 15.0}) == {"orders": 10.0, "bills": 15.0}
    assert await serving.begin({"orders": None, "bills": None}) == {"orders": 10.0, "bills": 15.0}
    assert await serving.begin({"orders": None}, group="h") == {}


async def test_a_moment_in_the_future_is_recorded_as_now(serving: Serving, clock: ManualClock) -> None:
    now = round(clock.utc_now().timestamp() * 1000) / 1000
    assert await serving.begin({"orders": now + 3_600}) == {"orders": now}


async def test_a_commit_records_that_its_topics_have_begun(serving: Serving, clock: ManualClock) -> None:
    await serving.commit({0: 5})
    assert await serving.begin({"orders": None}) == {"orders": round(clock.utc_now().timestamp() * 1000) / 1000}


async def test_moments_are_there_after_a_restart(serving: Serving) -> None:
    await serving.begin({"orders": 20.0})
    await serving.flusher.flush()
    assert serving.store.table[OffsetKey("g", "orders", BEGIN_ID)] == 20_000


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (wire.BeginTopicsRequest(topics=[wire.TopicBegin(topic="orders")]), ["group"]),
        (wire.BeginTopicsRequest(group="g", topics=[wire.TopicBegin(topic="a b")]), ["topics[0].topic"]),
        (wire.BeginTopicsRequest(group="g", topics=[wire.TopicBegin(topic="orders")] * 2), ["topics[1]"]),
        (
            wire.BeginTopicsRequest(
                group="g", topics=[wire.TopicBegin(topic="unknown", first_consumed_at=Timestamp(seconds=1))]
            ),
            ["topics[0].topic"],
        ),
        (
            wire.BeginTopicsRequest(
                group="g", topics=[wire.TopicBegin(topic="orders", first_consumed_at=Timestamp(seconds=-1))]
            ),
            ["topics[0].first_consumed_at"],
        ),
        (wire.BeginTopicsRequest(group="g", topics=[wire.TopicBegin(topic=f"t{n}") for n in range(1_001)]), ["topics"]),
    ],
    ids=["no-group", "name", "twice", "unknown-topic", "before-1970", "too-many"],
)
async def test_a_bad_begin_is_refused_with_its_field(
    serving: Serving, request_: wire.BeginTopicsRequest, fields: list[str]
) -> None:
    refusal = await refusal_of(serving.stub.BeginTopics(request_))
    assert (refusal.status, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, fields)
    assert serving.offsets.is_empty


async def test_a_commit_beyond_the_limit_names_what_still_works_and_how_to_free_space(serving: Serving) -> None:
    await serving.commit(dict.fromkeys(range(1_000), 1))
    await serving.commit(dict.fromkeys(range(500), 1), group="random")
    refusal = await refusal_of(serving.commit({1_000: 1}, group="billing"))
    assert refusal.status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "at most 1500 offsets" in refusal.message
    assert "'billing'" in refusal.message
    assert "30 days" in refusal.message
    assert await serving.commit({0: 2}) == {}
