"""Names of a group's own topics."""

from __future__ import annotations

import pytest

from pointsman.group_topics import without_pop_retry


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("orders", "orders"),
        ("%RETRY%billing_orders", "orders"),
        ("%RETRY%billing+orders", "orders"),
        ("%RETRY%billing_a_b", "a_b"),
        ("%RETRY%billing", "%RETRY%billing"),
        ("%RETRY%billing2_orders", "%RETRY%billing2_orders"),
        ("%DLQ%billing", "%DLQ%billing"),
    ],
)
def test_a_pop_retry_topic_names_the_applications_topic(topic: str, expected: str) -> None:
    assert without_pop_retry(topic, "billing") == expected
