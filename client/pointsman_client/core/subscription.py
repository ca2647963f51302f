"""Subscriptions: a topic and the tags to consume, or a condition. The grammar of tags is in ``tag_expression``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pointsman.tag_expression import ALL, canonical, expression_problem
from pointsman_client.core.checks import check_name
from pointsman_client.errors import InvalidOptionError


class SqlFilter(str):
    """A SQL92 condition on the properties of messages, which RocketMQ brokers evaluate (``MessageSelector.bySql``).

    ``SqlFilter("region = 'EU' AND amount > 100")``. A message that lacks a property is selected only by ``IS NULL``.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Whether it is the same condition; tags of the same text are none."""
        return isinstance(other, SqlFilter) and str(self) == str(other)

    def __ne__(self, other: object) -> bool:
        """See :meth:`__eq__`; a str compares itself otherwise."""
        return not self == other

    def __hash__(self) -> int:
        """See :meth:`__eq__`."""
        return hash((SqlFilter, str(self)))


def expression_type(expression: str) -> str:
    """Return RocketMQ's name of the kind of an expression (``ExpressionType``)."""
    return "SQL92" if isinstance(expression, SqlFilter) else "TAG"


Subscriptions = str | Iterable[str] | Mapping[str, str]
"""One topic, several topics, or topics with tag expressions, ``{"orders": "paid || refunded"}``, or SQL conditions."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic and what to consume of it; equal if they select the same messages."""

    topic: str
    expression: str = ALL
    """In canonical form: ``*``, or sorted tags joined by ``||``; a :class:`SqlFilter` as it is."""
    tags: frozenset[str] = frozenset()
    """Empty: all messages, also those without a tag; with a :class:`SqlFilter` those that the broker selects."""

    @classmethod
    def parse(cls, topic: str, expression: str = ALL) -> Subscription:
        """Parse an expression: ``*`` or empty for all messages, tags such as ``a || b``, or a :class:`SqlFilter`.

        Raises :class:`InvalidNameError` for the topic and :class:`InvalidOptionError` for the expression.
        """
        check_name("topic", topic)
        if not isinstance(expression, str):
            raise InvalidOptionError(f"subscriptions[{topic!r}]", expression, "must be a str such as '*' or 'a || b'")
        if isinstance(expression, SqlFilter):
            if not expression.strip():
                raise InvalidOptionError(f"subscriptions[{topic!r}]", str(expression), "must be a condition, not empty")
            return cls(topic, expression)
        problem = expression_problem(expression)
        if problem is not None:
            raise InvalidOptionError(f"subscriptions[{topic!r}]", expression, problem)
        form = canonical(expression)
        return cls(topic, form, frozenset() if form == ALL else frozenset(form.split(" || ")))

    def matches(self, tag: str) -> bool:
        """Whether a message with this tag is selected; empty: it has none."""
        return not self.tags or tag in self.tags

    @property
    def is_sql(self) -> bool:
        """Whether only brokers know what it selects."""
        return isinstance(self.expression, SqlFilter)


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
