"""A token bucket for each key, in bounded memory."""

from __future__ import annotations

import pytest

from pointsman.service import rate_limit
from pointsman.service.rate_limit import RateLimit


def test_a_key_gets_its_burst_and_then_its_rate() -> None:
    limit = RateLimit(2.0, 3.0)
    assert [limit.take("a", now=0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert limit.take("a", now=0.25) == 0.25
    assert limit.take("a", now=0.5) == 0.0
    assert limit.take("a", now=0.5) == 0.5
    assert [limit.take("a", now=1_000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_one_key_does_not_affect_another() -> None:
    limit = RateLimit(1.0, 1.0)
    assert limit.take("a", now=0.0) == 0.0
    assert limit.take("a", now=0.0) == 1.0
    assert limit.take("b", now=0.0) == 0.0


def test_refused_calls_do_not_delay_the_next_accepted_one() -> None:
    limit = RateLimit(1.0, 1.0)
    limit.take("a", now=0.0)
    for tenth in range(1, 10):
        assert limit.take("a", now=tenth / 10) > 0
    assert limit.take("a", now=1.0) == pytest.approx(0.0)


def test_memory_is_bounded_and_those_seen_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "MAX_KEYS", 3)
    limit = RateLimit(1.0, 1.0)
    limit.take("kept", now=0.0)
    for number in range(100):
        limit.take(str(number), now=0.0)
        assert limit.take("kept", now=0.0) > 0
    assert len(limit._buckets) == 3
