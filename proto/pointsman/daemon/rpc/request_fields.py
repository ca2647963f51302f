"""Fields of requests to both daemons: the author, and pages of sorted names.

A page token is the last name of the page before, so it remains valid when the list changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from pointsman.names import registered_name_problem, text_problem
from pointsman.wire.refusals import FieldViolation, field_violations, refuse_if_any, shown

MAX_BY_LENGTH = 128


def by_violations(by: str) -> Sequence[FieldViolation]:
    """Check the author that the caller states; it may be empty."""
    return field_violations("by", by, text_problem(by, longest=MAX_BY_LENGTH))


def size_violations(field: str, asked: int, *, most: int) -> Sequence[FieldViolation]:
    """Check the number of rows requested."""
    return (FieldViolation(field, f"must be from 0 to {most}, not {asked}"),) if asked > most else ()


def token_violation(token: str) -> FieldViolation:
    """Return the violation of an invalid page token."""
    return FieldViolation("page_token", f"invalid page_token: {shown(token)}")


def size_of_page(field: str, asked: int, *, default: int, most: int) -> int:
    """Return the number of rows of a page. Raises InvalidRequest."""
    refuse_if_any(size_violations(field, asked, most=most))
    return asked or default


def page(names: Sequence[str], *, size: int, token: str, default: int, most: int) -> tuple[Sequence[str], str]:
    """Cut one page out of sorted names: those after ``token`` (empty: from the first), and the next page's token.

    Raises InvalidRequest for a size above ``most``, or a token that is not a name.
    """
    is_token = not token or registered_name_problem(token) is None
    refuse_if_any([*size_violations("page_size", size, most=most), *(() if is_token else (token_violation(token),))])
    start = bisect_right(names, token)
    end = start + (size or default)
    return names[start:end], names[end - 1] if end < len(names) else ""
