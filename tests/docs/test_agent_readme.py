"""Every metric of the agent has its line in its README."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "broker_agent" / "README.md").read_text(encoding="utf-8")
KINDS = r"(Gauge|Counter|Histogram|_TopGauge|GaugeMetricFamily|CounterMetricFamily)\(\s*\"(pointsman_agent_[a-z_]+)\""


def named() -> list[str]:
    """Names as they are scraped, from the sources: which are made depends on the configuration."""
    found = {}
    for file in (ROOT / "broker_agent").rglob("*.py"):
        for kind, name in re.findall(KINDS, file.read_text(encoding="utf-8")):
            found[name] = f"{name.removesuffix('_total')}_total" if kind.startswith("Counter") else name
    return sorted(found.values())


def test_there_are_metrics_of_every_part() -> None:
    assert len(named()) > 30


def test_each_metric_is_explained() -> None:
    assert [name for name in named() if not re.search(rf"`{name}[`{{]", README)] == []
