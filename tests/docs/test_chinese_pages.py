"""The Chinese pages against the English ones: the same code, headings of the same levels, links to the same places."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {"README.zh-CN.md": "README.md", "docs/zh/getting-started.md": "docs/getting-started.md"}
"""By Chinese page: the English one."""


def code(page: str) -> list[str]:
    """Every block of code, with its language."""
    return re.findall(r"^```.*?^```", page, re.DOTALL | re.MULTILINE)


def prose(page: str) -> str:
    return re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)


def levels(page: str) -> list[int]:
    """The level of each heading."""
    return [len(signs) for signs in re.findall(r"^(#+) ", prose(page), re.MULTILINE)]


def targets(path: Path) -> list[str]:
    """Every link from the top of the sources, with its anchor; a page that is translated counts as the English one."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(path.read_text(encoding="utf-8"))):
        file, _, anchor = link.partition("#")
        place = (path.parent / file).resolve().relative_to(ROOT).as_posix()
        found.append((PAGES.get(place, place), anchor))
    ways = {(english, "") for english in PAGES.values()}
    # The link to the other language is at another place; a page with it links to itself.
    own = PAGES.get(path.relative_to(ROOT).as_posix(), path.relative_to(ROOT).as_posix())
    return sorted(f"{place}#{anchor}" for place, anchor in found if (place, anchor) not in ways or place != own)


def inline_code(page: str) -> list[str]:
    """Commands, names and paths in the text."""
    return sorted(re.findall(r"`([^`\n]+)`", prose(page)))


@pytest.mark.parametrize("chinese", PAGES)
def test_a_chinese_page_has_the_code_headings_and_links_of_the_english_one(chinese: str) -> None:
    translated, original = ROOT / chinese, ROOT / PAGES[chinese]
    here, there = translated.read_text(encoding="utf-8"), original.read_text(encoding="utf-8")
    assert code(here) == code(there)
    assert levels(here) == levels(there)
    assert inline_code(here) == inline_code(there)
    assert targets(translated) == targets(original)


@pytest.mark.parametrize("chinese", PAGES)
def test_the_two_pages_link_to_each_other(chinese: str) -> None:
    translated, original = ROOT / chinese, ROOT / PAGES[chinese]

    def linked(path: Path) -> set[Path]:
        links = re.findall(r"\]\(([^)\s#]+)", prose(path.read_text(encoding="utf-8")))
        return {(path.parent / link).resolve() for link in links}

    assert original in linked(translated)
    assert translated in linked(original)


@pytest.mark.parametrize("chinese", PAGES)
def test_a_row_of_a_table_has_as_many_cells_as_the_english_one(chinese: str) -> None:
    def cells(page: str) -> list[int]:
        return [line.count("|") for line in prose(page).splitlines() if line.startswith("|")]

    there = (ROOT / PAGES[chinese]).read_text(encoding="utf-8")
    assert cells((ROOT / chinese).read_text(encoding="utf-8")) == cells(there)
