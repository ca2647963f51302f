"""A value that wakes its listeners."""

from __future__ import annotations

from pointsman_agent.observable import Observable


def test_a_watched_value_wakes_every_listener_once_per_change() -> None:
    watched, wakened = Observable(1), []
    watched.on_change(lambda: wakened.append("a"))
    watched.on_change(lambda: wakened.append("b"))

    watched.set(1)
    assert wakened == []

    watched.set(2)
    assert wakened == ["a", "b"]
    assert watched.value == 2
