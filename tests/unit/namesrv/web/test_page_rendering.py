"""Values become HTML in one place, escaped, and a value that is missing is an error."""

from __future__ import annotations

import re

import pytest
from jinja2 import UndefinedError

from pointsman_namesrv.web.page_rendering import PAGE_POLICY, PAGES, SCRIPT, STYLE, TEMPLATES, rendered_error
from pointsman_namesrv.web.pages import PAGES as SERVED
from pointsman_namesrv.web.pages import page_at

NASTY = "<b onclick=x>\x1b[31m'\"&\u202e"


def test_values_are_escaped_and_control_characters_replaced() -> None:
    shown = TEMPLATES.from_string('<a title="{{ value }}">{{ value }}</a>{{ empty }}').render(value=NASTY, empty=None)
    assert "<b" not in shown
    assert shown.count("&lt;b onclick=x&gt;\ufffd[31m&#39;&#34;&amp;\ufffd") == 2
    assert shown.endswith("</a>")


def test_a_name_that_a_page_does_not_have_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        TEMPLATES.from_string("{{ missing }}").render()
    assert "safe" not in TEMPLATES.filters


def test_no_template_has_a_script_a_style_or_a_foreign_address() -> None:
    loader = TEMPLATES.loader
    assert loader is not None
    names = [name for name in TEMPLATES.list_templates() if name.endswith(".html")]
    assert len(names) > 8
    for name in names:
        source = loader.get_source(TEMPLATES, name)[0]
        assert not re.search(r" style=| on[a-z]+=|https?:|<img|\| *safe", source), name
        assert name == "layout.html" or not re.search(r"<(script|style|link)", source), name
    assert "</" not in STYLE + SCRIPT
    assert not re.search(r"url\(|@import", STYLE)
    assert PAGE_POLICY.startswith("default-src 'none'; ")


def test_a_refusal_is_a_page() -> None:
    shown = rendered_error("X_Y", "Not Found", NASTY).decode()
    assert "<title>X_Y" in shown
    assert "<b onclick" not in shown


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", ("/", ())),
        ("/brokers/c1/%a", ("/brokers/CLUSTER/BROKER", ("c1", "%a"))),
        ("/topics", ("/topics", ())),
        ("/topics/TOPIC", ("/topics/TOPIC", ("TOPIC",))),
        ("/groups/g", ("/groups/GROUP", ("g",))),
        ("/topics/", None),
        ("/brokers/c1", None),
        ("/brokers//a", None),
        ("//", None),
        ("/topics/a/b", None),
        ("/TOPICS", None),
        ("", None),
    ],
)
def test_a_path_has_one_page_or_none(path: str, expected: tuple[str, tuple[str, ...]] | None) -> None:
    found = page_at(path)
    assert (None if found is None else (found[0].listed, found[1])) == expected


def test_the_navigation_leads_to_pages() -> None:
    assert {path for _, path in PAGES} <= {page.listed for page in SERVED}
