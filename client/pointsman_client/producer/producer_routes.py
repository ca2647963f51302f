"""Routes for sends: looked up under the deadline of a send, which waits while no broker of its topic is up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from pointsman.clock import Clock
from pointsman_client.client import NameServerClient
from pointsman_client.core.message_queue import MessageQueue, why_without_queue
from pointsman_client.core.route import TopicRoute
from pointsman_client.errors import (
    ClientStateError,
    NameServersUnavailableError,
    NoBrokerUpError,
    NoWritableQueueError,
    PointsmanError,
    SendFailedError,
    TopicNotFoundError,
)
from pointsman_client.producer.new_topics import NewTopics

DOWN_POLL_SECONDS = 0.5
"""Interval of polling a topic whose brokers are all down while a send waits."""

ResultT = TypeVar("ResultT")


class ProducerRoutes:
    """Routes and writable queues, of new topics too, if the brokers create them."""

    def __init__(self, client: NameServerClient, new_topics: NewTopics | None, *, clock: Clock) -> None:
        self._client = client
        self._new_topics = new_topics
        self._clock = clock

    async def topic_route(self, topic: str, deadline: float) -> TopicRoute:
        """Return the topic's route, from the cache if possible; raises :class:`SendFailedError` at the deadline."""
        cached = self._client.cached_route(topic)
        if cached is not None:
            return cached.route
        return await self._within(deadline, self._client.topic_route(topic), topic)

    def is_new(self, queue: MessageQueue) -> bool:
        """Whether no broker has the queue yet: it would be created for a topic without a route."""
        if self._new_topics is None or self._client.route_age_seconds(queue.topic) is not None:
            return False
        return queue in self._new_topics.known_queues(queue.topic)

    async def queues(self, topic: str, deadline: float, *, is_cached: bool) -> tuple[MessageQueue, ...]:
        """Return the writable queues of a topic whose cached route has none, or that has no cached route.

        Raises :class:`NoWritableQueueError`, :class:`NoBrokerUpError`, :class:`SendFailedError` at the deadline, and
        the errors of route lookups.
        """
        queues = () if is_cached else await self._uncached_queues(topic, deadline)
        if not queues:
            try:
                await self._within(deadline, self._client.refresh(topic), topic)
            except ClientStateError:
                raise
            except PointsmanError:
                # The cached route stays in use; the reason for having no queue is derived from it.
                pass
            queues = await self._client.publish_queues(topic)
        return queues or await self._until_a_broker_is_up(topic, deadline)

    async def newer_queues(self, topic: str, deadline: float) -> tuple[MessageQueue, ...]:
        """Return the current queues, which may have changed; empty: unknown, or none now."""
        try:
            return await self._within(deadline, self._client.publish_queues(topic), topic)
        except ClientStateError:
            raise
        except PointsmanError:
            return ()

    async def _uncached_queues(self, topic: str, deadline: float) -> tuple[MessageQueue, ...]:
        """Look the writable queues up; a topic that does not exist has those that brokers create for it."""
        queues = () if self._new_topics is None else self._new_topics.known_queues(topic)
        if queues:
            return queues
        try:
            return await self._within(deadline, self._client.publish_queues(topic), topic)
        except TopicNotFoundError:
            if self._new_topics is not None:
                queues = await self._within(deadline, self._new_topics.queues(topic), topic)
            if not queues:
                raise
        except NameServersUnavailableError:
            if self._new_topics is not None:
                queues = self._new_topics.renewed_queues(topic)
            if not queues:
                raise
        return queues

    async def _until_a_broker_is_up(self, topic: str, deadline: float) -> tuple[MessageQueue, ...]:
        """Wait for a writable queue while the brokers of a known topic are all down.

        Raises :class:`NoBrokerUpError` at the deadline, :class:`NoWritableQueueError` for any other reason.
        """
        while True:
            route = await self._client.topic_route(topic)
            if not route.absent_brokers:
                raise NoWritableQueueError(topic, why_without_queue(route, zone=self._client.zone))
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise NoBrokerUpError(topic, route.absent_brokers)
            await self._clock.sleep(min(left, DOWN_POLL_SECONDS))
            # The watch usually reports the change; without one the name servers are queried.
            queues = await self._client.publish_queues(topic)
            if not queues and deadline > self._clock.monotonic():
                with contextlib.suppress(SendFailedError, NameServersUnavailableError):
                    await self._within(deadline, self._client.refresh(topic), topic)
                queues = await self._client.publish_queues(topic)
            if queues:
                return queues

    async def _within(self, deadline: float, lookup: Coroutine[Any, Any, ResultT], topic: str) -> ResultT:
        """Wait for a route; raises :class:`SendFailedError` at the deadline."""
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                return await lookup
        except TimeoutError:
            raise SendFailedError(topic, (), timed_out=True) from None
