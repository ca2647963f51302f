"""The topics without a route that are remembered."""

from __future__ import annotations

from pointsman_client.core.recheck_plan import WANTED_TTL_SECONDS, WantedTopics


def test_a_wanted_topic_is_kept_in_mind_until_it_is_found_or_unwanted_for_long() -> None:
    wanted = WantedTopics(10)
    assert wanted.want("a", now=0.0)
    assert wanted.want("b", now=1.0)
    assert not wanted.want("a", now=2.0)
    assert wanted.topics(now=2.0) == ["b", "a"]

    wanted.found("b")
    assert wanted.topics(now=2.0 + WANTED_TTL_SECONDS) == ["a"]
    assert wanted.topics(now=2.1 + WANTED_TTL_SECONDS) == []


def test_wanted_topics_are_bounded_and_the_oldest_makes_room() -> None:
    wanted = WantedTopics(2)
    for now, topic in enumerate("abc"):
        wanted.want(topic, now=float(now))

    assert wanted.topics(now=3.0) == ["b", "c"]
