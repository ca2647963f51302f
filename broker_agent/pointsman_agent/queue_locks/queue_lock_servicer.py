"""QueueLockService: conversion between requests and the lock table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from google.protobuf.duration_pb2 import Duration
from prometheus_client import CollectorRegistry, Gauge

from pointsman.clock import Clock
from pointsman.daemon.access.access import CLIENTS, VIEWERS, Caller, Rule, Rules, check_group
from pointsman.daemon.rpc.rpc_server import Service
from pointsman.v1 import queue_lock_service_pb2 as wire
from pointsman.wire.refusals import refuse_if_any
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.queue_locks import HeldLock, QueueLocks, TooManyLocks
from pointsman_agent.core.topic_set import TopicSet
from pointsman_agent.rpc.agent_fields import (
    Place,
    QueueFields,
    client_id_violations,
    cut,
    name_violations,
    read_page,
    to_queues,
)
from pointsman_agent.rpc.agent_refusals import LimitExceeded
from pointsman_agent.rpc.client_owners import ClientOwners

RULES: Rules = {
    "LockQueues": CLIENTS,
    "UnlockQueues": CLIENTS,
    "ListQueueLocks": Rule(CLIENTS.roles | VIEWERS.roles),
}
SERVICE = wire.DESCRIPTOR.services_by_name["QueueLockService"]


class QueueLockServicer:
    """Serves ``locks``. ``topics`` returns the broker's current topics."""

    def __init__(
        self, locks: QueueLocks, *, topics: Callable[[], TopicSet], owners: ClientOwners, clock: Clock
    ) -> None:
        self._locks = locks
        self._owners = owners
        self._queues = QueueFields(topics)
        self._clock = clock

    def service(self) -> Service:
        """Return the service for the server."""
        return Service(descriptor=SERVICE, servicer=self, rules=RULES)

    def lock_queues(self, request: wire.LockQueuesRequest, caller: Caller | None = None) -> wire.LockQueuesResponse:
        """See queue_lock_service.proto."""
        self._check(request, caller, must_exist=True)
        queues, identity = to_queues(request.queues), "" if caller is None else caller.identity
        now = self._clock.monotonic()
        try:
            granted = self._locks.lock(request.group, request.client_id, queues, now=now, identity=identity)
        except TooManyLocks as error:
            raise LimitExceeded("queue locks", error.bound) from error
        return wire.LockQueuesResponse(granted=_to_messages(granted), lifetime=self._lifetime())

    def unlock_queues(
        self, request: wire.UnlockQueuesRequest, caller: Caller | None = None
    ) -> wire.UnlockQueuesResponse:
        """See queue_lock_service.proto. A queue that the broker no longer has is unlocked as well."""
        self._check(request, caller, must_exist=False)
        released = self._locks.unlock(request.group, request.client_id, to_queues(request.queues))
        return wire.UnlockQueuesResponse(released=_to_messages(released))

    def list_queue_locks(
        self, request: wire.ListQueueLocksRequest, caller: Caller | None = None
    ) -> wire.ListQueueLocksResponse:
        """See queue_lock_service.proto."""
        limit, after = read_page(group=request.group, page_size=request.page_size, page_token=request.page_token)
        check_group(caller, request.group)
        found = self._locks.page(now=self._clock.monotonic(), limit=limit + 1, group=request.group, after=after)
        held, token = cut(found, limit=limit, place_of=_place_of)
        return wire.ListQueueLocksResponse(locks=map(_to_lock, held), next_page_token=token, lifetime=self._lifetime())

    def _check(
        self,
        request: wire.LockQueuesRequest | wire.UnlockQueuesRequest,
        caller: Caller | None,
        *,
        must_exist: bool,
    ) -> None:
        refuse_if_any(
            chain(
                name_violations("group", request.group),
                client_id_violations("client_id", request.client_id),
                self._queues.violations("queues", request.queues, must_exist=must_exist),
            )
        )
        check_group(caller, request.group)
        self._owners.check(request.client_id, caller)

    def _lifetime(self) -> Duration:
        return _to_duration(self._locks.lifetime)


def _to_messages(queues: Iterable[QueueKey]) -> list[wire.LockedQueue]:
    return [wire.LockedQueue(topic=queue.topic, queue_id=queue.queue_id) for queue in queues]


def _to_lock(held: HeldLock) -> wire.QueueLock:
    return wire.QueueLock(
        group=held.group,
        queue=wire.LockedQueue(topic=held.queue.topic, queue_id=held.queue.queue_id),
        client_id=held.client_id,
        renewed_ago=_to_duration(held.renewed_ago),
    )


def _place_of(held: HeldLock) -> Place:
    return held.group, held.queue.topic, held.queue.queue_id


def _to_duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromMilliseconds(round(seconds * 1000))
    return duration


def register_lock_metrics(locks: QueueLocks, registry: CollectorRegistry) -> None:
    """Register the gauges of ``locks``; safe to read from the thread of a scrape."""
    held = Gauge(
        "pointsman_agent_queue_locks", "Queue locks of all consumer groups, expired ones included.", registry=registry
    )
    held.set_function(lambda: len(locks))
    groups = Gauge(
        "pointsman_agent_queue_lock_groups", "Consumer groups with at least one queue lock.", registry=registry
    )
    groups.set_function(lambda: locks.group_count)
