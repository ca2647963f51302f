"""Pages as HTML: jinja2 escapes every value, and control characters are replaced. Pure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from datetime import datetime
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pointsman import queue_findings
from pointsman.names import printable
from pointsman.v1 import admin_service_pb2
from pointsman.wire.broker_explanation import outage_reason
from pointsman.wire.operator_texts import counted, duration_text, rate_text, time_text
from pointsman_namesrv.core.flap_penalties import FlapRules
from pointsman_namesrv.web import fleet_page, past_pages, topic_pages
from pointsman_namesrv.web.page_data import NodeFacts
from pointsman_namesrv.web.page_links import command, fleet_path

PAGES = (
    ("Fleet", "/"),
    ("Topics", "/topics"),
    ("Groups", "/groups"),
    ("Events", "/events"),
    ("Changes", "/changes"),
    ("Connected", "/connected"),
)
OF_OBSERVERS = ("/", "/topics", "/events")
"""Of these, what an observer shows."""
STATES: Mapping[str, str] = {
    **dict.fromkeys(("UP", "READY", "EQUAL", "WATCHED"), "ok"),
    **dict.fromkeys(("OUT", "GONE", "NO BROKER", "NOT ROUTED", "ON"), "alarm"),
    **dict.fromkeys(
        ("SUSPECT", "PROVISIONAL", "PROTECTED", "WARMING", "DRAINING", "DIFFERS", "UNREACHABLE", "MISSING"), "warning"
    ),
    **dict.fromkeys(("FLAPPING", "HOLD", "OFF", "UNKNOWN"), "warning"),
}
"""The colour of each state; all others have none."""


def _shown(value: object) -> object:
    """Return what an expression shows, before it is escaped; Markup comes from a macro and stays."""
    return value if isinstance(value, Markup) else "" if value is None else printable(str(value))


def utc(at: datetime) -> str:
    """Show a UTC time with seconds."""
    return f"{at:%Y-%m-%d %H:%M:%S}"


def guard_mode(mode: admin_service_pb2.GuardMode.ValueType) -> str:
    """Show the mode of a guard."""
    return admin_service_pb2.GuardMode.Name(mode).removeprefix("GUARD_MODE_")


def _fleet_path(parameters: Mapping[str, str]) -> str:
    return fleet_path(**parameters)


def _doctor_command(node: NodeFacts, name: str = "") -> str:
    """Return the command that checks the fleet, or what has a name, over all name servers and agents."""
    return command(node.servers, "doctor", argument=name)


def _source(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


def _digest(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


STYLE, SCRIPT = _source("page.css"), _source("page.js")
PAGE_POLICY = (
    f"default-src 'none'; script-src {_digest(SCRIPT)}; style-src {_digest(STYLE)}; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""No script and no style but those of the layout; forms lead to this server alone."""

TEMPLATES = Environment(
    loader=PackageLoader("pointsman_namesrv.web"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
)
for _filter in (counted, duration_text, guard_mode, outage_reason, rate_text, time_text, utc):
    TEMPLATES.filters[_filter.__name__] = _filter
TEMPLATES.filters["fleet_path"] = _fleet_path
TEMPLATES.globals |= {
    "FLEET_STATES": fleet_page.STATES,
    "MEANINGS": topic_pages.MEANINGS,
    "OF_OBSERVERS": OF_OBSERVERS,
    "PAGES": PAGES,
    "PAST_STATES": past_pages.PAST_STATES,
    "RULES": FlapRules(),
    "doctor_command": _doctor_command,
    "SCRIPT": Markup(SCRIPT),  # noqa: S704  # our own file
    "SKEW_ABOVE": queue_findings.SKEW_ABOVE,
    "STATES": STATES,
    "STYLE": Markup(STYLE),  # noqa: S704  # as above
    "TOPIC_PROBLEMS": topic_pages.PROBLEMS,
}
# HTML is marked as Markup where it is made; templates cannot mark a string as safe.
del TEMPLATES.filters["safe"]


def rendered(template: str, page: object, *, tab: str) -> bytes:
    """Render a view model with its template; ``tab``: the path of the page in the navigation."""
    return TEMPLATES.get_template(template).render(page=page, tab=tab).encode()


def rendered_error(code: str, title: str, message: str) -> bytes:
    """Render a refusal for a browser."""
    return TEMPLATES.get_template("error.html").render(code=code, title=title, message=message, tab="").encode()
