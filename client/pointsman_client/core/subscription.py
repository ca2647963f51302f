"""Subscriptions: a topic and the tags to consume. The grammar is in ``wire.tag_expression``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pointsman.tag_expression import ALL, canonical, expression_problem
from pointsman_client.core.checks import check_name
from pointsman_client.errors import InvalidOptionError

Subscriptions = str | Iterable[str] | Mapping[str, str]
"""One topic, several topics, or topics with tag expressions: ``{"orders": "paid || refunded"}``."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic and the tags to consume; equal if they select the same messages."""

    topic: str
    expression: str = ALL
    """In canonical form: ``*``, or sorted tags joined by ``||``."""
    tags: frozenset[str] = frozenset()
    """Empty: all messages, also those without a tag."""

    @classmethod
    def parse(cls, topic: str, expression: str = ALL) -> Subscription:
        """Parse an expression: ``*`` or empty for all messages, or tags such as ``a || b``.

        Raises :class:`InvalidNameError` for the topic and :class:`InvalidOptionError` for the expression.
        """
        check_name("topic", topic)
        if not isinstance(expression, str):
            raise InvalidOptionError(f"subscriptions[{topic!r}]", expression, "must be a str such as '*' or 'a || b'")
        problem = expression_problem(expression)
        if problem is not None:
            raise InvalidOptionError(f"subscriptions[{topic!r}]", expression, problem)
        form = canonical(expression)
        return cls(topic, form, frozenset() if form == ALL else frozenset(form.split(" || ")))

    def matches(self, tag: str) -> bool:
        """Whether a message with this tag is selected; empty: it has none."""
        return not self.tags or tag in self.tags


def to_subscriptions(subscriptions: Subscriptions) -> dict[str, Subscription]:
    """Parse the ``subscriptions`` option; sorted by topic. Raises as ``parse`` does."""
    given: object = subscriptions
    if isinstance(given, str):
        wanted = {given: ALL}
    elif isinstance(given, Mapping):
        wanted = dict(given)
    elif isinstance(given, Iterable):
        topics = list(given)
        for topic in topics:
            check_name("topic", topic)  # An invalid topic may not be hashable.
        wanted = dict.fromkeys(topics, ALL)
    else:
        raise InvalidOptionError("subscriptions", given, "must be a topic, topics, or a mapping of topics to tags")
    parsed = [Subscription.parse(topic, expression) for topic, expression in wanted.items()]
    return {each.topic: each for each in sorted(parsed, key=lambda each: each.topic)}
