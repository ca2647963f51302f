"""A pin: the named members share all queues and the others get none, until it ends."""

from __future__ import annotations

from pointsman_client.core.allocation import Averagely, Pinned
from tests.kit.client.queues import queues, shares, short

MEMBERS = ["10.0.0.1@7", "10.0.0.2@7", "10.0.0.3@7"]


def texts(*pinned: str) -> list[str]:
    return [short(share) for share in shares(Pinned(Averagely(), pinned), MEMBERS, queues(q=4)).values()]


def test_w13_one_pinned_machine_consumes_everything_and_afterwards_all_share_again() -> None:
    assert texts("10.0.0.2@7") == ["", "q:0 q:1 q:2 q:3", ""]
    assert texts() == ["q:0 q:1", "q:2", "q:3"]


def test_several_pinned_members_share_by_the_inner_strategy() -> None:
    assert texts("10.0.0.3@7", "10.0.0.1@7") == ["q:0 q:1", "", "q:2 q:3"]


def test_a_pin_without_a_present_member_has_no_effect() -> None:
    assert texts("10.0.0.9@7") == texts()


def test_the_name_has_both_parts() -> None:
    assert Pinned(Averagely(), ()).name == "PINNED-AVG"
