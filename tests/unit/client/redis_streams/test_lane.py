"""A lane that is closed while it opens its link."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pointsman_client.errors import ClientClosedError
from pointsman_client.redis_streams.bounded_replies import BoundedStream
from pointsman_client.redis_streams.lane import Lane, cancel_request


class Connection:
    """A connection of redis-py to a server that never responds."""

    is_connected = False
    replies = BoundedStream(None)

    async def connect(self) -> None:
        self.is_connected = True
        await asyncio.sleep(0)

    async def disconnect(self, *, nowait: bool) -> None:  # noqa: ARG002  # redis-py's signature
        self.is_connected = False

    async def read_response(self, **_: object) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize("turns", range(8))
async def test_a_lane_that_is_closed_while_it_opens_closes_its_connection(turns: int) -> None:
    connection: Any = Connection()
    lane = Lane("10.0.0.1:6379", lambda: connection, max_reply_bytes=9, connect_timeout_seconds=9.0)
    opening = asyncio.create_task(lane.open(timeout_seconds=9.0))
    for _ in range(turns):
        await asyncio.sleep(0)
    await asyncio.gather(*lane.close(), return_exceptions=True)
    await asyncio.gather(opening, return_exceptions=True)
    await asyncio.sleep(0)
    assert not connection.is_connected
    with pytest.raises(ClientClosedError):
        await lane.open(timeout_seconds=9.0)


async def test_who_is_cancelled_while_a_request_is_cancelled_is_cancelled() -> None:
    async def respond_slowly() -> list[Any]:
        try:
            await asyncio.Event().wait()
            return []
        finally:
            await asyncio.sleep(0)

    request = asyncio.create_task(respond_slowly())
    await asyncio.sleep(0)
    caller = asyncio.create_task(cancel_request(request))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert request.cancelled()
