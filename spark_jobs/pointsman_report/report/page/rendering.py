"""The templates, and the one place where a text becomes HTML: escaped by jinja2, without control characters."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pointsman_report.report.classes import ADVICE, STATES, cause_name
from pointsman_report.report.findings import scope
from pointsman_report.report.wording import (
    NOTHING,
    ahead_or_behind,
    counted,
    duration,
    milliseconds,
    number,
    percent,
    printable,
    some,
)


def members(row: dict[str, Any]) -> str:
    """Name the first brokers of an incident or a rolling restart."""
    names = [f"{member['broker_name']}/{member['broker_id']}" for member in row["members"]]
    return some(names, of=row["brokers"], most=3)


def _shown(value: object) -> str:
    """Return what an expression of a template shows, before it is escaped; Markup comes from a macro and stays."""
    if isinstance(value, Markup):
        return value
    return NOTHING if value is None else printable(str(value))


TEMPLATES = Environment(
    loader=PackageLoader("pointsman_report.report"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
for _filter in (ahead_or_behind, cause_name, counted, duration, members, milliseconds, number, percent, scope, some):
    TEMPLATES.filters[_filter.__name__] = _filter
TEMPLATES.globals |= {"ADVICE": ADVICE, "STATES": STATES}
# What is HTML is Markup where it is made: no template can declare a text to be it.
del TEMPLATES.filters["safe"]
