"""Queues as streams: keys and ids go there and back, and what is none of ours is told apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.wire.names import MAX_QUEUES, name_problem
from pointsman.wire.offsets import MAX_OFFSET, entry_id, id_before, offset_after, split_stream_key, stream_key

TOPICS = st.from_regex(r"[%|a-zA-Z0-9_-]{1,127}", fullmatch=True)


@given(topic=TOPICS, queue_id=st.integers(0, MAX_QUEUES))
def test_a_key_tells_its_topic_and_queue(topic: str, queue_id: int) -> None:
    assert name_problem(topic) is None
    assert split_stream_key(stream_key(topic, queue_id)) == (topic, queue_id)


@pytest.mark.parametrize(
    "key",
    [
        "orders",
        ":queue:3",
        "a b:queue:3",
        "orders:queue:",
        "orders:queue:x",
        "orders:queue:-1",
        "orders:queue:03",
        "orders:queue:3:dead",
        "orders:queue:3\n",
        "orders:queue:\u0663",
        "orders:queue:999999",
        "x" * 128 + ":queue:0",
    ],
)
def test_a_key_that_is_no_queues_is_none(key: str) -> None:
    assert split_stream_key(key) is None


@given(st.integers(0, MAX_OFFSET - 1))
def test_the_offset_after_an_entry_is_its_own_and_one(offset: int) -> None:
    assert offset_after(entry_id(offset)) == offset + 1
    assert offset_after(id_before(offset)) == offset


def test_the_first_entry_of_a_stream_is_offset_0_and_an_empty_stream_ends_at_0() -> None:
    assert entry_id(0) == "0-1"
    assert offset_after("0-0") == 0
    assert offset_after(f"0-{MAX_OFFSET}") == MAX_OFFSET


@pytest.mark.parametrize("last_id", ["1-1", "1795280605328-0", "0", "0-", "0-01", "0--1", f"0-{MAX_OFFSET + 1}", ""])
def test_an_id_that_was_made_otherwise_has_no_offset(last_id: str) -> None:
    assert offset_after(last_id) is None
