"""QueueLockService on real gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
import pytest
from prometheus_client import CollectorRegistry

from pointsman.manual_clock import ManualClock
from pointsman.v1 import queue_lock_service_pb2 as wire
from pointsman.v1.queue_lock_service_pb2_grpc import QueueLockServiceStub
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.queue_locks import QueueLocks
from pointsman_agent.core.topic_set import TopicSet
from pointsman_agent.queue_locks.queue_lock_servicer import QueueLockServicer, register_lock_metrics
from pointsman_agent.rpc.client_owners import ClientOwners
from tests.kit.agent.services import served, topic_set
from tests.kit.refusal import refusal_of

if TYPE_CHECKING:
    from pointsman.v1.queue_lock_service_pb2_grpc import QueueLockServiceAsyncStub  # of the stubs alone

C1, C2 = "10.0.0.1@1", "10.0.0.2@1"


def stub_of(channel: grpc.aio.Channel) -> QueueLockServiceAsyncStub:
    """The service at the other end."""
    return QueueLockServiceStub(channel)


@dataclass
class Serving:
    """The service, and the topics of its broker."""

    stub: QueueLockServiceAsyncStub
    topics: TopicSet

    async def lock(self, client_id: str, *ids: int, group: str = "g") -> list[int]:
        request = wire.LockQueuesRequest(group=group, client_id=client_id, queues=queues(ids))
        answer: wire.LockQueuesResponse = await self.stub.LockQueues(request)
        assert answer.lifetime.seconds == 60
        return [each.queue_id for each in answer.granted]

    async def unlock(self, client_id: str, *ids: int, group: str = "g") -> list[int]:
        request = wire.UnlockQueuesRequest(group=group, client_id=client_id, queues=queues(ids))
        answer: wire.UnlockQueuesResponse = await self.stub.UnlockQueues(request)
        return [each.queue_id for each in answer.released]


def queues(ids: Sequence[int], topic: str = "orders") -> list[wire.LockedQueue]:
    return [wire.LockedQueue(topic=topic, queue_id=queue_id) for queue_id in ids]


@pytest.fixture
async def serving(clock: ManualClock) -> AsyncIterator[Serving]:
    """Topics orders, of 2,000 queues, and bills, of two; 1,500 locks at most."""
    locks = QueueLocks(max_locks=1_500)
    servicer = QueueLockServicer(locks, topics=lambda: held.topics, owners=ClientOwners(), clock=clock)
    async with served(servicer.service()) as channel:
        held = Serving(stub_of(channel), topic_set(orders=2_000, bills=2))
        yield held
    locks.check_invariants()


async def test_a_queue_is_locked_by_one_client_until_it_unlocks_or_is_silent_for_too_long(
    serving: Serving, clock: ManualClock
) -> None:
    assert await serving.lock(C1, 0, 1) == [0, 1]
    assert await serving.lock(C2, 1, 2) == [2]
    assert await serving.unlock(C2, 0, 1) == []
    assert await serving.unlock(C1, 1) == [1]
    assert await serving.lock(C2, 1) == [1]

    await clock.advance(60.0)
    assert await serving.lock(C2, 0, 1, 2) == [1, 2]
    await clock.advance(0.001)
    assert await serving.lock(C2, 0) == [0]
    assert await serving.unlock(C1, 0) == []


async def test_a_queue_that_the_broker_does_not_have_is_refused_with_field_and_value(serving: Serving) -> None:
    request = wire.LockQueuesRequest(group="g", client_id=C1, queues=[*queues([0]), *queues([2], "bills")])
    refusal = await refusal_of(serving.stub.LockQueues(request))
    assert refusal.status is grpc.StatusCode.INVALID_ARGUMENT
    assert refusal.message == "queues[1].queue_id is beyond the 2 queues of topic 'bills': 2"
    assert refusal.fields == ["queues[1].queue_id"]

    request = wire.LockQueuesRequest(group="g", client_id=C1, queues=queues([0], "other"))
    refusal = await refusal_of(serving.stub.LockQueues(request))
    assert refusal.message == "queues[0].topic is not a topic of this broker: 'other'"

    assert await serving.lock(C2, 0) == [0]  # of the refused batch nothing was locked


async def test_a_new_topic_can_be_locked_and_a_deleted_one_unlocked(serving: Serving) -> None:
    assert await serving.lock(C1, 5) == [5]
    serving.topics = topic_set(bills=4)
    assert await serving.unlock(C1, 5) == [5]
    request = wire.LockQueuesRequest(group="g", client_id=C1, queues=queues([3], "bills"))
    assert len((await serving.stub.LockQueues(request)).granted) == 1


@pytest.mark.parametrize(
    ("request_", "field", "text"),
    [
        (wire.LockQueuesRequest(client_id=C1), "group", "must not be empty: ''"),
        (wire.LockQueuesRequest(group="a b", client_id=C1), "group", "'a b'"),
        (wire.LockQueuesRequest(group="g" * 128, client_id=C1), "group", "has 128 characters"),
        (wire.LockQueuesRequest(group="g"), "client_id", "must not be empty: ''"),
        (wire.LockQueuesRequest(group="g", client_id="c\n"), "client_id", r"'c\n'"),
        (wire.LockQueuesRequest(group="g", client_id=C1, queues=queues([0], "t/x")), "queues[0].topic", "'t/x'"),
        (
            wire.LockQueuesRequest(group="g", client_id=C1, queues=queues([1, 2, 1])),
            "queues[2]",
            "repeats queues[0]: queue 1 of 'orders'",
        ),
        (
            wire.LockQueuesRequest(group="g", client_id=C1, queues=queues(range(1_001))),
            "queues",
            "has 1001 entries, at most 1000 are allowed",
        ),
    ],
)
async def test_invalid_input_is_refused_with_field_and_value(
    serving: Serving, request_: wire.LockQueuesRequest, field: str, text: str
) -> None:
    of_lock = await refusal_of(serving.stub.LockQueues(request_))
    unlock = wire.UnlockQueuesRequest.FromString(request_.SerializeToString())  # the same fields
    for refusal in (of_lock, await refusal_of(serving.stub.UnlockQueues(unlock))):
        assert refusal.status is grpc.StatusCode.INVALID_ARGUMENT
        assert refusal.fields == [field]
        assert text in refusal.message


async def test_many_errors_fit_into_one_response(serving: Serving) -> None:
    unknown = [wire.LockedQueue(topic=f"{'t' * 100}{n}", queue_id=n) for n in range(1_000)]
    request = wire.LockQueuesRequest(group="g", client_id=C1, queues=unknown)
    refusal = await refusal_of(serving.stub.LockQueues(request))
    assert refusal.status is grpc.StatusCode.INVALID_ARGUMENT
    assert refusal.details.violations[-1].description.endswith("more violations")


async def test_locks_beyond_the_bound_are_refused_and_named(serving: Serving) -> None:
    assert len(await serving.lock(C1, *range(1_000))) == 1_000
    assert len(await serving.lock(C1, *range(1_000))) == 1_000
    request = wire.LockQueuesRequest(group="h", client_id=C1, queues=queues(range(501)))
    refusal = await refusal_of(serving.stub.LockQueues(request))
    assert refusal.status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refusal.details.facts == {"limit": "queue locks", "bound": "1500"}
    assert len(await serving.lock(C1, *range(500), group="h")) == 500


async def test_locks_are_listed_in_pages_with_their_age(serving: Serving, clock: ManualClock) -> None:
    await serving.lock(C2, 10, 9, group="h")
    await clock.advance(90.5)
    await serving.lock(C1, 3, 1)

    pages, token = [], ""
    while True:
        page = await serving.stub.ListQueueLocks(wire.ListQueueLocksRequest(page_size=3, page_token=token))
        assert page.lifetime.seconds == 60
        pages.append([(lock.group, lock.queue.queue_id, lock.client_id) for lock in page.locks])
        token = page.next_page_token
        if not token:
            break

    assert pages == [[("g", 1, C1), ("g", 3, C1), ("h", 9, C2)], [("h", 10, C2)]]
    assert page.locks[0].renewed_ago.ToMilliseconds() == 90_500
    of_group = await serving.stub.ListQueueLocks(wire.ListQueueLocksRequest(group="g"))
    assert [lock.queue.queue_id for lock in of_group.locks] == [1, 3]
    assert of_group.next_page_token == ""


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (wire.ListQueueLocksRequest(group="a b"), "group"),
        (wire.ListQueueLocksRequest(page_size=1_001), "page_size"),
        *(
            (wire.ListQueueLocksRequest(page_token=token), "page_token")
            for token in (
                "x",
                "g/orders",
                "g/orders/-1",
                "g/orders/1/2",
                "g//1",
                "/orders/1",
                "g/orders/\u0663",
                "g" * 5_000,
            )
        ),
    ],
)
async def test_a_page_that_cannot_be_is_refused(
    serving: Serving, request_: wire.ListQueueLocksRequest, field: str
) -> None:
    refusal = await refusal_of(serving.stub.ListQueueLocks(request_))
    assert (refusal.status, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, [field])


async def test_the_metrics_show_the_number_of_locks(clock: ManualClock) -> None:
    locks, registry = QueueLocks(), CollectorRegistry()
    register_lock_metrics(locks, registry)
    locks.lock("g", C1, [QueueKey("orders", 0), QueueKey("orders", 1)], now=clock.now)
    assert registry.get_sample_value("pointsman_agent_queue_locks") == 2.0
    assert registry.get_sample_value("pointsman_agent_queue_lock_groups") == 1.0


async def test_the_last_page_is_full_and_has_no_token(serving: Serving) -> None:
    await serving.lock(C1, 0, 1, 2)
    page = await serving.stub.ListQueueLocks(wire.ListQueueLocksRequest(page_size=3))
    assert (len(page.locks), page.next_page_token) == (3, "")
