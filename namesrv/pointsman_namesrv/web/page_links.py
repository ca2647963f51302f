"""Addresses of the pages, and the commands of ``pointsmanctl`` that show the same. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from urllib.parse import quote, urlencode

PROGRAM = "pointsmanctl"


def broker_path(cluster: str, broker_name: str) -> str:
    """Return the page of a broker name."""
    return f"/brokers/{quote(cluster, safe='')}/{quote(broker_name, safe='')}"


def topic_path(topic: str) -> str:
    """Return the page of a topic."""
    return f"/topics/{quote(topic, safe='')}"


def group_path(group: str) -> str:
    """Return the page of a consumer group."""
    return f"/groups/{quote(group, safe='')}"


def names_at(listed: str, path: str) -> tuple[str, ...] | None:
    """Return the names in a path, in their order, for the words in capitals of a listed one; None: it is another."""
    parts, pattern = path.split("/"), listed.split("/")
    if len(pattern) != len(parts):
        return None
    pairs = list(zip(parts, pattern, strict=True))
    names = tuple(part for part, word in pairs if word.isupper())
    return names if all(names) and all(word.isupper() or part == word for part, word in pairs) else None


def with_parameters(path: str, parameters: Mapping[str, str]) -> str:
    """Return a path with those parameters that have a value."""
    query = urlencode([(name, value) for name, value in parameters.items() if value])
    return f"{path}?{query}" if query else path


def fleet_path(**parameters: str) -> str:
    """Return the page of the fleet, with a filter."""
    return with_parameters("/", parameters)


def moment_text(at: datetime) -> str:
    """Return a UTC time as addresses and commands have it."""
    return at.isoformat().replace("+00:00", "Z")


def command(servers: Sequence[str], *words: str, argument: str = "") -> str:
    """Return a command line to copy; ``words``: the command and options with ``=``. ``argument``: a name, of any form.

    A name that begins with a dash follows ``--``.
    """
    shared = ("--namesrv", ",".join(servers)) if servers else ()
    last = (*(("--",) if argument.startswith("-") else ()), argument) if argument else ()
    return " ".join(map(shlex.quote, (PROGRAM, *shared, *words, *last)))


def option(name: str, value: str) -> tuple[str, ...]:
    """Return an option with its value, which may begin with a dash; none without a value."""
    return (f"--{name}={value}",) if value else ()


def filled(template: str, cluster: str, broker_name: str) -> str:
    """Return the address of a dashboard from its template with ``{cluster}`` and ``{broker}``; empty without one."""
    return template.replace("{cluster}", quote(cluster, safe="")).replace("{broker}", quote(broker_name, safe=""))
