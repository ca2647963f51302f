"""Topics that were collected route by route, as rows of their brokers."""

from __future__ import annotations

import pytest

from pointsman_namesrv.core.events import Event
from pointsman_namesrv.core.model import DataVersion, GroupKey, Position, QueueConfig
from pointsman_namesrv.observe import topic_round
from pointsman_namesrv.observe.fleet_view import FleetView, Listed
from pointsman_namesrv.observe.polled_events import Watch
from pointsman_namesrv.observe.topic_round import RecordedTopics, TooManyTopics, TopicRound

A = Position("c", "a", 0)
FOUR, EIGHT = QueueConfig(4, 4, 6), QueueConfig(8, 8, 6)


def watching() -> Watch:
    watch = Watch({})
    watch.answered(FleetView({A: Listed("10.0.0.1:1", "")}), now=0)
    return watch


def take(recorded: RecordedTopics, topics: dict[str, QueueConfig], watch: Watch) -> Event | None:
    return recorded.take(A, dict(topics), watch, now=1)


def test_first_a_full_set_then_the_differences_then_nothing() -> None:
    recorded, watch = RecordedTopics(), watching()
    first = take(recorded, {"S": FOUR, "T": FOUR}, watch)
    second = take(recorded, {"T": EIGHT, "U": FOUR}, watch)

    assert first is not None
    assert first.topics is not None
    assert first.broker is not None
    assert (first.topics.changed, first.topics.base) == ({"S": FOUR, "T": FOUR}, None)
    assert second is not None
    assert second.topics is not None
    assert (second.topics.changed, second.topics.removed) == ({"T": EIGHT, "U": FOUR}, ("S",))
    assert second.topics.base == first.broker.data_version
    assert take(recorded, {"T": EIGHT, "U": FOUR}, watch) is None


def test_the_version_is_stable_across_releases() -> None:
    event = take(RecordedTopics(), {"S": FOUR, "T": FOUR}, watching())

    assert event is not None
    assert event.broker is not None
    assert event.broker.data_version == DataVersion(counter=57_601_308_199_854_154)


def test_two_observers_give_the_same_set_the_same_version() -> None:
    one = take(RecordedTopics(), {"S": FOUR, "T": FOUR}, watching())
    other = take(RecordedTopics(), {"T": FOUR, "S": FOUR}, watching())
    third = take(RecordedTopics(), {"T": EIGHT, "S": FOUR}, watching())
    versions = [event and event.broker and event.broker.data_version for event in (one, other, third)]

    assert versions[0] is not None
    assert versions[0] == versions[1] != versions[2]


def test_a_day_begins_with_the_full_set() -> None:
    recorded, watch = RecordedTopics(), watching()
    take(recorded, {"T": FOUR}, watch)
    recorded.reset()
    event = take(recorded, {"T": FOUR}, watch)
    assert event is not None
    assert event.topics is not None
    assert event.topics.base is None


def test_a_broker_returns_with_the_set_with_which_it_left() -> None:
    recorded, watch = RecordedTopics(), watching()
    assert recorded.returned(A, watch, now=1) is None
    first = take(recorded, {"T": FOUR}, watch)
    again = recorded.returned(A, watch, now=2)

    assert first is not None
    assert again is not None
    assert again.topics == first.topics
    assert again.broker is not None
    assert first.broker is not None
    assert again.broker.data_version == first.broker.data_version
    assert take(recorded, {"T": FOUR}, watch) is None


def test_sets_of_absent_brokers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, watch = RecordedTopics(), watching()
    take(recorded, {"S": FOUR, "T": FOUR}, watch)
    recorded.bound([])
    assert recorded.returned(A, watch, now=1) is not None
    monkeypatch.setattr(topic_round, "MAX_ENTRIES", 1)
    recorded.bound([A])
    assert recorded.returned(A, watch, now=1) is not None
    recorded.bound([])
    assert recorded.returned(A, watch, now=1) is None


def test_a_broker_that_is_not_listed_has_no_rows() -> None:
    assert RecordedTopics().take(Position("c", "b", 0), {"T": FOUR}, watching(), now=1) is None


def test_a_walk_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_round, "MAX_ENTRIES", 2)
    with pytest.raises(TooManyTopics, match="3 topics are listed"):
        TopicRound("abc", began_at=0)
    walk = TopicRound("ab", began_at=0)
    assert [walk.next(), walk.next(), walk.next()] == ["a", "b", None]
    walk.add("a", [("c", "a", FOUR), ("c", "b", FOUR)])
    assert walk.found == {GroupKey("c", "a"): {"a": FOUR}, GroupKey("c", "b"): {"a": FOUR}}
    with pytest.raises(TooManyTopics):
        walk.add("b", [("c", "a", FOUR)])
