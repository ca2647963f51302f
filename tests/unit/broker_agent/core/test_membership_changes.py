"""How often the membership of each group changed in the last ten minutes, and in the last hour."""

from __future__ import annotations

from pointsman_agent.core.membership_changes import MOST, MembershipChanges


def test_changes_count_for_ten_minutes_and_for_an_hour() -> None:
    changes = MembershipChanges()
    changes.note(["billing", "audit"], now=100.0)
    changes.note(["billing"], now=400.0)
    assert changes.counts(now=699.9) == {"billing": (2, 2), "audit": (1, 1)}
    assert changes.counts(now=700.0) == {"billing": (1, 2), "audit": (0, 1)}
    assert changes.counts(now=3_700.0) == {"billing": (0, 1)}
    assert changes.counts(now=4_000.0) == {}


def test_of_very_many_changes_the_last_are_kept() -> None:
    changes = MembershipChanges()
    for second in range(2 * MOST):
        changes.note(["billing"], now=float(second))
    assert changes.counts(now=2.0 * MOST) == {"billing": (MOST, MOST)}
    assert changes.counts(now=600.0 + MOST + 10.0) == {"billing": (MOST - 11, MOST)}
