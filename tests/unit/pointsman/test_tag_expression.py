"""Tag expressions: what is accepted, what is refused and why."""

from __future__ import annotations

import pytest

from pointsman.tag_expression import canonical, expression_problem, tag_problem


@pytest.mark.parametrize(
    ("expression", "meaning"),
    [("*", "*"), ("", "*"), (" ", "*"), ("a", "a"), ("b||a", "a || b"), (" a || b || a ", "a || b"), ("a || *", "*")],
)
def test_expressions_that_mean_the_same_read_the_same(expression: str, meaning: str) -> None:
    assert expression_problem(expression) is None
    assert canonical(expression) == meaning
    assert canonical(meaning) == meaning


@pytest.mark.parametrize("expression", ["||", "a ||", "a | b", "a || |", "a\tb", "a\n", "x" * 1_025])
def test_expressions_without_a_meaning_are_refused(expression: str) -> None:
    assert expression_problem(expression) is not None


@pytest.mark.parametrize("tag", ["paid and refunded", "paid,refunded", "a|b", "a\tb", "a\u00a0b", "\ud800"])
def test_an_expression_with_a_tag_that_no_message_can_have_is_refused_by_its_name(tag: str) -> None:
    assert tag_problem(tag) is not None
    assert f"has the tag {tag!r}, which no message can have" in (expression_problem(f"good || {tag}") or "")


@pytest.mark.parametrize("tag", ["paid", "a-tag", "a.b/c:d", "\u00e4", "x" * 200])
def test_a_tag_that_a_message_can_have_may_be_wanted(tag: str) -> None:
    assert tag_problem(tag) is None
    assert expression_problem(tag) is None
    assert canonical(tag) == tag


def test_a_star_is_an_expression_and_not_a_tag() -> None:
    assert tag_problem("*") is not None
    assert expression_problem("*") is None
