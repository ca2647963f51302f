"""Pages of sorted lists. A token is the last key of the page before, as text: it holds over any change of the list."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from pointsman.wire.names import name_problem
from pointsman.wire.violation import FieldViolation, shown
from pointsman_agent.rpc.fields import refuse_if_any

DEFAULT_PAGE_SIZE = 500
MAX_PAGE_SIZE = 1_000
MAX_TOKEN_LENGTH = 1_000


def page(names: Sequence[str], *, size: int, token: str) -> tuple[Sequence[str], str]:
    """Cut one page out of sorted names: those after ``token`` (empty: from the first), and the next page's token.

    ``size`` is what the caller asked for, 0 for the default. Raises InvalidRequest for a size or token that cannot be.
    """
    violations = []
    if size > MAX_PAGE_SIZE:
        violations.append(FieldViolation("page_size", f"must be from 0 to {MAX_PAGE_SIZE}, not {size}"))
    if token and name_problem(token) is not None:
        violations.append(FieldViolation("page_token", f"is none that this service gave: {shown(token)}"))
    refuse_if_any(violations)
    start = bisect_right(names, token)
    end = start + (size or DEFAULT_PAGE_SIZE)
    return names[start:end], names[end - 1] if end < len(names) else ""
