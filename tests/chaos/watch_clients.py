"""Many watchers in one process, each with a record of what it saw: ``python -m tests.chaos.watch_clients``.

Each watches its topics for ever and opens again, with what it knows, whenever its watch ends.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc
import uvloop

from pointsman.backoff import FullJitterBackoff
from pointsman.v1.route_service_pb2 import KnownRoute, Revision, WatchTopicRoutesRequest, WatchTopicRoutesResponse
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from pointsman.wire.channel_options import CHANNEL_OPTIONS
from tests.chaos.watch_history import Opened, Record, Seen, Synced, to_line

WATCHES_A_CHANNEL = 100
LONGEST_BACKOFF_SECONDS = 3.0


class Watcher:
    """One client."""

    def __init__(
        self, name: str, topics: Sequence[str], channel: grpc.aio.Channel, say: Callable[[Record], None]
    ) -> None:
        self._name = name
        self._topics = tuple(topics)
        self._stub = RouteServiceStub(channel)
        self._say = say
        self._latest: dict[str, Revision] = {}

    async def run(self) -> None:
        """Watch for ever."""
        backoff = FullJitterBackoff(random.uniform, cap=LONGEST_BACKOFF_SECONDS)
        connection = 0
        while True:
            connection += 1
            try:
                await self._watch(connection, backoff)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(backoff.next_wait())

    async def _watch(self, connection: int, backoff: FullJitterBackoff) -> None:
        self._say(Opened(self._name, connection, self._topics, tuple(self._latest)))
        known = [KnownRoute(topic=topic, revision=self._latest.get(topic)) for topic in self._topics]
        call = self._stub.WatchTopicRoutes(WatchTopicRoutesRequest(topics=known))
        news: WatchTopicRoutesResponse
        async for news in call:
            match news.WhichOneof("news"):
                case "synced":
                    backoff.reset()
                    self._say(Synced(self._name, connection, news.synced.unchanged))
                case "route":
                    self._saw(connection, news.route.topic, news.route.revision)
                case "gone":
                    self._saw(connection, news.gone.topic, news.gone.revision)
                case "absent":
                    for topic in news.absent.topics:
                        self._saw(connection, topic, news.absent.revision)

    def _saw(self, connection: int, topic: str, revision: Revision) -> None:
        self._latest[topic] = revision
        self._say(Seen(self._name, connection, revision.boot, topic, revision.counter, revision.digest.hex()))


async def run(addr: str, name: str, *, watchers: int, topics: int, topics_each: int, record: Path | None) -> None:
    """Run ``watchers`` watchers until the process is killed; the topics of each follow from its number."""
    file = record.open("w", encoding="utf-8", buffering=1) if record is not None else None

    def say(line: Record) -> None:
        if file is not None:
            file.write(f"{to_line(line)}\n")

    channels = [
        grpc.aio.insecure_channel(addr, options=CHANNEL_OPTIONS)
        for _ in range((watchers + WATCHES_A_CHANNEL - 1) // WATCHES_A_CHANNEL)
    ]
    await asyncio.gather(
        *(
            Watcher(
                f"{name}/{number}",
                [f"t{(number * topics_each + i) % topics}" for i in range(topics_each)],
                channels[number // WATCHES_A_CHANNEL],
                say,
            ).run()
            for number in range(watchers)
        )
    )


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--addr", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--watchers", type=int, required=True)
    parser.add_argument("--topics", type=int, required=True)
    parser.add_argument("--topics-each", type=int, default=2)
    parser.add_argument("--record", type=Path)
    given = parser.parse_args()
    uvloop.run(
        run(
            given.addr,
            given.name,
            watchers=given.watchers,
            topics=given.topics,
            topics_each=given.topics_each,
            record=given.record,
        )
    )


if __name__ == "__main__":
    main()
