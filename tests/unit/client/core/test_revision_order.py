"""Which of two responses is older."""

from __future__ import annotations

from pointsman_client import Revision
from pointsman_client.core.route_agreement import MAX_BOOTS, RevisionOrder


def test_an_older_answer_of_the_same_boot_is_refused_and_another_boot_is_not_compared() -> None:
    order = RevisionOrder(10)
    assert order.admit("orders", Revision(1, 50, b""))
    assert not order.admit("orders", Revision(1, 49, b"x"))
    assert order.admit("orders", Revision(1, 50, b"x"))
    assert order.admit("orders", Revision(2, 1, b"x"))
    assert not order.admit("orders", Revision(1, 49, b"x"))
    assert order.admit("bills", Revision(1, 1, b""))


def test_the_memory_of_revisions_is_bounded() -> None:
    order = RevisionOrder(2)
    for boot in range(MAX_BOOTS + 5):
        order.admit("orders", Revision(boot, 9, b""))
    assert not order.admit("orders", Revision(MAX_BOOTS, 8, b""))
    assert order.admit("orders", Revision(0, 8, b""))

    order.admit("a", Revision(1, 9, b""))
    order.admit("b", Revision(1, 9, b""))
    assert len(order._counters) == 2
