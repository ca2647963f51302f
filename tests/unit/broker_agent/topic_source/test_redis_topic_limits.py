"""Limits of topics whose queues are streams: as text, and what they make of a topic."""

from __future__ import annotations

import pytest

from pointsman_agent.core.topic_set import TopicConfig
from pointsman_agent.topic_source.redis_topic_limits import UNLIMITED, TopicLimit


def test_a_limit_is_what_its_text_says() -> None:
    limit = TopicLimit(4, 2, 4)
    assert (limit.to_text(), TopicLimit.of_text("4 2 4")) == ("4 2 4", limit)


@pytest.mark.parametrize("text", ["", "4 2", "4 2 8", "4 2 3", "-1 2 6", "4 2 6 ", "123456 1 6", "a b c"])
def test_any_other_text_means_no_limit(text: str) -> None:
    assert TopicLimit.of_text(text) is None


def test_a_topic_has_its_streams_up_to_the_limit() -> None:
    assert TopicLimit(4, 2, 4).to_topic("orders", 8) == TopicConfig("orders", 4, 2, 4)
    assert TopicLimit(4, 2).to_topic("orders", 3) == TopicConfig("orders", 3, 2, 6)
    assert UNLIMITED.to_topic("orders", 3) == TopicConfig("orders", 3, 3, 6)
    assert TopicLimit(0, 0).to_topic("orders", 3) is None


@pytest.mark.parametrize(
    ("limit", "streams", "restricts"),
    [
        (TopicLimit(4, 4), 4, False),
        (TopicLimit(5, 4), 4, False),
        (TopicLimit(4, 3), 4, True),
        (TopicLimit(3, 4), 4, True),
        (TopicLimit(4, 4, 4), 4, True),
        (TopicLimit(0, 0), 1, True),
        (TopicLimit(0, 0), 0, False),
    ],
)
def test_a_limit_restricts_what_streams_alone_would_allow(limit: TopicLimit, streams: int, restricts: bool) -> None:
    assert limit.restricts(streams) is restricts
