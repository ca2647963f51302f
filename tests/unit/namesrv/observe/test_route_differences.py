"""Routes of one topic at several name servers: when they differ, for how long, and what is read again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman_namesrv.observe import route_differences
from pointsman_namesrv.observe.route_differences import (
    ABSENT,
    CONFIRM_SECONDS,
    REPEAT_SECONDS,
    Differing,
    RouteDifferences,
)

ONE, TWO, THREE = "ns1:9876", "ns2:9876", "ns3:9876"
SAME, OTHER = 7, 8


def comparing(*addrs: str, topics: tuple[str, ...] = ("T",)) -> RouteDifferences:
    compared = RouteDifferences(addrs)
    for addr in addrs:
        compared.listed(addr, topics, asked_at=0.0, now=0.0)
    return compared


def read(compared: RouteDifferences, at: float, **digests: int) -> None:
    """Read the topic ``T`` at ns1, ns2, ns3."""
    for name, digest in digests.items():
        compared.read(f"{name}:9876", "T", digest, asked_at=at, now=at)


def shown(compared: RouteDifferences) -> dict[str, Differing]:
    compared.publish()
    return dict(compared.shown)


def test_a_difference_counts_once_both_were_read_again_and_still_differ() -> None:
    compared = comparing(ONE, TWO)
    read(compared, 1.0, ns1=SAME, ns2=OTHER)
    assert shown(compared) == {ONE: Differing(), TWO: Differing()}
    read(compared, 1.0 + CONFIRM_SECONDS, ns1=SAME)
    assert shown(compared)[ONE] == Differing()
    read(compared, 1.1 + CONFIRM_SECONDS, ns2=OTHER)
    assert shown(compared) == {ONE: Differing(1, 1.0), TWO: Differing(1, 1.0)}
    assert dict(compared.topics(ONE)) == {"T": 1.0}


def test_a_change_between_two_readings_is_not_a_difference() -> None:
    compared = comparing(ONE, TWO)
    read(compared, 1.0, ns1=SAME, ns2=SAME)
    read(compared, 300.0, ns1=OTHER)
    assert shown(compared)[ONE] == Differing()
    read(compared, 300.1, ns2=OTHER)
    read(compared, 400.0, ns1=OTHER, ns2=OTHER)
    assert shown(compared) == {ONE: Differing(), TWO: Differing()}


def test_a_response_counts_from_when_it_came_and_to_when_it_was_asked_for() -> None:
    compared = comparing(ONE, TWO)
    compared.read(ONE, "T", SAME, asked_at=1.0, now=4.0)
    compared.read(TWO, "T", OTHER, asked_at=1.0, now=4.0)
    late = 3.9 + CONFIRM_SECONDS
    for addr, digest in ((ONE, SAME), (TWO, OTHER)):
        compared.read(addr, "T", digest, asked_at=late, now=late + 3.0)
    assert shown(compared)[ONE] == Differing()


def test_a_difference_ends_with_the_reading_that_is_equal() -> None:
    compared = comparing(ONE, TWO)
    read(compared, 1.0, ns1=SAME, ns2=OTHER)
    read(compared, 9.0, ns1=SAME, ns2=OTHER)
    assert shown(compared)[TWO].topics == 1
    read(compared, 10.0, ns2=SAME)
    assert shown(compared) == {ONE: Differing(), TWO: Differing()}


def test_of_three_the_one_that_differs_from_the_other_two_is_named() -> None:
    compared = comparing(ONE, TWO, THREE)
    for at in (1.0, 9.0):
        read(compared, at, ns1=SAME, ns2=OTHER, ns3=SAME)
    assert {addr: each.topics for addr, each in shown(compared).items()} == {ONE: 0, TWO: 1, THREE: 0}


def test_a_topic_that_only_one_of_them_lists_differs() -> None:
    compared = RouteDifferences([ONE, TWO])
    compared.listed(ONE, ["T"], asked_at=0.0, now=0.0)
    compared.listed(TWO, [], asked_at=0.5, now=0.5)
    read(compared, 1.0, ns1=SAME)
    assert compared.next(TWO, now=2.9) is None
    assert compared.next(TWO, now=1.0 + CONFIRM_SECONDS) == "T"
    read(compared, 3.0, ns1=SAME, ns2=ABSENT)
    assert shown(compared) == {ONE: Differing(1, 1.0), TWO: Differing(1, 1.0)}
    compared.listed(ONE, [], asked_at=4.0, now=4.0)
    assert shown(compared) == {ONE: Differing(), TWO: Differing()}
    assert compared._rows == {}


def test_a_topic_whose_turn_in_the_walk_has_not_come_is_not_read_before() -> None:
    compared = comparing(ONE, TWO)
    read(compared, 1.0, ns1=SAME)
    assert compared.next(TWO, now=100.0) is None
    assert shown(compared)[ONE] == Differing()


def test_a_name_server_that_is_not_watched_does_not_count() -> None:
    compared = comparing(ONE, TWO)
    for at in (1.0, 9.0):
        read(compared, at, ns1=SAME, ns2=OTHER)
    compared.not_watched(TWO)
    assert shown(compared) == {ONE: Differing(), TWO: Differing()}
    # Restarted and filling: what it had before is not a reading of what it has now.
    compared.listed(TWO, ["T"], asked_at=20.0, now=20.0)
    read(compared, 20.1, ns1=SAME, ns2=ABSENT)
    assert shown(compared)[ONE] == Differing()
    read(compared, 20.2, ns2=SAME)
    read(compared, 30.0, ns1=SAME, ns2=SAME)
    assert shown(compared)[ONE] == Differing()


def test_what_may_differ_is_read_again_after_the_time_of_confirmation_then_rarely() -> None:
    compared = comparing(ONE, TWO)
    read(compared, 1.0, ns1=SAME, ns2=OTHER)
    assert [compared.next(addr, now=2.9) for addr in (ONE, TWO)] == [None, None]
    assert [compared.next(addr, now=3.0) for addr in (ONE, TWO)] == ["T", "T"]
    assert compared.next(ONE, now=3.0) is None
    read(compared, 3.0, ns1=SAME, ns2=OTHER)
    assert shown(compared)[ONE].topics == 1
    assert compared.next(ONE, now=2.9 + REPEAT_SECONDS) is None
    assert compared.next(ONE, now=3.0 + REPEAT_SECONDS) == "T"


def test_topics_of_a_changed_broker_are_read_now_and_others_not() -> None:
    compared = comparing(ONE, TWO, topics=("T", "U"))
    for topic in ("T", "U"):
        for addr in (ONE, TWO):
            compared.read(addr, topic, SAME, asked_at=1.0, now=1.0)
    compared.read_again(TWO, ["T", "unknown"], now=50.0)
    assert [compared.next(TWO, now=50.0), compared.next(TWO, now=50.0)] == ["T", None]
    assert compared.next(ONE, now=50.0) is None


def test_name_servers_are_added_and_removed() -> None:
    compared = comparing(ONE, TWO)
    for at in (1.0, 9.0):
        read(compared, at, ns1=SAME, ns2=OTHER)
    compared.remove(TWO)
    assert shown(compared) == {ONE: Differing()}
    compared.add(THREE)
    compared.listed(THREE, [], asked_at=10.0, now=10.0)
    for at in (11.0, 19.0):
        read(compared, at, ns1=SAME, ns3=ABSENT)
    assert shown(compared) == {ONE: Differing(1, 10.0), THREE: Differing(1, 10.0)}


def test_topics_beyond_the_limit_are_counted_and_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_differences, "MAX_TOPICS", 2)
    compared = comparing(ONE, topics=("A", "B", "C"))
    for topic in ("A", "B", "C"):
        compared.read(ONE, topic, SAME, asked_at=1.0, now=1.0)
    assert (sorted(compared._rows), compared.not_compared) == (["A", "B"], 1)
    compared.listed(ONE, ["A", "B"], asked_at=2.0, now=2.0)
    assert compared.not_compared == 0


def test_what_is_to_be_read_again_stays_bounded() -> None:
    compared = comparing(ONE, TWO)
    for number in range(1_000):
        read(compared, number / 10, ns1=SAME, ns2=OTHER)
        compared.next(ONE, now=number / 10)
    assert len(compared._servers[ONE]._queue) < 50


@settings(max_examples=300, deadline=None)
@given(
    changes=st.lists(st.tuples(st.floats(0.1, 5.0), st.integers(0, 2), st.booleans()), max_size=40),
    count=st.integers(2, 3),
)
def test_a_difference_that_is_shown_was_there_all_the_time_and_one_that_stays_is_shown(
    changes: list[tuple[float, int, bool]], count: int
) -> None:
    """Against a model: the true routes at every moment. A route that changes never takes an earlier value."""
    addrs = [ONE, TWO, THREE][:count]
    compared = RouteDifferences(addrs)
    truth: dict[str, list[tuple[float, int]]] = {addr: [(0.0, 1)] for addr in addrs}
    for addr in addrs:
        compared.listed(addr, ["T"], asked_at=0.0, now=0.0)
    now, fresh = 0.0, 1

    def value(addr: str, at: float) -> int:
        return [digest for since, digest in truth[addr] if since <= at][-1]

    def differed(addr: str, begin: float, end: float) -> bool:
        """Whether another server's route differed from this one's during all of a time."""
        moments = [begin, end, *(at for each in addrs for at, _ in truth[each] if begin < at < end)]
        return any(all(value(addr, at) != value(other, at) for at in moments) for other in addrs if other != addr)

    def check() -> None:
        for addr, each in shown(compared).items():
            if each.topics:
                assert differed(addr, each.since, each.since + CONFIRM_SECONDS)

    for seconds, place, is_change in changes:
        now += seconds
        addr = addrs[place % count]
        if is_change:
            fresh += 1
            # All but one change together, or this one alone.
            for each in addrs if seconds > 2.5 else [addr]:
                truth[each].append((now, fresh))
        else:
            compared.read(addr, "T", value(addr, now), asked_at=now, now=now)
        for each in addrs:
            while (topic := compared.next(each, now=now)) is not None:
                compared.read(each, topic, value(each, now), asked_at=now, now=now)
        check()

    for _ in range(8):  # what is to be read again, and one walk more
        now += CONFIRM_SECONDS
        for addr in addrs:
            compared.read(addr, "T", value(addr, now), asked_at=now, now=now)
        check()
    values = [value(addr, now) for addr in addrs]
    expected = {
        addr: int(len(set(values)) > 1 and 2 * values.count(own) <= count)
        for addr, own in zip(addrs, values, strict=True)
    }
    assert {addr: each.topics for addr, each in shown(compared).items()} == expected
