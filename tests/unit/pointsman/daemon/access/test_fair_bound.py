"""A shared bound: no limit below it, and at the bound it limits the largest peer."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pointsman.daemon.access.fair_bound import FairBound, Share


def nothing() -> None:
    """A callback for shares that no test expects to be revoked."""


def held(bound: FairBound, peer: str, *amounts: int) -> list[Share]:
    shares = [bound.take(peer, amount, nothing) for amount in amounts]
    assert all(shares)
    return [share for share in shares if share is not None]


def test_one_peer_may_use_all_shares_while_no_other_needs_any() -> None:
    bound = FairBound(10)
    held(bound, "greedy", *[1] * 10)
    assert bound.total == 10
    assert bound.take("greedy", 1, nothing) is None
    assert bound.total == 10


def test_at_the_bound_a_peer_with_less_gets_the_latest_shares_of_the_peer_with_most() -> None:
    bound, ended = FairBound(10), list[int]()
    for number in range(8):
        assert bound.take("greedy", 1, lambda number=number: ended.append(number)) is not None  # type: ignore[misc]
    held(bound, "other", 2)
    assert bound.take("honest", 3, nothing) is not None
    assert ended == [7, 6, 5]
    assert bound.total == 10


def test_a_request_that_would_make_its_peer_the_largest_is_refused_and_ends_no_other() -> None:
    bound = FairBound(10)
    first, second = held(bound, "a", 5)[0], held(bound, "b", 5)[0]
    assert bound.take("c", 5, nothing) is None
    assert bound.take("a", 1, nothing) is None
    assert not bound.grow(first, 1)
    assert first.is_held and second.is_held  # noqa: PT018
    assert (first.amount, bound.total) == (5, 10)


def test_a_share_that_is_larger_than_the_bound_is_refused() -> None:
    bound = FairBound(10)
    assert bound.take("a", 11, nothing) is None
    assert FairBound(0).take("a", 1, nothing) is None


def test_a_returned_share_is_free_again_and_counted_once() -> None:
    bound = FairBound(2)
    first, _ = held(bound, "a", 1, 1)
    bound.give_back(first)
    bound.give_back(first)
    assert bound.total == 1
    assert not bound.grow(first, 1)
    assert bound.take("b", 1, nothing) is not None


def test_a_revoked_share_is_already_returned_when_its_owner_is_notified() -> None:
    bound, seen = FairBound(4), list[tuple[bool, int]]()
    greedy: list[Share | None] = []
    greedy.append(bound.take("greedy", 4, lambda: seen.append((greedy[0].is_held, bound.total))))  # type: ignore[union-attr]
    assert bound.take("honest", 1, nothing) is not None
    assert seen == [(False, 0)]


steps = st.lists(
    st.tuples(st.sampled_from(["take", "grow", "back"]), st.sampled_from("abc"), st.integers(1, 6)), max_size=40
)


@given(steps)
def test_the_total_equals_the_shares_in_use_and_never_exceeds_the_bound(taken: list[tuple[str, str, int]]) -> None:
    bound, shares = FairBound(12), list[Share]()
    for word, peer, amount in taken:
        of_peer = [share for share in shares if share.is_held and share.peer == peer]
        before = {who: sum(s.amount for s in shares if s.is_held and s.peer == who) for who in "abc"}
        served = True
        if word == "take":
            share = bound.take(peer, amount, nothing)
            served = share is not None
            if share is not None:
                shares.append(share)
        elif word == "grow" and of_peer:
            served = bound.grow(of_peer[0], amount)
        elif word == "back" and of_peer:
            bound.give_back(of_peer[-1])
        amounts = Counter(sum(s.amount for s in shares if s.is_held and s.peer == who) for who in "abc")
        assert bound._holders == Counter({each: count for each, count in amounts.items() if each})
        if not served:
            assert sum(before.values()) + amount > 12
            assert {who: sum(s.amount for s in shares if s.is_held and s.peer == who) for who in "abc"} == before
        assert bound.total == sum(share.amount for share in shares if share.is_held) <= 12
