"""What holds among members whose settings differ, by example; tests/property has any combination."""

from __future__ import annotations

import hashlib

import pytest

from pointsman_agent.core.group_agreement import agree
from pointsman_agent.core.group_membership import (
    AllocationSetting,
    ConsumeType,
    Difference,
    GroupSubscription,
    MemberSettings,
    MessageModel,
    Standing,
    Subscription,
)

A, B, C = "10.0.0.1@1@z1", "10.0.0.2@1@z1", "10.0.0.3@1"


def strategy(
    name: str, settings: str = "{}", *, buildable_from: int = 1, needs_zone: bool = False
) -> AllocationSetting:
    digest = hashlib.sha256(f"{name} {settings}".encode()).digest()
    return AllocationSetting(name, settings, digest, buildable_from, needs_zone)


AVG = strategy("AVG")
HASH = strategy("CONSISTENT_HASH", '{"virtual_nodes":10}')
OTHER_HASH = strategy("CONSISTENT_HASH", '{"virtual_nodes":20}')
CONFIG = strategy("CONFIG", buildable_from=0)
NEARBY = strategy("MACHINE_ROOM_NEARBY", needs_zone=True)


def member(
    started_at: int,
    of: AllocationSetting = AVG,
    *,
    is_ordered: bool = False,
    known: int = 1,
    model: MessageModel = MessageModel.CLUSTERING,
    consume_type: ConsumeType = ConsumeType.PUSH,
    topic: str = "orders",
) -> GroupSubscription:
    settings = MemberSettings(of, is_ordered, known, started_at)
    return GroupSubscription("g", consume_type, model, (Subscription(topic, "*"),), settings)


def too_old(topic: str = "orders") -> GroupSubscription:
    return GroupSubscription("g", ConsumeType.PUSH, MessageModel.CLUSTERING, (Subscription(topic, "*"),))


def test_equal_members_differ_in_nothing_whatever_their_age() -> None:
    agreement = agree({A: member(2), B: member(1)})
    assert (agreement.holder, agreement.differing) == (B, {})
    assert agreement.settings == member(1).settings


@pytest.mark.parametrize(
    ("younger", "expected"),
    [
        pytest.param(member(2, HASH), Standing((Difference.STRATEGY,), False, 'CONSISTENT_HASH {"virtual_nodes":10}')),
        pytest.param(member(2, CONFIG), Standing((Difference.STRATEGY,), False, "CONFIG")),
        pytest.param(member(2, HASH, known=0), Standing((Difference.STRATEGY,), True, HASH.text)),
        pytest.param(member(2, is_ordered=True), Standing((Difference.ORDERED,), stands_aside=True)),
        pytest.param(member(2, topic="refunds"), Standing((Difference.SUBSCRIPTIONS,), stands_aside=True)),
        pytest.param(member(2, consume_type=ConsumeType.PULL), Standing((Difference.CONSUME_TYPE,), stands_aside=True)),
        pytest.param(
            member(2, model=MessageModel.BROADCASTING), Standing((Difference.MESSAGE_MODEL,), stands_aside=True)
        ),
        pytest.param(
            member(2, HASH, topic="refunds"),
            Standing((Difference.SUBSCRIPTIONS, Difference.STRATEGY), True, HASH.text),
        ),
        pytest.param(too_old("refunds"), None, id="too-old-to-stand-aside"),
    ],
)
def test_a_younger_member_follows_a_strategy_that_it_can_build_and_stands_aside_for_all_else(
    younger: GroupSubscription, expected: Standing | None
) -> None:
    agreement = agree({A: member(1), B: younger})
    if expected is None:
        # It counts as the older one, since it cannot stand aside.
        assert agreement.differing == {A: Standing((Difference.SUBSCRIPTIONS,), stands_aside=True)}
    else:
        assert (agreement.holder, agreement.differing) == (A, {B: expected})


def test_members_stand_aside_for_a_strategy_that_no_other_member_can_build() -> None:
    agreement = agree({A: member(1, CONFIG), B: member(2, CONFIG), C: member(3, AVG)})
    assert agreement.differing == {C: Standing((Difference.STRATEGY,), True, "AVG")}


def test_one_strategy_with_two_values_of_a_setting_differs() -> None:
    agreement = agree({A: member(1, HASH), B: member(2, OTHER_HASH)})
    assert agreement.differing == {B: Standing((Difference.STRATEGY,), False, OTHER_HASH.text)}


def test_of_two_started_at_the_same_time_the_lower_client_id_is_older() -> None:
    assert agree({B: member(1, HASH), A: member(1, AVG)}).holder == A


def test_a_member_without_settings_differs_only_in_what_is_known_of_it_and_the_strategy_is_that_of_the_others() -> None:
    agreement = agree({C: too_old(), B: member(2, HASH), A: member(1, AVG)})
    assert (agreement.holder, agreement.settings) == (A, member(1, AVG).settings)
    assert list(agreement.differing) == [B]


def test_members_without_settings_that_differ_from_each_other_are_reported_as_before() -> None:
    agreement = agree({B: too_old(), A: too_old("refunds")})
    assert agreement.holder == B
    assert agreement.differing == {A: Standing((Difference.SUBSCRIPTIONS,), stands_aside=False)}


def test_all_that_state_other_subscriptions_than_an_older_client_stand_aside() -> None:
    agreement = agree({A: too_old(), B: member(1, topic="refunds"), C: member(2, topic="refunds")})
    assert (agreement.holder, agreement.settings) == (A, None)
    assert all(each.stands_aside for each in agreement.differing.values())
    assert list(agreement.differing) == [B, C]


def test_broadcasting_members_may_differ_in_all_but_the_model() -> None:
    model = MessageModel.BROADCASTING
    agreement = agree({A: member(1, model=model), B: member(2, HASH, model=model, topic="refunds"), C: member(3)})
    assert agreement.settings is None
    assert agreement.differing == {C: Standing((Difference.MESSAGE_MODEL,), stands_aside=True)}


def test_a_member_without_a_zone_stands_aside_for_a_strategy_that_needs_one() -> None:
    agreement = agree({A: member(1, NEARBY), C: member(2, NEARBY), B: member(3, AVG)})
    assert agreement.differing == {
        B: Standing((Difference.STRATEGY,), False, "AVG"),
        C: Standing((Difference.ZONE,), stands_aside=True),
    }


def test_a_member_without_the_zone_that_its_own_strategy_needs_does_not_decide() -> None:
    agreement = agree({C: member(1, NEARBY), A: member(2, NEARBY), B: member(3, NEARBY)})
    assert (agreement.holder, list(agreement.differing)) == (A, [C])
    # Where no member has one, nothing is gained if all stand aside: each reports the failure of its strategy.
    assert agree({C: member(1, NEARBY), "x@1": member(2, NEARBY)}).differing == {}


def test_no_member_means_no_settings() -> None:
    assert agree({}).holder == ""
