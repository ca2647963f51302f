"""The alerts, with their tests and their runbook, and the dashboards that Grafana loads."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from pointsman_ctl.command_line import cli
from tests.kit.operations.monitoring_kit import (
    DASHBOARDS,
    FLEET,
    GROUPS,
    MONITORING,
    ROOT,
    RULES_TEST,
    VARIABLES,
    Dashboard,
    alerts,
    expressions,
    panels,
)

SECTIONS = {
    "pointsman": [
        "Overview",
        "Liveness",
        "Routes and watches",
        "RPC and remoting",
        "Process",
        "History",
        "Observed name servers",
    ],
    "pointsman-groups": ["Overview", "Groups", "Queues", "Consumers", "Producers"],
}
of_each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=[each["uid"] for each in DASHBOARDS])


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


@of_each_dashboard
def test_a_dashboard_is_a_model_that_grafana_loads(dashboard: Dashboard) -> None:
    rows = [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"]
    assert rows == SECTIONS[dashboard["uid"]]
    assert len(panels(dashboard)) > 20
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert dashboard["id"] is None
    for panel in panels(dashboard):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]
        uids = {panel["datasource"]["uid"], *(target["datasource"]["uid"] for target in panel["targets"])}
        assert uids == {"${datasource}"}, panel["title"]


@of_each_dashboard
def test_no_panel_of_a_dashboard_covers_another(dashboard: Dashboard) -> None:
    taken = dict[tuple[int, int], str]()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for place in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            assert taken.setdefault(place, panel["title"]) == panel["title"]


@pytest.mark.parametrize(
    ("dashboard", "names"),
    [(FLEET, {"$datasource", "$job", "$instance", "$cluster"}), (GROUPS, {"$datasource", "$group", "$topic"})],
)
def test_each_variable_that_a_dashboard_uses_is_defined(dashboard: Dashboard, names: set[str]) -> None:
    own = {f"${each['name']}" for each in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard))) - {"__all"}
    assert own == names
    assert {f"${name}" for name in used} <= own | set(VARIABLES)


@of_each_dashboard
def test_each_expression_of_a_dashboard_is_promql(dashboard: Dashboard, tmp_path: Path) -> None:
    rules = [
        {"record": f"expression:{number}", "expr": text}
        for number, text in enumerate(text for texts in expressions(dashboard).values() for text in texts)
    ]
    file = tmp_path / "expressions.yaml"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    done = subprocess.run(["promtool", "check", "rules", file], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_panels_show_the_skew_of_a_topic_and_the_time_to_catch_up_of_groups_whose_lag_falls(tmp_path: Path) -> None:
    texts, prefix = expressions(GROUPS), "pointsman_agent"
    series = {
        f'{prefix}_topic_highest_queue_puts_per_second{{topic="orders",instance="a"}}': 30,
        f'{prefix}_topic_puts_per_second{{topic="orders",instance="a"}}': 40,
        f'{prefix}_topic_queues{{topic="orders",instance="a"}}': 4,
        f'{prefix}_topic_highest_queue_puts_per_second{{topic="orders",instance="b"}}': 10,
        f'{prefix}_topic_puts_per_second{{topic="orders",instance="b"}}': 20,
        f'{prefix}_topic_queues{{topic="orders",instance="b"}}': 4,
        f'{prefix}_topic_highest_queue_puts_per_second{{topic="idle"}}': 0,
        f'{prefix}_topic_puts_per_second{{topic="idle"}}': 0,
        f'{prefix}_topic_queues{{topic="idle"}}': 4,
    }
    for group, lag, puts, commits in (
        ("falls", 100, 3, 5),
        ("grows", 100, 5, 3),
        ("stays", 100, 5, 5),
        ("done", 0, 3, 5),
    ):
        labels = f'{{group="{group}",topic="orders"}}'
        series |= {f"{prefix}_group_lag_messages{labels}": lag, f"{prefix}_group_puts_per_second{labels}": puts}
        series[f"{prefix}_group_commits_per_second{labels}"] = commits
    expected = {"Hot queues": ('{topic="orders"}', 4.0), "Time to catch up": ('{group="falls", topic="orders"}', 50.0)}
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": str(value)} for name, value in series.items()],
        "promql_expr_test": [
            {"expr": texts[title][0], "eval_time": "0m", "exp_samples": [{"labels": labels, "value": value}]}
            for title, (labels, value) in expected.items()
        ],
    }
    file = tmp_path / "panels.yaml"  # JSON is YAML
    file.write_text(json.dumps({"tests": [case]}), encoding="utf-8")
    done = subprocess.run(["promtool", "test", "rules", file], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
