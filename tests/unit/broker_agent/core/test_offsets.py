"""Committed offsets: moved back only by a reset, and the writes pending for the store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pointsman_agent.core.offsets import (
    BEGIN_ID,
    DAY_MILLIS,
    MAX_OFFSET,
    SEEN_ID,
    OffsetChange,
    OffsetKey,
    Offsets,
    TooManyOffsets,
    apply_changes,
)
from pointsman_agent.core.queue import QueueKey

Q0, Q1 = QueueKey("orders", 0), QueueKey("orders", 1)
K0, K1 = OffsetKey("g", *Q0), OffsetKey("g", *Q1)
B0, SEEN = OffsetKey("g", "orders", BEGIN_ID), OffsetKey("g", "", SEEN_ID)


@pytest.fixture
def offsets() -> Iterator[Offsets]:
    """Four at most."""
    held = Offsets(max_offsets=4)
    yield held
    held.check_invariants()


def test_a_commit_is_visible_to_its_group_only(offsets: Offsets) -> None:
    assert offsets.commit("g", {Q0: 5, Q1: MAX_OFFSET}) == {}
    assert offsets.get("g", [Q1, Q0, QueueKey("other", 0)]) == {Q0: 5, Q1: MAX_OFFSET}
    assert offsets.get("h", [Q0]) == {}


def test_an_offset_does_not_move_back_and_the_response_has_the_current_one(offsets: Offsets) -> None:
    offsets.commit("g", {Q0: 5, Q1: 5})
    assert offsets.commit("g", {Q0: 4, Q1: 6}) == {Q0: 5}
    assert offsets.get("g", [Q0, Q1]) == {Q0: 5, Q1: 6}


def test_a_reset_moves_an_offset_back(offsets: Offsets) -> None:
    offsets.commit("g", {Q0: 5})
    assert offsets.commit("g", {Q0: 0}, reset=True) == {}
    assert offsets.get("g", [Q0]) == {Q0: 0}


def test_the_time_of_the_last_commit_is_kept_as_long_as_its_offset(offsets: Offsets) -> None:
    offsets.commit("g", {Q0: 5, Q1: 5}, now=1_000)
    offsets.commit("g", {Q0: 5}, now=2_000)
    offsets.commit("g", {Q0: 4, Q1: 5}, now=3_000)
    offsets.commit("g", {Q0: 6, Q1: 6})
    assert offsets.commit_times("g") == {Q0: 2_000, Q1: 3_000}
    offsets.discard("g", {Q0: 6}, {})
    assert offsets.commit_times("g") == {Q1: 3_000}
    offsets.discard("g", {Q1: 6}, {})
    assert offsets.commit_times("g") == {}


def test_an_offset_from_the_store_was_not_committed_here(offsets: Offsets) -> None:
    offsets.absorb([(K0, 5)])
    assert offsets.commit_times("g") == {}


def test_one_offset_too_many_is_refused_and_nothing_of_its_batch_is_committed(offsets: Offsets) -> None:
    offsets.commit("g", {QueueKey("orders", n): 1 for n in range(3)})
    with pytest.raises(TooManyOffsets, match="at most 4 offsets are kept"):
        offsets.commit("h", {Q0: 1, Q1: 1})
    assert (len(offsets), offsets.get("h", [Q0])) == (3, {})
    offsets.commit("h", {Q0: 1})
    assert offsets.commit("g", {Q0: 9, Q1: 9}) == {}


def test_at_the_bound_a_client_that_added_less_than_another_uses_the_reserve() -> None:
    offsets = Offsets(max_offsets=20)
    for number in range(15):
        offsets.commit(f"random{number}", {Q0: 1}, peer="greedy")
    offsets.commit("g", {QueueKey("orders", n): 1 for n in range(5)}, peer="honest")
    with pytest.raises(TooManyOffsets):
        offsets.commit("random15", {Q0: 1}, peer="greedy")
    offsets.commit("h", {Q0: 1}, peer="late")
    offsets.begin("h", {"orders": 1}, peer="late")
    offsets.commit("h", {Q1: 1}, peer="honest")
    with pytest.raises(TooManyOffsets, match="at most 20 offsets are kept"):
        offsets.commit("i", {Q0: 1}, peer="late")
    assert len(offsets) == 22


def test_offsets_from_the_store_are_kept_beyond_the_bound_and_can_still_advance(offsets: Offsets) -> None:
    offsets.absorb({OffsetKey("g", "orders", n): 1 for n in range(6)}.items())
    assert offsets.commit("g", {Q0: 2}) == {}
    with pytest.raises(TooManyOffsets):
        offsets.commit("h", {Q0: 2})


def test_the_first_change_after_a_write_is_announced_before_it_is_applied(offsets: Offsets) -> None:
    unwritten_then: list[int] = []
    offsets.before_first_change = lambda: unwritten_then.append(offsets.unwritten)

    offsets.absorb({K1: 3}.items())
    offsets.commit("g", {Q0: 5, Q1: 5})
    offsets.commit("g", {Q0: 6})
    offsets.commit("g", {Q0: 5})
    assert unwritten_then == [0]

    offsets.take()
    offsets.commit("g", {Q0: 7})
    offsets.written({})
    offsets.commit("g", {Q0: 7})
    assert unwritten_then == [0, 2]


def test_an_empty_commit_creates_no_group(offsets: Offsets) -> None:
    assert offsets.commit("g", {}) == {}
    assert offsets.page(limit=9) == []


def test_offsets_are_listed_sorted_page_after_page(offsets: Offsets) -> None:
    offsets.commit("h", {QueueKey("a", 0): 1})
    offsets.commit("g", {QueueKey("orders", 10): 2, QueueKey("orders", 9): 3})
    first = offsets.page(limit=2)
    assert first == [(OffsetKey("g", "orders", 9), 3), (OffsetKey("g", "orders", 10), 2)]
    assert offsets.page(limit=2, after=first[-1][0]) == [(OffsetKey("h", "a", 0), 1)]
    assert offsets.page(limit=2, group="g", after=first[0][0]) == first[1:]
    assert offsets.page(limit=2, group="unknown") == []


def test_all_offsets_can_be_read_while_more_are_committed(offsets: Offsets) -> None:
    offsets.commit("g", {Q0: 1, Q1: 2})
    reading = offsets.commits()
    first = next(reading)
    offsets.commit("g", {Q1: 3, QueueKey("orders", 2): 4})
    offsets.commit("h", {Q0: 5})
    assert [first, *reading] == [("g", "orders", 0, 1), ("g", "orders", 1, 2)]
    assert set(offsets.commits()) == {
        ("g", "orders", 0, 1),
        ("g", "orders", 1, 3),
        ("g", "orders", 2, 4),
        ("h", "orders", 0, 5),
    }


# --- towards the store ----------------------------------------------------------------------------------------


def test_each_queue_is_taken_once_with_its_latest_offset(offsets: Offsets) -> None:
    for offset in range(10):
        offsets.commit("g", {Q0: offset})
    assert offsets.unwritten == 1
    assert offsets.take() == (OffsetChange(K0, 9),)
    offsets.written({})
    assert offsets.take() == ()


def test_a_commit_that_changes_nothing_is_not_written_again(offsets: Offsets) -> None:
    offsets.absorb({K0: 5}.items())
    offsets.commit("g", {Q0: 5})
    offsets.commit("g", {Q0: 4})
    assert offsets.take() == ()


def test_a_reset_to_the_current_offset_is_written_since_the_store_may_have_another(offsets: Offsets) -> None:
    offsets.absorb({K0: 5}.items())
    offsets.commit("g", {Q0: 5}, reset=True)
    assert offsets.take() == (OffsetChange(K0, 5, reset=True),)


def test_commits_after_an_unwritten_reset_are_written_as_a_reset(offsets: Offsets) -> None:
    offsets.absorb({K0: 9}.items())
    offsets.commit("g", {Q0: 2}, reset=True)
    offsets.commit("g", {Q0: 3})
    assert offsets.take() == (OffsetChange(K0, 3, reset=True),)
    offsets.commit("g", {Q0: 4})
    offsets.written({})
    assert offsets.take() == (OffsetChange(K0, 4),)


def test_unwritten_changes_are_taken_again_together_with_newer_ones(offsets: Offsets) -> None:
    offsets.absorb({K0: 9}.items())
    offsets.commit("g", {Q0: 2}, reset=True)
    offsets.commit("g", {Q1: 7})
    offsets.take()
    offsets.commit("g", {Q0: 3})
    assert offsets.unwritten == 3
    offsets.not_written()
    assert set(offsets.take()) == {OffsetChange(K0, 3, reset=True), OffsetChange(K1, 7)}


def test_the_same_changes_are_not_taken_twice(offsets: Offsets) -> None:
    offsets.commit("g", {Q0: 2})
    offsets.take()
    with pytest.raises(RuntimeError, match="still being written"):
        offsets.take()


def test_a_higher_offset_in_the_store_is_used_in_memory_too(offsets: Offsets) -> None:
    offsets.commit("g", {Q0: 5, Q1: 5})
    offsets.take()
    offsets.commit("g", {Q0: 6, Q1: 11})
    offsets.written({K0: 10, K1: 10})
    assert offsets.get("g", [Q0, Q1]) == {Q0: 10, Q1: 11}
    assert offsets.take() == (OffsetChange(K1, 11),)


def test_a_reset_made_during_a_write_overrides_the_store(offsets: Offsets) -> None:
    offsets.commit("g", {Q0: 5})
    offsets.take()
    offsets.commit("g", {Q0: 1}, reset=True)
    offsets.written({K0: 10})
    assert offsets.get("g", [Q0]) == {Q0: 1}
    assert offsets.take() == (OffsetChange(K0, 1, reset=True),)


def test_the_store_overrides_memory_except_for_unwritten_changes(offsets: Offsets) -> None:
    offsets.absorb({K0: 5, K1: 5}.items())
    offsets.commit("g", {Q1: 6})
    offsets.absorb({K0: 3, K1: 4, OffsetKey("h", *Q0): 1}.items())
    assert offsets.get("g", [Q0, Q1]) == {Q0: 3, Q1: 6}
    offsets.take()
    offsets.absorb({K1: 4}.items())
    assert offsets.get("g", [Q1]) == {Q1: 6}
    assert offsets.get("h", [Q0]) == {Q0: 1}


# --- when groups began topics -------------------------------------------------------------------------------------


def test_the_earliest_moment_at_which_a_group_consumed_a_topic_is_kept(offsets: Offsets) -> None:
    assert offsets.begin("g", {"orders": 20}) == {"orders": 20}
    assert offsets.begin("g", {"orders": 30, "refunds": 5}) == {"orders": 20, "refunds": 5}
    assert offsets.begin("g", {"orders": 10}) == {"orders": 10}
    assert offsets.begins("g", ["orders", "other"]) == {"orders": 10}
    assert offsets.begins("h", ["orders"]) == {}
    assert offsets.take() == (OffsetChange(B0, 10), OffsetChange(OffsetKey("g", "refunds", BEGIN_ID), 5))


def test_a_topic_that_is_committed_without_a_begin_has_begun_then_and_a_retry_topic_has_none(offsets: Offsets) -> None:
    retry = QueueKey("%RETRY%g", 0)
    offsets.commit("g", {Q0: 5, retry: 1})
    offsets.begin_committed("g", [Q0, retry], now=70)
    offsets.begin_committed("g", [Q0], now=80)
    assert offsets.of("g") == ({Q0: 5, retry: 1}, {"orders": 70})


def test_one_begin_too_many_is_refused_and_nothing_of_its_call_is_recorded(offsets: Offsets) -> None:
    offsets.begin("g", {f"t{n}": 1 for n in range(3)})
    with pytest.raises(TooManyOffsets, match="at most 4 begins of topics are kept"):
        offsets.begin("h", {"orders": 1, "refunds": 1})
    assert offsets.begins("h", ["orders"]) == {}
    assert offsets.begin("g", {"t0": 0}) == {"t0": 0}
    assert len(offsets) == 0


def test_an_earlier_begin_in_the_store_is_accepted(offsets: Offsets) -> None:
    offsets.begin("g", {"orders": 20})
    offsets.take()
    offsets.written({B0: 10})
    assert offsets.begins("g", ["orders"]) == {"orders": 10}
    assert offsets.take() == ()


def test_an_earlier_begin_recorded_while_another_was_written_is_written_too(offsets: Offsets) -> None:
    offsets.begin("g", {"orders": 20})
    offsets.take()
    offsets.begin("g", {"orders": 5})
    offsets.written({B0: 10})
    assert offsets.take() == (OffsetChange(B0, 5),)


@pytest.mark.parametrize(
    ("held", "change", "left", "kept"),
    [
        (None, OffsetChange(K0, 5), 5, {}),
        (4, OffsetChange(K0, 5), 5, {}),
        (6, OffsetChange(K0, 5), 6, {K0: 6}),
        (6, OffsetChange(K0, 5, reset=True), 5, {}),
        (5, OffsetChange(K0, 5, removed=True), None, {}),
        (4, OffsetChange(K0, 5, removed=True), None, {}),
        (6, OffsetChange(K0, 5, removed=True), 6, {K0: 6}),
        (6, OffsetChange(K0, 5, reset=True, removed=True), None, {}),
        (4, OffsetChange(B0, 5, removed=True), 4, {B0: 4}),
        (None, OffsetChange(K0, 5, removed=True), None, {}),
        (4, OffsetChange(B0, 5), 4, {B0: 4}),
        (6, OffsetChange(B0, 5), 5, {}),
    ],
)
def test_all_stores_apply_changes_by_one_rule(
    held: int | None, change: OffsetChange, left: int | None, kept: dict[OffsetKey, int]
) -> None:
    table = {} if held is None else {change.key: held}
    assert apply_changes(table, [change]) == kept
    assert table.get(change.key) == left


# --- expiry -------------------------------------------------------------------------------------------------------


def test_offsets_of_a_group_unseen_for_30_days_expire_where_they_lie_before_the_queue(offsets: Offsets) -> None:
    offsets.commit("g", {Q0: 5, Q1: 5})
    offsets.begin("g", {"orders": 1})
    offsets.saw(["g"], now=0)
    assert offsets.unseen(now=30 * DAY_MILLIS) == {}
    assert offsets.unseen(now=30 * DAY_MILLIS + 1) == {"g": [Q0, Q1]}
    assert offsets.expire("g", {Q0: 6, Q1: 5}) == 1
    assert offsets.of("g") == ({Q1: 5}, {"orders": 1})
    assert offsets.expire("g", {}) == 0
    assert offsets.expire("g", {Q1: 6}) == 1
    assert offsets.is_empty
    assert len(offsets) == 0


def test_expired_offsets_free_space_for_other_groups(offsets: Offsets) -> None:
    for number in range(4):
        offsets.commit(f"random{number}", {Q0: 1})
    with pytest.raises(TooManyOffsets):
        offsets.commit("billing", {Q0: 1})
    offsets.unseen(now=0)
    for group in offsets.unseen(now=31 * DAY_MILLIS):
        offsets.expire(group, {Q0: 2})
    assert offsets.commit("billing", {Q0: 1}) == {}


def test_a_group_that_was_never_seen_counts_from_the_first_check_on(offsets: Offsets) -> None:
    offsets.absorb({K0: 5}.items())
    assert offsets.unseen(now=99 * DAY_MILLIS) == {}
    assert offsets.unseen(now=130 * DAY_MILLIS) == {"g": [Q0]}


def test_a_client_is_noted_once_a_day_and_only_of_groups_that_have_something(offsets: Offsets) -> None:
    offsets.saw(["g"], now=0)
    assert offsets.unwritten == 0
    offsets.commit("g", {Q0: 5})
    offsets.saw(["g"], now=0)
    offsets.saw(["g"], now=DAY_MILLIS - 1)
    assert offsets.take() == (OffsetChange(K0, 5), OffsetChange(SEEN, 0))
    offsets.written({})
    offsets.saw(["g"], now=DAY_MILLIS)
    assert offsets.take() == (OffsetChange(SEEN, DAY_MILLIS),)


def test_expired_offsets_are_removed_from_the_store_and_later_commits_apply_there(offsets: Offsets) -> None:
    table = {K0: 5, SEEN: 0}
    offsets.absorb(table.items())
    offsets.expire("g", {Q0: 6})
    assert offsets.take() == (OffsetChange(K0, 5, removed=True), OffsetChange(SEEN, 0, removed=True))
    offsets.commit("g", {Q0: 3})
    offsets.not_written()
    apply_changes(table, offsets.take())
    assert table == {K0: 3}


@pytest.mark.parametrize("reset", [True, False])
def test_an_offset_that_expires_unwritten_leaves_no_older_one_in_the_store(offsets: Offsets, reset: bool) -> None:
    stored = 9 if reset else 2
    table = {K0: stored}
    offsets.absorb(table.items())
    offsets.commit("g", {Q0: 5}, reset=reset)
    assert offsets.expire("g", {Q0: 6}) == 1
    offsets.written(apply_changes(table, offsets.take()))
    assert K0 not in table
    assert offsets.get("g", [Q0]) == {}


def test_commits_of_another_agent_survive_an_expiry(offsets: Offsets) -> None:
    table = {K0: 5}
    offsets.absorb(table.items())
    offsets.expire("g", {Q0: 6})
    table[K0] = 7
    offsets.written(apply_changes(table, offsets.take()))
    assert table[K0] == 7
    assert offsets.get("g", [Q0]) == {Q0: 7}


def test_offsets_in_removed_queues_go_for_every_group_and_a_lower_one_may_follow(offsets: Offsets) -> None:
    offsets.commit("g", {Q0: 5, Q1: 6})
    offsets.commit("h", {Q1: 7})
    stored = {K0: 5, K1: 6, OffsetKey("h", *Q1): 7}
    offsets.take()
    offsets.written({})
    assert offsets.remove_queues([Q1, QueueKey("orders", 9)]) == 2
    assert (offsets.get("g", [Q0, Q1]), offsets.get("h", [Q1])) == ({Q0: 5}, {})
    offsets.commit("g", {Q1: 1})
    assert apply_changes(stored, offsets.take()) == {}
    assert stored == {K0: 5, K1: 1}


def test_timestamps_are_not_listed_as_offsets(offsets: Offsets) -> None:
    offsets.absorb({K0: 5, B0: 1, SEEN: 2}.items())
    assert offsets.page(limit=9) == [(K0, 5)]
    assert [*offsets.commits()] == [("g", "orders", 0, 5)]
    assert len(offsets) == 1


# --- against a naive model ------------------------------------------------------------------------------------

GROUPS = st.sampled_from(["g", "h"])
BATCH = st.dictionaries(
    st.builds(QueueKey, st.sampled_from(["s", "t"]), st.integers(0, 1)), st.integers(0, 6), max_size=4
)
KEY = st.builds(OffsetKey, GROUPS, st.sampled_from(["s", "t"]), st.integers(0, 1))


class OffsetsMachine(RuleBasedStateMachine):
    """The model is one table, and a store that applies its writes by the same rule; a write may fail unnoticed."""

    @initialize(most=st.sampled_from([3, 100]))
    def start(self, most: int) -> None:
        self.most = most
        self.offsets = Offsets(max_offsets=most)
        self.model: dict[OffsetKey, int] = {}
        self.store: dict[OffsetKey, int] = {}
        self.taken: tuple[OffsetChange, ...] | None = None

    @rule(group=GROUPS, batch=BATCH, reset=st.booleans())
    def commit(self, group: str, batch: dict[QueueKey, int], reset: bool) -> None:
        keyed = {OffsetKey(group, *queue): offset for queue, offset in batch.items()}
        new = keyed.keys() - self.model.keys()
        if new and len(self.model) + len(new) > self.most:
            with pytest.raises(TooManyOffsets):
                self.offsets.commit(group, batch, reset=reset)
            return
        kept = {}
        for key, offset in keyed.items():
            if reset or self.model.get(key, 0) <= offset:
                self.model[key] = offset
            else:
                kept[key.queue] = self.model[key]
        assert self.offsets.commit(group, batch, reset=reset) == kept

    @rule(group=GROUPS, first=BATCH)
    def expire(self, group: str, first: dict[QueueKey, int]) -> None:
        gone = {key for key, offset in self.model.items() if key.group == group and offset < first.get(key.queue, 0)}
        self.model = {key: offset for key, offset in self.model.items() if key not in gone}
        assert self.offsets.expire(group, first) == len(gone)

    @precondition(lambda self: self.taken is None)
    @rule()
    def take(self) -> None:
        self.taken = tuple(self.offsets.take())
        assert len({change.key for change in self.taken}) == len(self.taken)

    @precondition(lambda self: self.taken is not None)
    @rule(end=st.sampled_from(["written", "lost", "written without an answer"]))
    def write_ends(self, end: str) -> None:
        assert self.taken is not None
        if end != "lost":
            assert apply_changes(self.store, self.taken) == {}
        if end == "written":
            self.offsets.written({})
        else:
            self.offsets.not_written()
        self.taken = None

    @precondition(lambda self: self.taken is None)
    @rule()
    def reads_its_store_again(self) -> None:
        self.offsets.absorb(self.store.items())

    @invariant()
    def agrees(self) -> None:
        assert dict(self.offsets.page(limit=100)) == self.model
        assert len(self.offsets) == len(self.model)
        self.offsets.check_invariants()

    def teardown(self) -> None:
        if not hasattr(self, "offsets"):
            return
        if self.taken is not None:
            self.write_ends("written without an answer")
        self.take()
        self.write_ends("written")
        assert self.store == self.model
        assert self.offsets.unwritten == 0


TestAnyHistory = OffsetsMachine.TestCase


def test_a_deleted_group_leaves_nothing_and_the_store_removes_whatever_it_has(offsets: Offsets) -> None:
    offsets.commit("g", {Q0: 5, Q1: 6}, now=100)
    offsets.commit("h", {Q0: 7})
    offsets.begin("g", {"orders": 50})
    offsets.saw(["g"], now=DAY_MILLIS)
    stored = {K0: 9, K1: 6, B0: 40, SEEN: DAY_MILLIS, OffsetKey("h", *Q0): 7}
    offsets.take()
    offsets.written({})

    assert offsets.delete("g") == 2
    assert offsets.groups() == ["h"]
    assert not offsets.commit_times("g")
    assert apply_changes(stored, offsets.take()) == {}
    assert stored == {OffsetKey("h", *Q0): 7}
    assert offsets.delete("g") == 0


def test_a_copy_is_forgotten_without_a_change_of_the_store(offsets: Offsets) -> None:
    offsets.absorb([(K0, 5), (B0, 50)])
    offsets.commit("g", {Q1: 6})

    assert offsets.delete("g", is_ours=False) == 2
    assert offsets.is_empty
    assert offsets.take() == ()
