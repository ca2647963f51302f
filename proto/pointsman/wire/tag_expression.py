"""Tags that a consumer wants of a topic: ``*`` for all, or ``a || b`` (RocketMQ's ``FilterAPI``).

One form for each meaning, so that members of a group who write the same differently do not seem to disagree.
"""

from __future__ import annotations

ALL = "*"
MAX_EXPRESSION_LENGTH = 1_024


def expression_problem(expression: str) -> str | None:
    """Say what is wrong with an expression, as a sentence without its subject. Empty means all, as in RocketMQ."""
    if len(expression) > MAX_EXPRESSION_LENGTH:
        return f"has {len(expression)} characters, at most {MAX_EXPRESSION_LENGTH} are allowed"
    if not expression.isprintable():
        return "must not hold control characters"
    if not expression.strip():
        return None
    tags = _tags(expression)
    if not all(tags):
        return "must be * or tags with || between them"
    if any("|" in tag for tag in tags):
        return "has a single | in a tag; tags are separated by ||"
    return None


def canonical(expression: str) -> str:
    """The one form of an expression that :func:`expression_problem` accepts."""
    tags = set(_tags(expression))
    return ALL if ALL in tags or not expression.strip() else " || ".join(sorted(tags))


def _tags(expression: str) -> list[str]:
    return [tag.strip() for tag in expression.split("||")]
