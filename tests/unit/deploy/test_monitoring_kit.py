"""The alerts, with their tests and their runbook, and the dashboard that Grafana loads."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from pointsman_ctl.command_line import cli
from tests.kit.operations.monitoring_kit import (
    DASHBOARD,
    MONITORING,
    ROOT,
    RULES_TEST,
    VARIABLES,
    alerts,
    expressions,
    panels,
)

SECTIONS = ["Overview", "Liveness", "Routes and watches", "RPC and remoting", "Process", "History"]


def test_the_alerts_pass_their_tests() -> None:
    """Run promtool, which ``make setup`` installs."""
    done = subprocess.run(
        [ROOT / "deploy" / "dev" / "check_alerts.sh"], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_alerts_tests_fail_where_an_alert_is_broken(tmp_path: Path) -> None:
    rules = (MONITORING / "prometheus" / "rules.yaml").read_text(encoding="utf-8")
    (tmp_path / "rules.yaml").write_text(rules.replace("broker_up == 0", "broker_up == 1"), encoding="utf-8")
    tests = tmp_path / "rules_test.yaml"
    tests.write_text(RULES_TEST.read_text(encoding="utf-8"), encoding="utf-8")
    done = subprocess.run(
        ["promtool", "test", "rules", tests], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode != 0
    assert "PointsmanBrokerProbeFailing" in done.stdout + done.stderr


@pytest.mark.parametrize("name", alerts())
def test_each_alert_is_complete(name: str) -> None:
    rule = alerts()[name]
    assert re.search(r"labels: \{severity: (warning|critical)\}", rule)
    assert re.search(r"^ +summary: .{10,}$", rule, re.MULTILINE)
    assert re.search(r"^ +description: .{20,}$", rule, re.MULTILINE)
    assert f"runbook_url: deploy/runbook.md#{name.lower()}\n" in rule
    assert f"- name: {name}\n" in RULES_TEST.read_text(encoding="utf-8")


def test_the_commands_of_the_runbook_are_those_of_pointsmanctl() -> None:
    runbook = (ROOT / "deploy" / "runbook.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^\$ |`)pointsmanctl ([a-z][a-z-]+)", runbook, re.MULTILINE))
    assert len(named) > 8
    assert named <= cli.commands.keys()


def test_the_runbook_has_a_section_for_each_alert_and_no_other() -> None:
    runbook = (ROOT / "deploy" / "runbook.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (Pointsman\w+)\n(.*?)(?=^##|\Z)", runbook, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(alerts())
    for part in ("**Meaning**", "**Impact**", "**First**", "**Then**", "**Escalate**"):
        assert [name for name, text in sections.items() if part not in text] == []


def test_the_dashboard_is_a_model_that_grafana_loads() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == SECTIONS
    assert len(panels()) > 30
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert (DASHBOARD["id"], DASHBOARD["uid"]) == (None, "pointsman")
    for panel in panels():
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]
        uids = {panel["datasource"]["uid"], *(target["datasource"]["uid"] for target in panel["targets"])}
        assert uids == {"${datasource}"}, panel["title"]


def test_no_panel_of_the_dashboard_covers_another() -> None:
    taken = dict[tuple[int, int], str]()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for place in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            assert taken.setdefault(place, panel["title"]) == panel["title"]


def test_each_variable_that_the_dashboard_uses_is_defined() -> None:
    own = {f"${each['name']}" for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__all"}
    assert own == {"$datasource", "$job", "$instance", "$cluster"}
    assert {f"${name}" for name in used} <= own | set(VARIABLES)


def test_each_expression_of_the_dashboard_is_promql(tmp_path: Path) -> None:
    rules = [
        {"record": f"expression:{number}", "expr": text}
        for number, text in enumerate(text for texts in expressions().values() for text in texts)
    ]
    file = tmp_path / "expressions.yaml"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    done = subprocess.run(["promtool", "check", "rules", file], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
