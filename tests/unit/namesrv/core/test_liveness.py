"""One broker's pulse: the boundaries of late, suspect and expired; the histogram of its heartbeats."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_namesrv.core.liveness import EDGES, EDGES_MS, LivenessRules, Pulse, Punctuality, sweep_interval
from pointsman_namesrv.core.model import Reason

RULES = LivenessRules(stream_grace=10.0, hand_over=60.0)
LONG_AGO = -1_000.0


def pulse(**facts: float) -> Pulse:
    return Pulse(**({"last_seen": 0.0, "heartbeat_interval": 30.0, "expiry": 120.0} | facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("silence", "reason"),
    [
        pytest.param(0.0, None, id="just-received"),
        pytest.param(120.0, None, id="exactly-the-expiry"),
        pytest.param(120.001, Reason.SILENCE, id="just-past-it"),
    ],
)
def test_a_broker_expires_only_past_its_expiry(silence: float, reason: Reason | None) -> None:
    assert pulse().why_expired(now=silence, rules=RULES, lenient_since=LONG_AGO) == reason


@pytest.mark.parametrize(
    ("after", "reason"), [(10.0, None), (10.001, Reason.STREAM_BROKEN), (120.0, Reason.STREAM_BROKEN)]
)
def test_a_broken_stream_removes_past_the_grace(after: float, reason: Reason | None) -> None:
    broken = pulse(stream=1)
    assert broken.break_stream(1, now=0.0)
    assert broken.why_expired(now=after, rules=RULES, lenient_since=LONG_AGO) == reason


def test_without_grace_a_broken_stream_shortens_nothing() -> None:
    broken = pulse(stream=1)
    broken.break_stream(1, now=0.0)
    off = LivenessRules(stream_grace=0.0)
    assert broken.why_expired(now=120.0, rules=off, lenient_since=LONG_AGO) is None
    assert broken.why_expired(now=120.1, rules=off, lenient_since=LONG_AGO) == Reason.SILENCE


@pytest.mark.parametrize(("at", "speaks"), [(45.0, True), (45.001, False)])
def test_a_stream_that_ends_after_one_and_a_half_intervals_has_no_effect(at: float, speaks: bool) -> None:
    assert pulse(stream=1).break_stream(1, now=at) is speaks


@pytest.mark.parametrize(("silence", "reason"), [(75.0, None), (75.001, Reason.SILENCE)])
def test_a_broker_is_suspect_past_two_and_a_half_intervals(silence: float, reason: Reason | None) -> None:
    assert pulse().why_suspect(now=silence) == reason


@pytest.mark.parametrize(("silence", "late"), [(45.0, False), (45.001, True)])
def test_a_beat_is_late_past_one_and_a_half_intervals(silence: float, late: bool) -> None:
    assert pulse().is_late(now=silence) is late


def test_a_handed_over_broker_is_neither_suspect_nor_judged_by_its_silence() -> None:
    left = pulse(expiry=4.0, heartbeat_interval=1.0)
    left.beat(now=0.0, stream=1, hand_over=True)
    assert not left.break_stream(1, now=0.1)
    assert left.why_suspect(now=60.0) is None
    assert left.why_expired(now=60.0, rules=RULES, lenient_since=LONG_AGO) is None
    assert left.why_expired(now=60.1, rules=RULES, lenient_since=LONG_AGO) == Reason.SILENCE


def test_a_silent_broker_whose_stream_did_not_break_is_silent_on_an_open_stream() -> None:
    assert not pulse().is_silent_on_open_stream  # unary heartbeats
    hangs = pulse(stream=1)
    assert hangs.is_silent_on_open_stream
    # Where the connection is given up later, the stream was open when the silence began.
    assert not hangs.break_stream(1, now=46.0)
    assert hangs.is_silent_on_open_stream
    hangs.beat(now=50.0, stream=None, hand_over=False)
    assert not hangs.is_silent_on_open_stream
    breaks, leaves, stops = pulse(stream=1), pulse(stream=1), pulse(stream=1)
    breaks.break_stream(1, now=5.0)
    leaves.beat(now=5.0, stream=1, hand_over=True)
    stops.clear_stream(1, now=5.0)  # by this server
    assert not any(each.is_silent_on_open_stream for each in (breaks, leaves, stops))


def test_a_heartbeat_clears_all_suspicion() -> None:
    back = pulse(stream=1)
    back.break_stream(1, now=0.0)
    back.beat(now=5.0, stream=2, hand_over=False)
    assert (back.why_suspect(now=5.0), back.stream_broken_at, back.stream, back.last_seen) == (None, None, 2, 5.0)


@pytest.mark.parametrize(("shortest", "interval"), [(None, 5.0), (120.0, 5.0), (25.0, 5.0), (4.0, 0.8)])
def test_the_sweep_is_a_fifth_of_the_shortest_expiry_and_at_most_five_seconds(
    shortest: float | None, interval: float
) -> None:
    assert sweep_interval(shortest) == interval


@pytest.mark.parametrize(
    ("silence", "reason"), [(270.0, None), (270.001, Reason.SILENCE)], ids=["exactly-the-expiry", "just-past-it"]
)
def test_a_pause_of_this_process_does_not_count_as_silence(silence: float, reason: Reason | None) -> None:
    paused = pulse()
    paused.credit_pause(150.0, now=200.0)
    assert paused.why_expired(now=silence, rules=RULES, lenient_since=LONG_AGO) == reason


def test_of_a_pause_only_the_part_after_the_last_heartbeat_is_credited() -> None:
    one = pulse()
    one.beat(now=90.0, stream=None, hand_over=False)
    one.credit_pause(100.0, now=100.0)
    assert one.silence(now=100.0) == 0.0
    assert one.silence(now=130.0) == 30.0


def test_pauses_add_up_until_the_next_beat() -> None:
    paused = pulse()
    paused.credit_pause(50.0, now=60.0)
    paused.credit_pause(20.0, now=90.0)
    assert paused.silence(now=90.0) == 20.0
    paused.beat(now=95.0, stream=None, hand_over=False)
    assert paused.silence(now=100.0) == 5.0


def test_a_pause_is_credited_to_a_broken_stream_and_a_hand_over_too() -> None:
    broken, left = pulse(stream=1), pulse()
    broken.break_stream(1, now=5.0)
    left.beat(now=5.0, stream=None, hand_over=True)
    for one in (broken, left):
        one.credit_pause(30.0, now=40.0)
    assert broken.why_expired(now=45.0, rules=RULES, lenient_since=LONG_AGO) is None
    assert broken.why_expired(now=45.1, rules=RULES, lenient_since=LONG_AGO) == Reason.STREAM_BROKEN
    assert left.why_expired(now=95.0, rules=RULES, lenient_since=LONG_AGO) is None
    assert left.why_expired(now=95.1, rules=RULES, lenient_since=LONG_AGO) == Reason.SILENCE


def test_a_stream_that_broke_before_a_pause_gets_the_full_expiry() -> None:
    broken = pulse(stream=1)
    broken.break_stream(1, now=5.0)
    assert broken.why_expired(now=100.0, rules=RULES, lenient_since=50.0) is None
    assert broken.why_expired(now=120.1, rules=RULES, lenient_since=50.0) == Reason.SILENCE


def test_the_edges_reach_from_a_quarter_to_a_thousand_seconds_by_square_roots_of_two() -> None:
    assert EDGES[0] == 0.25
    assert EDGES[-1] == 1_024.0
    assert all(after / before == pytest.approx(2**0.5) for before, after in pairwise(EDGES))


def test_edges_are_given_in_milliseconds_and_all_differ() -> None:
    assert EDGES_MS[0] == "250"
    assert EDGES_MS[-2:] == ("1024000", "inf")
    assert len(set(EDGES_MS)) == len(EDGES) + 1


@pytest.mark.parametrize(
    ("interval", "edge"),
    [(0.0, "250"), (0.25, "250"), (0.2501, "354"), (1_024.0, "1024000"), (1_024.1, "inf"), (1e9, "inf")],
)
def test_an_interval_of_exactly_an_edge_belongs_below_it(interval: float, edge: str) -> None:
    punctuality = Punctuality(0.0)
    punctuality.add(interval, is_late=False)
    assert punctuality.detail(now=9.0)["buckets"] == {edge: 1}


@given(st.lists(st.floats(0, 5_000), min_size=1))
def test_the_figures_are_those_of_the_list(intervals: list[float]) -> None:
    punctuality = Punctuality(0.0)
    for interval in intervals:
        punctuality.add(interval, is_late=False)
    detail = punctuality.detail(now=9.0)

    assert detail["count"] == len(intervals)
    assert detail["min_ms"] == round(min(intervals) * 1_000)
    assert detail["max_ms"] == round(max(intervals) * 1_000)
    plain: dict[str, int] = {}
    for interval in sorted(intervals):
        name = next((ms for edge, ms in zip(EDGES, EDGES_MS, strict=False) if interval <= edge), "inf")
        plain[name] = plain.get(name, 0) + 1
    assert list(detail["buckets"].items()) == list(plain.items())  # type: ignore[attr-defined]


@pytest.mark.parametrize(("is_late", "seconds"), [(False, 3_600.0), (True, 600.0)])
def test_a_row_is_due_after_an_hour_or_ten_minutes_if_a_heartbeat_in_it_was_late(is_late: bool, seconds: float) -> None:
    punctuality = Punctuality(100.0)
    punctuality.add(50.0, is_late=is_late)
    punctuality.add(30.0, is_late=False)
    assert not punctuality.is_over(now=100.0 + seconds - 0.001)
    assert punctuality.is_over(now=100.0 + seconds)


def test_without_a_beat_nothing_is_counted() -> None:
    assert Punctuality(0.0).detail(now=9.0) == {"count": 0, "seconds": 9.0, "min_ms": 0, "max_ms": 0, "buckets": {}}


@given(st.lists(st.integers(-(10**13), 10**13)))
def test_of_the_clock_offsets_in_heartbeats_the_highest_is_kept(offsets: list[int]) -> None:
    punctuality = Punctuality(0.0)
    for ahead_ms in offsets:
        punctuality.add_clock(ahead_ms)
    assert punctuality.detail(now=9.0).get("clock_ahead_ms") == max(offsets, default=None)
