"""All states that a watch of one topic received, in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc
import grpc.aio

from pointsman.v1.route_service_pb2 import TopicRoute, WatchTopicRoutesResponse
from tests.kit.name_server.watching import watching

Replicas = dict[int, str]
"""Addresses by broker id."""


class RouteDiary:
    """``entries``: each state received, as the replicas of all groups; empty while the topic has no route."""

    def __init__(self) -> None:
        self.entries: list[Replicas] = []
        self.groups: list[list[str]] = []
        """The broker names of each entry."""
        self._is_news = asyncio.Event()

    @property
    def last(self) -> Replicas:
        return self.entries[-1] if self.entries else {}

    @property
    def masters(self) -> list[str]:
        """The successive brokers with id 0, without repetitions and without times with none."""
        found: list[str] = []
        for entry in self.entries:
            if 0 in entry and found[-1:] != [entry[0]]:
                found.append(entry[0])
        return found

    def take(self, news: WatchTopicRoutesResponse) -> None:
        if news.HasField("route"):
            self.entries.append(_replicas(news.route))
            self.groups.append([broker.broker_name for broker in news.route.broker_datas])
        elif news.HasField("gone"):
            self.entries.append({})
            self.groups.append([])
        self._is_news.set()

    async def until(self, is_so: Callable[[Replicas], bool], *, seconds: float) -> None:
        """Wait until the topic is in this state."""
        async with asyncio.timeout(seconds):
            while not is_so(self.last):
                self._is_news.clear()
                await self._is_news.wait()


@asynccontextmanager
async def route_diary(name_server: str, topic: str) -> AsyncIterator[RouteDiary]:
    """Watch a topic for the length of the block, which begins after the first state was received."""
    diary, synced = RouteDiary(), asyncio.Event()

    async def read() -> None:
        async with grpc.aio.insecure_channel(name_server) as channel, watching(channel, topic) as watch:
            while isinstance(news := await watch.call.read(), WatchTopicRoutesResponse):
                diary.take(news)
                if news.HasField("synced"):
                    synced.set()

    reading = asyncio.create_task(read())
    try:
        async with asyncio.timeout(60):
            await synced.wait()
        yield diary
        assert not reading.done(), "the watch ended meanwhile"
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading


def _replicas(route: TopicRoute) -> Replicas:
    return {replica.broker_id: replica.addr for broker in route.broker_datas for replica in broker.replicas}
