"""What a consumer wants of a topic, and whether a message is that. The grammar is ``wire.tag_expression``'s."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pointsman.wire.tag_expression import ALL, canonical, expression_problem
from pointsman_client.core.checks import check_name
from pointsman_client.errors import InvalidOptionError

Subscriptions = str | Iterable[str] | Mapping[str, str]
"""One topic, topics, or topics with the tags that are wanted of each: ``{"orders": "paid || refunded"}``."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic and the tags that are wanted of it; equal when they mean the same."""

    topic: str
    expression: str = ALL
    """In its one form: ``*``, or sorted tags with ``||`` between them."""
    tags: frozenset[str] = frozenset()
    """Empty: all messages, those without a tag included."""

    @classmethod
    def parse(cls, topic: str, expression: str = ALL) -> Subscription:
        """Read ``*`` (or nothing) for all, or ``a || b``.

        Raises :class:`InvalidNameError` for the topic and :class:`InvalidOptionError` for the expression.
        """
        check_name("topic", topic)
        if not isinstance(expression, str):
            raise InvalidOptionError(f"subscriptions[{topic!r}]", expression, "must be a text such as '*' or 'a || b'")
        problem = expression_problem(expression)
        if problem is not None:
            raise InvalidOptionError(f"subscriptions[{topic!r}]", expression, problem)
        form = canonical(expression)
        return cls(topic, form, frozenset() if form == ALL else frozenset(form.split(" || ")))

    def matches(self, tag: str) -> bool:
        """Whether a message with this tag is wanted; empty: it has none."""
        return not self.tags or tag in self.tags


def to_subscriptions(subscriptions: Subscriptions) -> dict[str, Subscription]:
    """Read the setting. By topic, sorted. Raises as ``parse`` does."""
    given: object = subscriptions
    if isinstance(given, str):
        wanted = {given: ALL}
    elif isinstance(given, Mapping):
        wanted = dict(given)
    elif isinstance(given, Iterable):
        topics = list(given)
        for topic in topics:
            check_name("topic", topic)  # What is not a topic need not be hashable.
        wanted = dict.fromkeys(topics, ALL)
    else:
        raise InvalidOptionError("subscriptions", given, "must be a topic, topics, or a mapping of topics to tags")
    parsed = [Subscription.parse(topic, expression) for topic, expression in wanted.items()]
    return {each.topic: each for each in sorted(parsed, key=lambda each: each.topic)}
