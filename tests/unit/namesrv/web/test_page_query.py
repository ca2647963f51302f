"""Filter, sort and page of a list as parameters of its address."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pointsman.wire.refusals import InvalidRequest
from pointsman_namesrv.web.page_query import LONGEST, PageQuery, columns_of, distinct, paged, sort_of, sorted_page


def query(**parameters: str) -> PageQuery:
    return PageQuery("/topics", parameters)


def test_a_list_is_cut_into_pages_with_links_to_its_neighbours() -> None:
    rows = list(range(120))
    first, second, third = (paged(rows, query(name="a", page=page)) for page in ("1", "2", "3"))

    assert (first.rows[0], first.first, first.last, first.found) == (0, 1, 50, 120)
    assert (first.before, first.after) == ("", "/topics?name=a&page=2")
    assert (second.before, second.after) == ("/topics?name=a&page=1", "/topics?name=a&page=3")
    assert (third.first, third.last, third.after) == (101, 120, "")


def test_a_page_behind_the_last_is_empty_and_leads_back_to_it() -> None:
    far = paged([1, 2], query(page="9"))
    assert (far.rows, far.first, far.last, far.found) == ([], 0, 0, 2)
    assert far.before == "/topics?page=1"
    assert paged([], query(page="2")).before == ""


@pytest.mark.parametrize("page", ["0", "-1", "x", "²", "1" * 9, "1.5"])
def test_a_page_that_is_not_a_number_is_refused(page: str) -> None:
    with pytest.raises(InvalidRequest, match="page must be a number from 1"):
        paged([1], query(page=page))


def test_a_sorted_column_leads_to_the_other_direction_and_the_first_page() -> None:
    titles = {"name": "Topic", "rate": "Messages/s"}
    plain = columns_of(query(page="3", name="a"), titles, default="name")
    assert (plain["name"].direction, plain["name"].path) == ("ascending", "/topics?name=a&sort=-name")
    assert (plain["rate"].direction, plain["rate"].path) == ("", "/topics?name=a&sort=rate")

    down = columns_of(query(sort="-rate"), titles, default="name")
    assert (down["rate"].direction, down["rate"].path) == ("descending", "/topics?sort=rate")
    assert sort_of(query(sort="-rate"), titles, default="name") == ("rate", True)
    with pytest.raises(InvalidRequest, match="sort must be one of name, rate, -name, -rate"):
        sort_of(query(sort="size"), titles, default="name")


def test_a_time_is_utc_unless_it_has_a_zone() -> None:
    expected = datetime(2026, 11, 27, 3, 12, tzinfo=UTC)
    for text in ("2026-11-27T03:12Z", "2026-11-27 03:12", "2026-11-27T05:12+02:00"):
        assert query(since=text).moment("since") == expected
    assert query().moment("since") is None
    for text in ("yesterday", "0001-01-01T00:00+14:00", "2026-13-01"):
        with pytest.raises(InvalidRequest):
            query(since=text).moment("since")


def test_a_parameter_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=f"may have at most {LONGEST} characters"):
        query(name="x" * (LONGEST + 1)).text("name")


def test_values_to_choose_from_are_few() -> None:
    assert distinct(["b", "a", "", "b"]) == ["a", "b"]
    assert distinct([f"{number}" for number in range(100)]) == []


@pytest.mark.parametrize("is_descending", [False, True])
@pytest.mark.parametrize("page", ["1", "2", "15", "40", "41"])
def test_a_page_of_very_many_rows_is_that_of_all_sorted(page: str, is_descending: bool) -> None:
    rows = [(number * 7_919) % 1_999 // 2 for number in range(1_999)]
    expected = paged(sorted(rows, reverse=is_descending), query(page=page))
    assert sorted_page(rows, lambda row: (row,), query(page=page), is_descending=is_descending) == expected


def test_a_column_of_numbers_is_sorted_by_the_highest_first_and_then_the_other_way_round() -> None:
    titles = {"name": "Name", "lag": "Lag"}

    def paths(sort: str) -> list[str]:
        columns = columns_of(PageQuery("/", {"sort": sort}), titles, default="name", highest_first=("lag",))
        return [columns[name].path for name in titles]

    assert paths("") == ["/?sort=-name", "/?sort=-lag"]
    assert paths("-lag") == ["/?sort=name", "/?sort=lag"]
    assert paths("lag") == ["/?sort=name", "/?sort=-lag"]
