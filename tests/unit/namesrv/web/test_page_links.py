"""Addresses of pages, and commands that the real command line reads as they were meant, whatever the names are."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from pointsman_namesrv.web.page_links import (
    broker_path,
    command,
    filled,
    fleet_path,
    group_path,
    option,
    topic_path,
    with_parameters,
)
from tests.kit.ctl.command_line import parsed

NAMES = ["orders", "-t", "--help", "%RETRY%group", "a|b", "%25", "-"]
SERVERS = ("ns1:9876", "ns2:9876")


@pytest.mark.parametrize("name", NAMES)
def test_a_command_is_read_as_it_was_meant(name: str) -> None:
    line = command(SERVERS, "why", *option("cluster", name), argument=name)
    read, found = parsed(line)

    assert read == "why"
    assert (found["broker"], found["cluster"], found["namesrv"]) == (name, name, SERVERS)


def test_a_command_without_names_has_no_empty_words() -> None:
    assert command((), "topics", *option("cluster", "")) == "pointsmanctl topics"


@pytest.mark.parametrize("name", [*NAMES, "<b>", "a/b", "ä"])
def test_a_path_contains_the_name_and_nothing_else_of_it(name: str) -> None:
    for path, parts in ((broker_path(name, name), 2), (topic_path(name), 1), (group_path(name), 1)):
        assert [unquote(part) for part in path.split("/")[2:]] == [name] * parts
        assert not {"<", "?", "#", " "} & set(path)


def test_parameters_without_a_value_are_left_out() -> None:
    assert fleet_path(cluster="", state="") == "/"
    found = urlsplit(with_parameters("/topics", {"name": "a&b=c", "cluster": ""}))
    assert (found.path, parse_qs(found.query)) == ("/topics", {"name": ["a&b=c"]})


def test_the_names_in_the_address_of_a_dashboard_are_quoted() -> None:
    template = "https://grafana/d/x?var-c={cluster}&var-b={broker}"
    assert filled(template, "c 1", "%a&b") == "https://grafana/d/x?var-c=c%201&var-b=%25a%26b"
    assert filled("", "c", "b") == ""
