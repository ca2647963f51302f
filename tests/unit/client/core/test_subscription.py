"""Subscriptions of a consumer."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pointsman_client.core.subscription import SqlFilter, Subscription, expression_type, to_subscriptions
from pointsman_client.errors import InvalidNameError, InvalidOptionError

NO_MESSAGE = "which no message can have: a tag must not hold"
SEVERAL = "write several as 'a || b' (a SQL92 condition is a SqlFilter of the client)"


@pytest.mark.parametrize("expression", ["*", "", "  ", "a || *"])
def test_all_messages_are_wanted_those_without_a_tag_included(expression: str) -> None:
    subscription = Subscription.parse("T", expression)
    assert subscription == Subscription("T")
    assert [subscription.matches(tag) for tag in ("", "a")] == [True, True]


def test_only_subscribed_tags_match() -> None:
    subscription = Subscription.parse("T", " b||a ||b")
    assert subscription.expression == "a || b"
    assert [subscription.matches(tag) for tag in ("a", "b", "c", "", "A", "a || b", "*")] == [True, True] + [False] * 5


def test_equivalent_expressions_are_equal() -> None:
    assert Subscription.parse("T", "a||b") == Subscription.parse("T", "b || a")
    assert Subscription.parse("T", "a||b") != Subscription.parse("T", "a||c")


def test_a_condition_is_kept_as_it_is_and_left_to_the_broker() -> None:
    condition = SqlFilter("amount > 500 AND region = 'EU'")
    subscription = to_subscriptions({"T": condition})["T"]
    assert (subscription.expression, subscription.is_sql, Subscription("T", "a").is_sql) == (condition, True, False)
    assert [subscription.matches(tag) for tag in ("", "a")] == [True, True]
    assert (expression_type(condition), expression_type("a")) == ("SQL92", "TAG")


def test_a_condition_never_equals_tags() -> None:
    assert SqlFilter("a") == SqlFilter("a")
    assert SqlFilter("a") != SqlFilter("b")
    assert SqlFilter("a") != "a"
    assert "a" != SqlFilter("a")  # noqa: SIM300  # both ways
    assert len({SqlFilter("a"), SqlFilter("a"), "a"}) == 2
    assert Subscription.parse("T", SqlFilter("a")) != Subscription.parse("T", "a")


def test_an_empty_condition_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match=r"subscriptions\['T'\] = ' ' must be a condition, not empty"):
        Subscription.parse("T", SqlFilter(" "))


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("a ||", "must be * or tags with || between them"),
        (
            "paid and refunded",
            f"has the tag 'paid and refunded', {NO_MESSAGE} a space; {SEVERAL}",
        ),
        (
            "a\n",
            f"has the tag 'a\\n', {NO_MESSAGE} control characters; {SEVERAL}",
        ),
        ("x" * 1_025, "has 1025 characters, at most 1024 are allowed"),
        (None, "must be a str such as '*' or 'a || b'"),
    ],
)
def test_an_expression_that_cannot_be_read_is_refused_with_field_and_value(expression: object, problem: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        Subscription.parse("T", cast("Any", expression))
    assert (caught.value.option, caught.value.value) == ("subscriptions['T']", expression)
    assert caught.value.problem == problem


def test_a_topic_outside_the_grammar_is_refused() -> None:
    with pytest.raises(InvalidNameError, match="topic 'a b' may hold only"):
        Subscription.parse("a b")


def test_the_setting_is_a_topic_or_topics_or_topics_with_expressions() -> None:
    assert to_subscriptions("T") == {"T": Subscription("T")}
    assert list(to_subscriptions(["U", "T", "U"])) == ["T", "U"]
    assert to_subscriptions({"U": "b||a", "T": "*"}) == {
        "T": Subscription("T"),
        "U": Subscription("U", "a || b", frozenset("ab")),
    }
    assert to_subscriptions(()) == {}


@pytest.mark.parametrize("wrong", [None, 5, b"orders"])
def test_another_type_is_refused(wrong: Any) -> None:
    with pytest.raises((InvalidOptionError, InvalidNameError)):
        to_subscriptions(wrong)


@pytest.mark.parametrize("wrong", [[5], [None, "T"], [["T"]]])
def test_a_list_with_something_else_than_topics_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidNameError):
        to_subscriptions(wrong)
