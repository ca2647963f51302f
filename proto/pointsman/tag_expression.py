"""Tags, and a consumer's expression of the tags that it reads: ``*`` for all, or ``a || b`` (RocketMQ's ``FilterAPI``).

An expression has one canonical form, so that members of a group who write it differently do not conflict. Producer,
consumer and agent use one grammar for a tag: an expression with a tag that no producer may send would match nothing.
"""

from __future__ import annotations

ALL = "*"
MAX_EXPRESSION_LENGTH = 1_024


def tag_problem(tag: str) -> str | None:
    """Check the tag of a message; return the problem as a sentence without its subject, or None."""
    if not tag:
        return "must not be empty"
    if not tag.isprintable():
        return "must not hold control characters"
    for character, name in ((" ", "a space"), (",", "a comma"), ("|", "a |")):
        if character in tag:
            return f"must not hold {name}"
    return "must not be *, which means all tags" if tag == ALL else None


def expression_problem(expression: str) -> str | None:
    """Return the problem of an expression as a sentence without its subject, or None. Empty means all, as in
    RocketMQ."""
    if len(expression) > MAX_EXPRESSION_LENGTH:
        return f"has {len(expression)} characters, at most {MAX_EXPRESSION_LENGTH} are allowed"
    if not expression.strip(" "):
        return None
    tags = _tags(expression)
    if not all(tags):
        return "must be * or tags with || between them"
    for tag in tags:
        problem = None if tag == ALL else tag_problem(tag)
        if problem is not None:
            return (
                f"has the tag {tag!r}, which no message can have: a tag {problem}; write several as 'a || b' "
                "(a SQL92 condition is a SqlFilter of the client)"
            )
    return None


def canonical(expression: str) -> str:
    """Return the canonical form of an expression that :func:`expression_problem` accepts."""
    tags = set(_tags(expression))
    return ALL if ALL in tags or not expression.strip(" ") else " || ".join(sorted(tags))


def _tags(expression: str) -> list[str]:
    return [tag.strip(" ") for tag in expression.split("||")]
