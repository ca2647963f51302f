"""Reasons for an idle member."""

from __future__ import annotations

import pytest

from pointsman_client.core.allocation import Averagely, Pinned
from pointsman_client.core.rebalance import IdleReason, idle_reason, idle_warning
from tests.kit.client.queues import queues, request


def test_w15_members_beyond_the_number_of_queues_idle_with_a_warning() -> None:
    asked = [request(member, "abcde", queues(q=3)) for member in "abcde"]
    reasons = [idle_reason(each, Averagely().allocate(each)) for each in asked]
    assert reasons == [None, None, None, IdleReason.MORE_MEMBERS_THAN_QUEUES, IdleReason.MORE_MEMBERS_THAN_QUEUES]
    assert idle_warning(asked[4], IdleReason.MORE_MEMBERS_THAN_QUEUES) == (
        "e of group G has no queue of topic orders: more members than queues (5 members, 3 queues); "
        "stop members or add queues"
    )


@pytest.mark.parametrize(
    ("client_id", "pinned", "reason"),
    [
        pytest.param("a", ["b"], IdleReason.PINNED_ELSEWHERE, id="pinned-to-another"),
        pytest.param("b", ["b"], None, id="pinned-to-it"),
        pytest.param("e", list("bcde"), IdleReason.MORE_MEMBERS_THAN_QUEUES, id="surplus-of-the-pinned"),
        pytest.param("e", ["z"], IdleReason.MORE_MEMBERS_THAN_QUEUES, id="pin-of-an-absent-member"),
        pytest.param("z", [], None, id="no-member"),
    ],
)
def test_a_pin_is_distinguished_from_a_surplus(client_id: str, pinned: list[str], reason: IdleReason | None) -> None:
    asked = request(client_id, "abcde", queues(q=3))
    assert idle_reason(asked, Pinned(Averagely(), pinned).allocate(asked), pinned=pinned) is reason


def test_an_uneven_strategy_is_distinguished_from_a_surplus() -> None:
    assert idle_reason(request("a", "ab", queues(q=2)), ()) is IdleReason.STRATEGY
