"""The project's counters give the same values as those of prometheus-client."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from pointsman.daemon.rpc.call_tallies import Tallies, Timings

BOUNDS = (0.001, 0.25, 1.0)


def sample_lines(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]), st.integers(0, 5))))
def test_tallies_are_counters(counts: list[tuple[str, str, int]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tallies = Tallies("calls", "Calls.", ["method", "code"], registry=ours)
    counter = Counter("calls", "Calls.", ["method", "code"], registry=theirs)
    for method, code, by in counts:
        tallies.labels(method, code).inc(by)
        counter.labels(method, code).inc(by)
    assert sample_lines(ours) == sample_lines(theirs)


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([0.0, 0.0005, *BOUNDS, 0.5, 2.0]))))
def test_timings_are_histograms(times: list[tuple[str, float]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    timings = Timings("seconds", "Times.", "method", bounds=BOUNDS, registry=ours)
    histogram = Histogram("seconds", "Times.", ["method"], buckets=BOUNDS, registry=theirs)
    for method, seconds in times:
        timings.labels(method).observe(seconds)
        histogram.labels(method).observe(seconds)
    assert sample_lines(ours) == sample_lines(theirs)
