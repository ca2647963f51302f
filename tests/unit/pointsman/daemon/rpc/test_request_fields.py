"""Pages of sorted names."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pointsman.daemon.rpc.request_fields import by_violations, page, size_of_page
from pointsman.wire.refusals import InvalidRequest


def cut(names: list[str], *, size: int, token: str) -> tuple[Sequence[str], str]:
    return page(names, size=size, token=token, default=3, most=10)


def test_pages_are_complete_even_if_entries_are_added_and_removed() -> None:
    names = ["a", "b", "c", "d"]
    assert cut(names, size=2, token="") == (["a", "b"], "b")
    assert cut(["a", "bb", "c", "d"], size=2, token="b") == (["bb", "c"], "c")
    assert cut(names, size=2, token="c") == (["d"], "")
    assert cut(names, size=4, token="") == (names, "")
    assert cut(names, size=0, token="") == (names[:3], "c")
    assert cut([], size=2, token="z") == ([], "")


def test_an_invalid_page_is_refused_with_all_its_errors() -> None:
    with pytest.raises(InvalidRequest) as refused:
        cut(["a"], size=11, token="a b")
    assert [f"{each.field} {each.description}" for each in refused.value.violations] == [
        "page_size must be from 0 to 10, not 11",
        "page_token invalid page_token: 'a b'",
    ]


def test_a_size_has_a_default_and_a_bound() -> None:
    assert size_of_page("page_size", 0, default=5, most=10) == 5
    assert size_of_page("page_size", 10, default=5, most=10) == 10
    with pytest.raises(InvalidRequest, match="page_size must be from 0 to 10, not 11"):
        size_of_page("page_size", 11, default=5, most=10)


def test_the_callers_name_is_short_text() -> None:
    assert not by_violations("")
    assert [each.field for each in by_violations("x" * 129)] == ["by"]
