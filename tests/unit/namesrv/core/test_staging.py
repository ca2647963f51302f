"""Topics that come in by chunks: the differences equal those of the two complete tables, for any chunks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pointsman_namesrv.core.model import QueueConfig
from pointsman_namesrv.core.staging import COMING_IN_BYTES, Staging, coming_in_bytes, staged

TABLES = st.dictionaries(
    st.sampled_from([f"t{n}" for n in range(8)]), st.builds(QueueConfig, st.integers(0, 2), st.just(1), st.just(6))
)
ORDERS = {"orders": QueueConfig(4, 4, 6)}


@given(held=TABLES, after=TABLES, size=st.integers(1, 4))
def test_chunks_differ_from_the_held_set_like_the_complete_registration(
    held: dict[str, QueueConfig], after: dict[str, QueueConfig], size: int
) -> None:
    staging, names = Staging(held), list(after)
    for start in range(0, len(names), size):
        staging.add({name: after[name] for name in names[start : start + size]})
    whole = staging.finish()

    assert whole.topics == after
    assert whole.compared_with is held
    assert whole.changed == {name: queues for name, queues in after.items() if held.get(name) != queues}
    assert set(whole.removed) == held.keys() - after.keys()
    assert len(whole.removed) == len(set(whole.removed))
    assert whole.is_unchanged == (after == held)
    assert (whole.topics is held) == (after == held)


def test_the_same_topics_in_another_order_are_the_table_that_is_held() -> None:
    held = {"a": QueueConfig(1, 1, 6), "b": QueueConfig(2, 2, 6)}
    assert staged({"b": QueueConfig(2, 2, 6), "a": QueueConfig(1, 1, 6)}, held=held).topics is held


def test_the_held_table_itself_is_not_walked() -> None:
    same = staged(ORDERS, held=ORDERS)
    assert same.is_unchanged
    assert not same.changed


def test_no_topics_at_all_remove_all() -> None:
    nothing = Staging(ORDERS).finish()
    assert (nothing.topics, nothing.changed, nothing.removed) == ({}, {}, ("orders",))


def test_an_empty_set_after_an_empty_set_is_unchanged() -> None:
    assert staged({}, held={}).is_unchanged


def test_a_server_for_more_topics_has_room_for_more_of_them() -> None:
    assert coming_in_bytes(max_topics=1_000) == COMING_IN_BYTES
    assert coming_in_bytes(max_topics=1_000_000) == 235_000_000
