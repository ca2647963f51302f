"""A token bucket for each key, and one that peers share; in bounded memory."""

from __future__ import annotations

import pytest

from pointsman.daemon.access import rate_limit
from pointsman.daemon.access.rate_limit import OWN_BURST, OWN_PART, RateLimit, SharedRateLimit


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


# --- a limit that peers share -------------------------------------------------------------------------------------

PER_SECOND, BURST = 1_000.0, 20_000.0


def drain(limit: SharedRateLimit, peer: str, *, now: float) -> int:
    """Use what a peer can get at this moment; return how much that was."""
    count = 0
    while not limit.take(peer, now=now):
        count += 1
    return count


def test_alone_a_peer_gets_the_burst_and_then_the_rate() -> None:
    limit = SharedRateLimit(PER_SECOND, BURST)
    assert drain(limit, "a", now=0.0) == BURST
    assert limit.take("a", now=0.0) == pytest.approx(1 / PER_SECOND)
    assert drain(limit, "a", now=10.0) == pytest.approx(10 * PER_SECOND, abs=1)


@pytest.mark.parametrize("greedy", [1, 3, 50])
def test_peers_that_use_all_they_can_keep_out_none_that_uses_little(greedy: int) -> None:
    limit, refused = SharedRateLimit(PER_SECOND, BURST), 0
    taken = 0
    for tenth in range(3_000):  # five minutes
        now = tenth / 10
        taken += sum(drain(limit, f"greedy {number}", now=now) for number in range(greedy))
        # A broker that restarts is another peer; many brokers behind one proxy are one.
        refused += bool(limit.take(f"broker {tenth % 1_000}", now=now))
        refused += bool(limit.take("proxy", now=now)) if tenth % 5 == 0 else 0
    assert refused == 0
    assert taken == pytest.approx(BURST + 300 * (PER_SECOND - 12), rel=0.05)


def test_the_reserve_is_bounded() -> None:
    limit = SharedRateLimit(PER_SECOND, BURST)
    assert drain(limit, "greedy", now=0.0) == BURST
    served = sum(not limit.take(f"new {number}", now=0.0) for number in range(5_000))
    assert served == BURST / 10
    # Of peers that use little, as many are served per second as the rate allows.
    assert sum(not limit.take(f"newer {number}", now=1.0) for number in range(5_000)) == pytest.approx(
        PER_SECOND, abs=1
    )


def test_a_small_limit_has_a_reserve_of_one() -> None:
    limit = SharedRateLimit(1.0, 3.0)
    assert [drain(limit, peer, now=0.0) for peer in "abc"] == [3, 1, 0]


def test_beside_greedy_peers_a_peer_gets_its_own_part_only() -> None:
    limit = SharedRateLimit(PER_SECOND, BURST)
    drain(limit, "greedy", now=0.0)
    assert drain(limit, "a", now=0.0) == OWN_BURST
    for second in range(1, 10):
        drain(limit, "greedy", now=second)
        assert drain(limit, "a", now=second) == PER_SECOND / OWN_PART
