"""Commands on the page: the real command line reads them as they were meant, whatever the names are."""

from __future__ import annotations

import html
import re
import shlex
from datetime import UTC, date, datetime

import pytest

from pointsman_report.report.page import page
from pointsman_report.report.sections.broker_states import Drawn
from pointsman_report.report.shell_commands import PROGRAM, explain_command, history_command
from tests.kit.report.busy import busy_report
from tests.kit.report.command_line import parsed

NAMES = ["orders", "-t", "--help", "a b", "%RETRY%group", "it's", '"; rm -rf / #', "$(x)", "`x`", "<b>", "naïve"]


def words_of(line: str) -> list[str]:
    program, *words = shlex.split(line)
    assert program == PROGRAM
    return words


@pytest.mark.parametrize("name", NAMES)
def test_explain_is_read_as_it_was_meant(name: str) -> None:
    line = explain_command(name, "2026-03-05T10:00:00.250Z", cluster=name, warehouse=f"/srv/{name}")
    read = parsed(words_of(line))

    assert (read["topic"], read["cluster"], read["warehouse"]) == (name, name, f"/srv/{name}")
    assert read["at"] == datetime(2026, 3, 5, 10, 0, 0, 250_000, tzinfo=UTC)


@pytest.mark.parametrize("name", [name for name in NAMES if "/" not in name])
def test_history_is_read_as_it_was_meant(name: str) -> None:
    read = parsed(words_of(history_command((name, name, 3), day="2026-03-05", warehouse="s3a://b/w")))

    assert (read["broker"], read["warehouse"]) == ((name, name, 3), "s3a://b/w")
    assert (read["last_day"], read["days"]) == (date(2026, 3, 5), 7)


@pytest.mark.parametrize(
    "name", [pytest.param("a/b", id="separator"), pytest.param("a\x1b", id="control"), pytest.param("", id="empty")]
)
def test_a_broker_whose_name_the_command_line_would_read_otherwise_has_no_command(name: str) -> None:
    assert history_command((name, "a", 0), day="2026-03-05", warehouse="/w") == ""
    assert history_command(("c", name, 0), day="2026-03-05", warehouse="/w") == ""


def test_a_topic_that_the_page_cannot_show_has_no_command() -> None:
    assert explain_command("a\n", "2026-03-05T10:00:00.250Z", cluster="c", warehouse="/w") == ""


def test_every_command_of_the_page_is_one() -> None:
    shown = re.findall('<code class="copied">(.*?)</code>', page(busy_report(), Drawn(warehouse="/srv/ware house")))
    names = [words_of(html.unescape(line))[0] for line in shown]

    assert set(names) == {"explain", "history"}
    assert [parsed(words_of(html.unescape(line)))["warehouse"] for line in shown] == ["/srv/ware house"] * len(shown)
