"""The templates, and the one place where a text becomes HTML: escaped by jinja2, without control characters."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from spark_jobs.report.classes import cause_name
from spark_jobs.report.wording import NOTHING, counted, printable


def _shown(value: object) -> str:
    """Return what an expression of a template shows, before it is escaped; Markup comes from a macro and stays."""
    if isinstance(value, Markup):
        return value
    return NOTHING if value is None else printable(str(value))


TEMPLATES = Environment(
    loader=PackageLoader("spark_jobs.report"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
TEMPLATES.filters |= {"cause_name": cause_name, "counted": counted}
