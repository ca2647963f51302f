"""What deploy/monitoring holds: the alerts and the dashboards, read for tests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "deploy" / "monitoring"
RULES = MONITORING / "prometheus" / "rules.yaml"
RULES_TEST = MONITORING / "prometheus" / "rules_test.yaml"
Dashboard: TypeAlias = dict[str, Any]


def _dashboard(name: str) -> Dashboard:
    model: Dashboard = json.loads((MONITORING / "grafana" / f"{name}.json").read_text(encoding="utf-8"))
    return model


FLEET, GROUPS = _dashboard("pointsman"), _dashboard("groups")
DASHBOARDS = (FLEET, GROUPS)
VARIABLES = {
    "$__rate_interval": "1m",
    "$job": "pointsman-namesrv",
    "$instance": ".*",
    "$cluster": ".*",
    "$group": ".*",
    "$topic": ".*",
}
"""Of the dashboards, with what a test puts in their place."""


def alerts() -> dict[str, str]:
    """Return the text of each alert's rule, by its name."""
    parts = re.split(r"^ *- alert: ", RULES.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: part for part in parts}


def panels(dashboard: Dashboard) -> list[dict[str, Any]]:
    """Return the panels of a dashboard that show something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions(dashboard: Dashboard) -> dict[str, list[str]]:
    """Return the expressions of each panel and of the annotations, by title, with values for their variables."""
    shown = {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in panels(dashboard)}
    shown |= {each["name"]: [each["expr"]] for each in dashboard["annotations"]["list"]}
    return {title: [_filled_in(text) for text in texts] for title, texts in shown.items()}


def _filled_in(expression: str) -> str:
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression, expression
    return expression


def named_metrics(text: str) -> set[str]:
    """Return the metrics of the programs and of their processes that a text names."""
    found = set(re.findall(r"\b(?:pointsman_(?:namesrv|agent|client|report|observe)|process)_[a-z_]+\b", text))
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in found}
