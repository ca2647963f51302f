"""Epochs: no commit from before an operator's reset can undo it, from wherever it comes and in whatever order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pointsman_agent.core.offset_epoch import MAX_EPOCH, epoch_of, next_epoch, offset_of, with_epoch
from pointsman_agent.core.offsets import MAX_OFFSET, OffsetChange, OffsetKey, Offsets, apply_changes
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.replica_offsets import ReplicaOffsets

Q0, Q1 = QueueKey("orders", 0), QueueKey("orders", 1)
K0 = OffsetKey("g", "orders", 0)

numbers = st.tuples(st.integers(0, MAX_OFFSET), st.integers(0, MAX_EPOCH))


@given(numbers, numbers)
def test_the_later_epoch_is_the_higher_number_and_within_one_the_higher_offset(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    assert (offset_of(with_epoch(*one)), epoch_of(with_epoch(*one))) == one
    assert (with_epoch(*one) < with_epoch(*other)) == (one[::-1] < other[::-1])


def test_an_epoch_is_the_time_of_the_reset_unless_the_clock_went_back() -> None:
    assert next_epoch(0, now=1_000) == 1_000
    assert next_epoch(1_000, now=1_000) == 1_001
    assert next_epoch(5_000, now=1_000) == 5_001


def test_a_late_commit_of_the_epoch_before_changes_nothing_also_as_a_seek() -> None:
    offsets = Offsets()
    offsets.commit("g", {Q0: 100})
    epochs = offsets.reset("g", {Q0: 10}, now=5_000)
    assert offsets.commit("g", {Q0: 101}, epochs={Q0: 0}) == {Q0: 10}
    assert offsets.commit("g", {Q0: 101}, epochs={Q0: 0}, reset=True) == {Q0: 10}
    assert offsets.commit("g", {Q0: 11}, epochs=epochs) == {}
    assert (offsets.get("g", [Q0]), offsets.epoch("g", Q0)) == ({Q0: 11}, 5_000)
    offsets.check_invariants()


def test_of_two_resets_the_later_one_holds_and_within_an_epoch_no_offset_goes_back() -> None:
    offsets = Offsets()
    first = offsets.reset("g", {Q0: 50}, now=1_000)
    second = offsets.reset("g", {Q0: 20}, now=1_000)
    assert offsets.commit("g", {Q0: 60}, epochs=first) == {Q0: 20}
    assert offsets.commit("g", {Q0: 25}, epochs=second) == {}
    assert offsets.commit("g", {Q0: 21}, epochs=second) == {Q0: 25}
    assert second[Q0] > first[Q0]


def test_a_commit_of_a_later_epoch_brings_a_reset_that_this_agent_did_not_see() -> None:
    offsets = Offsets()
    offsets.commit("g", {Q0: 100})
    assert offsets.commit("g", {Q0: 7}, epochs={Q0: 9_000}) == {}
    assert offsets.commit("g", {Q0: 101}, epochs={Q0: 0}) == {Q0: 7}


def test_a_reset_reaches_the_store_with_its_epoch_and_is_loaded_from_it() -> None:
    offsets, table = Offsets(), {K0: with_epoch(400, 0)}
    offsets.absorb(table.items())
    offsets.reset("g", {Q0: 10}, now=5_000)
    offsets.written(apply_changes(table, offsets.take()))
    assert table == {K0: with_epoch(10, 5_000)}
    restarted = Offsets()
    restarted.absorb(table.items())
    assert restarted.commit("g", {Q0: 401}, epochs={Q0: 0}) == {Q0: 10}


def test_a_writer_that_did_not_see_the_reset_learns_of_it_from_the_store() -> None:
    table = {K0: with_epoch(10, 5_000)}
    older = Offsets()
    older.commit("g", {Q0: 401}, reset=True)
    older.written(apply_changes(table, older.take()))
    assert table == {K0: with_epoch(10, 5_000)}
    assert (older.get("g", [Q0]), older.epoch("g", Q0)) == ({Q0: 10}, 5_000)
    older.check_invariants()


def test_the_epoch_outlives_a_removed_offset() -> None:
    offsets = Offsets()
    offsets.reset("g", {Q0: 10}, now=5_000)
    offsets.discard("g", {Q0: 10}, {}, epochs={Q0: 5_000})
    assert offsets.get("g", [Q0]) == {}
    offsets.commit("g", {Q0: 3})
    assert offsets.take() == (OffsetChange(K0, with_epoch(3, 5_000), reset=True),)


def test_a_discarded_offset_stays_if_it_was_reset_to_the_same_offset_since() -> None:
    offsets = Offsets()
    offsets.commit("g", {Q0: 10})
    offsets.reset("g", {Q0: 10}, now=5_000)
    offsets.discard("g", {Q0: 10}, {}, epochs={Q0: 0})
    assert offsets.get("g", [Q0]) == {Q0: 10}


class Replica:
    """A slave's agent, which becomes the master when a test says so."""

    def __init__(self) -> None:
        self.is_master = False
        self.offsets = ReplicaOffsets(Offsets(), Offsets(), is_master=lambda: self.is_master)


