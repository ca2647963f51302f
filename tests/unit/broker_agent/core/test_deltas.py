"""The difference between two topic sets, and when it is worth sending."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pointsman_agent.core.deltas import KNOWN_SETS, KnownTopicSets, small_delta
from pointsman_agent.core.topic_set import TopicConfig, TopicSet

TABLES = st.dictionaries(st.sampled_from("abcdefghij"), st.integers(1, 3), max_size=10)


def topic_set(table: dict[str, int], *, state_version: int = 0) -> TopicSet:
    return TopicSet.from_content(
        [TopicConfig(name, queues, queues, 6) for name, queues in table.items()], state_version=state_version
    )


def numbered(numbers: range, *, queues: int = 4) -> dict[str, int]:
    return {f"t{number:05}": queues for number in numbers}


@given(before=TABLES, after=TABLES)
def test_a_delta_leads_from_one_set_to_the_other_and_is_minimal(before: dict[str, int], after: dict[str, int]) -> None:
    held, wanted = topic_set(before), topic_set(after)
    differing = {name for name in before | after if before.get(name) != after.get(name)}

    delta = small_delta(held, wanted)

    assert (delta is not None) is (2 * len(differing) < len(after))
    if delta is not None:
        table = {each.topic: each for each in held.topics if each.topic not in delta.removed}
        table |= {each.topic: each for each in delta.changed}
        assert tuple(sorted(table.values())) == wanted.topics
        assert {each.topic for each in delta.changed} | set(delta.removed) == differing
        assert delta.base == held.data_version


def test_a_weight_alone_is_a_change() -> None:
    topics = [TopicConfig(name, 4, 4, 6) for name in "abcde"]
    heavy = TopicConfig("a", 4, 4, 6, queue_weight=3)

    delta = small_delta(
        TopicSet.from_content(topics, state_version=0), TopicSet.from_content([heavy, *topics[1:]], state_version=0)
    )

    assert delta is not None
    assert (delta.changed, delta.removed) == ((heavy,), ())


def test_a_delta_holds_at_most_what_one_message_may() -> None:
    held = topic_set(numbered(range(20_000)))

    most = small_delta(held, topic_set(numbered(range(20_000)) | numbered(range(5_000), queues=8)))
    too_many = small_delta(held, topic_set(numbered(range(20_000)) | numbered(range(5_001), queues=8)))

    assert most is not None
    assert len(most.changed) == 5_000
    assert too_many is None


def test_another_state_version_is_a_claim_and_no_delta() -> None:
    table = numbered(range(10))

    assert small_delta(topic_set(table), topic_set(table, state_version=1)) is None


def test_the_last_sets_are_known_by_their_versions() -> None:
    known = KnownTopicSets()
    sets = [topic_set(numbered(range(count))) for count in range(KNOWN_SETS + 1)]
    for each in sets:
        known.remember(each)

    assert [known.of_version(each.data_version) for each in sets] == [None, *sets[1:]]

    known.remember(sets[1])
    known.remember(sets[0])
    assert [known.of_version(each.data_version) for each in sets[:3]] == [sets[0], sets[1], None]
