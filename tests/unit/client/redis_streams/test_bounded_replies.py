"""The limit of a reply for both of redis-py's parsers, which read in different ways."""

from __future__ import annotations

import asyncio

import pytest

from pointsman_client.redis_streams.bounded_replies import BoundedStream, ReplyTooLongError


def bounded(data: bytes, *, limit: int) -> BoundedStream:
    stream = asyncio.StreamReader()
    stream.feed_data(data)
    found = BoundedStream(stream)
    found.limit = lambda: limit
    return found


async def test_a_reply_may_have_as_many_bytes_as_the_limit_in_any_pieces() -> None:
    stream = bounded(b"ab\r\n" * 6, limit=12)
    for _ in range(2):
        assert await stream.readline() == b"ab\r\n"
        assert await stream.readexactly(4) == b"ab\r\n"
        assert await stream.read(4) == b"ab\r\n"
        stream.end_reply()


@pytest.mark.parametrize("method", ["read", "readexactly", "readline"])
async def test_one_byte_more_is_too_many_however_it_is_read(method: str) -> None:
    stream = bounded(b"a" * 12 + b"\n", limit=12)
    with pytest.raises(ReplyTooLongError, match="a reply has more than 12 bytes"):
        await (stream.readline() if method == "readline" else getattr(stream, method)(13))


async def test_a_text_that_is_announced_too_long_is_not_read() -> None:
    stream = bounded(b"", limit=12)
    with pytest.raises(ReplyTooLongError):
        await stream.readexactly(536_870_912)


async def test_a_number_of_elements_is_seen_in_two_pieces_and_ignored_where_messages_are() -> None:
    stream = bounded(b"*1234567\r\n", limit=100)
    await stream.read(5)
    with pytest.raises(ReplyTooLongError, match="an array announces a million elements"):
        await stream.read(6)
    with_messages = bounded(b"*1234567\r\n", limit=100)
    with_messages.has_messages = True
    assert await with_messages.read(10) == b"*1234567\r\n"


async def test_all_else_is_the_streams() -> None:
    assert bounded(b"", limit=1).at_eof() is False