def test_a_reset_at_a_slave_outlives_late_commits_and_goes_to_the_master_with_its_epoch() -> None:
    slave = Replica()
    slave.offsets.stored.commit("g", {Q0: 100, Q1: 100})
    epochs = slave.offsets.reset("g", {Q0: 10}, now=5_000)
    assert slave.offsets.commit("g", {Q0: 101, Q1: 101}, epochs={Q0: 0, Q1: 0}, reset=False, now=1) == {Q0: 10}
    assert slave.offsets.commit("g", {Q0: 11}, epochs=epochs, reset=False, now=1) == {}
    assert slave.offsets.get("g", [Q0, Q1]) == {Q0: 11, Q1: 101}
    parts = slave.offsets.parts()
    assert [(dict(part.offsets), dict(part.epochs)) for part in parts] == [({Q0: 11}, epochs), ({Q1: 101}, {Q1: 0})]
    master = Offsets()
    master.commit("g", {Q0: 120, Q1: 90})
    for part in parts:
        master.commit("g", part.offsets, epochs=part.epochs, reset=part.is_reset)
        slave.offsets.acknowledged(part)
    assert master.get("g", [Q0, Q1]) == {Q0: 11, Q1: 101}
    assert slave.offsets.pending.is_empty


def test_a_reset_while_an_earlier_offset_is_handed_over_stays_pending_and_goes_next() -> None:
    slave, master = Replica(), Offsets()
    slave.offsets.commit("g", {Q0: 500}, reset=False, now=1)
    (part,) = slave.offsets.parts()
    epochs = slave.offsets.reset("g", {Q0: 500}, now=5_000)
    master.commit("g", part.offsets, epochs=part.epochs, reset=part.is_reset)
    slave.offsets.acknowledged(part)
    (again,) = slave.offsets.parts()
    assert (again.offsets, again.epochs) == ({Q0: 500}, epochs)
    master.commit("g", {Q0: 600}, epochs={Q0: 0})
    master.commit("g", again.offsets, epochs=again.epochs, reset=again.is_reset)
    slave.offsets.acknowledged(again)
    assert (master.get("g", [Q0]), slave.offsets.pending.is_empty) == ({Q0: 500}, True)


def test_of_resets_at_the_master_and_at_a_slave_that_do_not_know_of_each_other_the_later_one_holds() -> None:
    for at_master, at_slave in ((1_000, 2_000), (2_000, 1_000)):
        slave, master = Replica(), Offsets()
        slave.offsets.reset("g", {Q0: 10}, now=at_slave)
        master.reset("g", {Q0: 20}, now=at_master)
        (part,) = slave.offsets.parts()
        master.commit("g", part.offsets, epochs=part.epochs, reset=part.is_reset)
        slave.offsets.acknowledged(part)
        assert master.get("g", [Q0]) == {Q0: 10 if at_slave > at_master else 20}


def test_a_pending_offset_does_not_undo_a_later_reset_at_the_master() -> None:
    slave, master = Replica(), Offsets()
    slave.offsets.commit("g", {Q0: 500}, reset=True, now=1)
    master.reset("g", {Q0: 10}, now=5_000)
    (part,) = slave.offsets.parts()
    assert master.commit("g", part.offsets, epochs=part.epochs, reset=part.is_reset) == {Q0: 10}


def test_a_reset_that_was_replicated_holds_against_an_older_pending_offset() -> None:
    slave = Replica()
    slave.offsets.commit("g", {Q0: 500}, reset=False, now=1)
    slave.offsets.stored.absorb([(K0, with_epoch(10, 5_000))])
    assert slave.offsets.get("g", [Q0]) == {Q0: 10}
    assert slave.offsets.get("g", [Q0], pending_only=True) == {}
    assert slave.offsets.page(limit=5) == [(K0, 10)]
    slave.is_master = True
    assert slave.offsets.get("g", [Q0]) == {Q0: 10}


operations = st.lists(
    st.one_of(
        st.tuples(st.just("reset"), st.integers(0, 20), st.integers(1, 5)),
        st.tuples(st.just("commit"), st.integers(0, 20), st.integers(0, 5)),
        st.tuples(st.just("seek"), st.integers(0, 20), st.integers(0, 5)),
        st.tuples(st.just("write"), st.just(0), st.just(0)),
        st.tuples(st.just("fail"), st.just(0), st.just(0)),
        st.tuples(st.just("crash"), st.just(0), st.just(0)),
        st.tuples(st.just("other"), st.integers(0, 20), st.integers(0, 9)),
    ),
    max_size=40,
)


@given(operations)
def test_the_offset_is_always_of_the_latest_epoch_that_was_stored_or_committed(
    steps: list[tuple[str, int, int]],
) -> None:
    """``other``: another agent of the broker writes the store; ``crash``: what is not in the store is lost."""
    offsets, table = Offsets(), dict[OffsetKey, int]()
    epochs = [0]
    for step, offset, number in steps:
        before = offsets.epoch("g", Q0)
        if step == "reset":
            epochs.append(offsets.reset("g", {Q0: offset}, now=number)[Q0])
            assert offsets.get("g", [Q0]) == {Q0: offset}
        elif step in {"commit", "seek"}:
            epoch = epochs[number % len(epochs)]
            held = offsets.get("g", [Q0]).get(Q0)
            kept = offsets.commit("g", {Q0: offset}, epochs={Q0: epoch}, reset=step == "seek")
            if held is not None and epoch < before:
                assert (kept, offsets.get("g", [Q0])) == ({Q0: held}, {Q0: held})
        elif step == "other":
            apply_changes(table, [OffsetChange(K0, with_epoch(offset, number))])
            epochs.append(number)
        elif step == "crash":
            offsets = Offsets()
            offsets.absorb(table.items())
            before = 0
        elif step == "fail":
            offsets.take()
            offsets.not_written()
        else:
            stored = table.get(K0, 0)
            offsets.written(apply_changes(table, offsets.take()))
            assert table.get(K0, 0) >> 64 >= stored >> 64
            if K0 in table and offsets.get("g", [Q0]):
                assert epoch_of(table[K0]) >= before
        assert offsets.epoch("g", Q0) >= before
        offsets.check_invariants()
