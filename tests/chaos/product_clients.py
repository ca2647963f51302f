"""Many clients in one process, as applications have them: each holds a route and queries it, bypassing its cache."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection

from pointsman_client import NameServerClient, PointsmanError, TopicRoute
from tests.bench.worker import serve_commands


async def clients(pipe: Connection, name_servers: Sequence[str], count: int, topic: str, period: float) -> None:
    """Run ``count`` clients that prefer the name servers in the given order; each queries every ``period`` seconds."""
    fleet = _Fleet(topic, period)
    async with AsyncExitStack() as stack:
        for _ in range(count):
            client = NameServerClient(name_servers, shuffle_name_servers=False)
            fleet.clients.append(await stack.enter_async_context(client))
        await serve_commands(pipe, {"begin": fleet.begin, "known": fleet.known, "end": fleet.end})


class _Fleet:
    def __init__(self, topic: str, period: float) -> None:
        self.clients: list[NameServerClient] = []
        self._topic = topic
        self._period = period
        self._asking: list[asyncio.Task[None]] = []
        self._answers = 0
        self._errors: list[tuple[float, str]] = []

    async def begin(self) -> None:
        """Get every route, then query periodically."""
        await asyncio.gather(*(client.wait_until_ready([self._topic], timeout_seconds=60) for client in self.clients))
        self._asking = [
            asyncio.create_task(self._ask(client, self._period * number / len(self.clients)))
            for number, client in enumerate(self.clients)
        ]

    async def known(self, queues: int) -> float:
        """Wait until each client's cached route has that number of queues; return when, monotonic seconds."""
        for client in self.clients:
            while _queues(await client.topic_route(self._topic)) != queues:  # noqa: ASYNC110  # other processes cause it
                await asyncio.sleep(0.02)
        return time.monotonic()

    async def end(self) -> tuple[int, list[tuple[float, str]], list[str]]:
        """Stop querying; return the number of responses, the errors, and the name server that each client uses.

        Each error with the time, monotonic seconds, at which its lookup began.
        """
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        return self._answers, self._errors, [client.name_server_in_use for client in self.clients]

    async def _ask(self, client: NameServerClient, first_after: float) -> None:
        await asyncio.sleep(first_after)
        while True:
            began_at = time.monotonic()
            try:
                await client.fetch_route(self._topic)
                self._answers += 1
            except PointsmanError as error:
                self._errors.append((began_at, repr(error)))
            await asyncio.sleep(self._period)


def _queues(route: TopicRoute) -> int:
    return max((queues.write_queue_nums for queues in route.queue_datas), default=0)
