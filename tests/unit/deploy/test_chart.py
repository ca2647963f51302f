"""The Helm chart, by Helm: it is valid, what is rendered from it is fresh, and unknown values are refused.

What is rendered is read in `test_rendered_chart.py`, without Helm.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from deploy.dev import render_charts
from deploy.dev.render_charts import CHART, HEAD, K8S, HelmFailed, helm, rendered, renderings
from tests.e2e.test_docs_as_pasted import blocks

pytestmark = pytest.mark.skipif(
    render_charts.program() is None, reason="helm is missing: deploy/dev/install_programs.sh charts (needs Go)"
)

OF_EACH = pytest.mark.parametrize("path", renderings(), ids=lambda path: path.stem)


@OF_EACH
def test_the_rendered_file_is_fresh(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == rendered(renderings()[path]), "run `make charts`"


@pytest.mark.parametrize(
    "path", [each for each in renderings() if "fixtures" in each.parts], ids=lambda path: path.stem
)
def test_the_chart_passes_lint(path: Path) -> None:
    helm("lint", "--strict", "--quiet", str(CHART), *renderings()[path])


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"nameServer": {"replica": 2}}, "additional properties 'replica' not allowed"),
        ({"nameServer": {"replicas": 0}}, "at '/nameServer/replicas': minimum: got 0, want 1"),
        (
            {"nameServer": {"settings": {"route": {"max_brokers": 1}}}},
            "at '/nameServer/settings': additional properties 'route' not allowed",
        ),
        ({"nameServer": {"settings": {"log": {"level": {"a": 1}}}}}, "'/nameServer/settings/log/level'"),
        ({"tls": {"mode": "on"}}, "at '/tls/mode': value must be one of 'secret', 'certManager', 'none'"),
        ({"tls": {"mode": "certManager"}}, "at '/tls/certManager/issuer/name': minLength: got 0, want 1"),
        ({"access": {"grants": [{"identity": "ops"}]}}, "at '/access/grants/0': missing property 'role'"),
        ({"monitoring": {"runbookUrl": "runbook.md"}}, "'/monitoring/runbookUrl'"),
    ],
    ids=lambda value: "" if isinstance(value, str) else re.sub(r"\W+", "-", str(value)).strip("-"),
)
def test_a_wrong_value_is_refused_with_its_place(values: dict[str, object], problem: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    with pytest.raises(HelmFailed) as refused:
        rendered([f"--values={file}"])
    assert problem in str(refused.value)


def test_the_schema_knows_exactly_the_values_with_a_default() -> None:
    schema = yaml.safe_load((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

    def compare(known: dict[str, object], given: dict[str, object], at: str) -> None:
        properties = known.get("properties")
        if not isinstance(properties, dict):
            return
        assert set(properties) - {"global"} == set(given), at
        for key, value in given.items():
            if isinstance(value, dict) and value and "additionalProperties" in properties[key]:
                compare(properties[key], value, f"{at}.{key}")

    compare(schema, values, "")


OTHER_CHART = {
    "Chart.yaml": """
apiVersion: v2
name: orders
version: 1.0.0
dependencies: [{name: pointsman, version: ">=0.0.0-0"}]
""",
    "values.yaml": "pointsman: {nameServer: {enabled: false}}\n",
    "templates/broker.yaml": """
apiVersion: v1
kind: Pod
metadata: {name: orders, labels: {pointsman-agent: sidecar}}
spec:
  initContainers:
    {{- include "pointsman.agent.container" (dict "image" "agent:1" "host" "$(POD_IP)" "port" 6380
        "configMap" "settings" "tlsSecret" "certificate" "nameServers" "ns.fleet.svc") | nindent 4 }}
  containers: [{name: broker, image: "broker:1"}]
  volumes:
    {{- include "pointsman.agent.volumes" (dict "configMap" "settings" "tlsSecret" "certificate") | nindent 4 }}
""",
}


def test_another_chart_includes_the_agent_in_its_broker(tmp_path: Path) -> None:
    for name, text in OTHER_CHART.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    shutil.copytree(CHART, tmp_path / "charts" / "pointsman")
    objects = [each for each in yaml.safe_load_all(helm("template", "eu", str(tmp_path))) if each]
    (pod,) = [each for each in objects if each["kind"] == "Pod"]
    assert "StatefulSet" not in {each["kind"] for each in objects}
    (agent,) = pod["spec"]["initContainers"]
    assert (agent["image"], agent["restartPolicy"]) == ("agent:1", "Always")
    environment = {each["name"]: each.get("value") for each in agent["env"]}
    assert environment["AGENT_BROKER__ADDR"] == "$(POD_IP):6380"
    assert environment["AGENT_NAME_SERVERS__DNS"] == "ns.fleet.svc:9876"
    assert {mount["name"] for mount in agent["volumeMounts"]} == {volume["name"] for volume in pod["spec"]["volumes"]}


def notes(folder: Path, *arguments: str) -> str:
    """Return the notes after an installation, which Helm shows only where it reaches a cluster."""
    chart = shutil.copytree(CHART, folder / "chart")
    text = (chart / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    template = (
        f'{{{{- define "notes" -}}}}{text}{{{{- end -}}}}\nkind: Notes\nnotes: {{{{ include "notes" . | quote }}}}\n'
    )
    (chart / "templates" / "notes.yaml").write_text(template, encoding="utf-8")
    shown = helm(
        "template", "pointsman", str(chart), "--namespace=fleet", "--show-only=templates/notes.yaml", *arguments
    )
    return str(yaml.safe_load(shown)["notes"])


def test_the_notes_say_what_is_to_be_done_next(tmp_path: Path) -> None:
    text = notes(tmp_path / "default")
    assert "wait for the Secret pointsman-namesrv-tls with tls.crt, tls.key and ca.crt" in text
    assert "pointsman-namesrv-2.pointsman-namesrv.fleet.svc:9876" in text
    assert "Every caller may do everything" in text
    assert "PLAINTEXT" not in text
    assert "PLAINTEXT" in notes(tmp_path / "plaintext", "--set=tls.mode=none")


def test_the_commands_of_the_page_on_installing_give_the_default_with_a_registry() -> None:
    """But for the cluster: ``helm template`` makes of the same words what ``helm install`` sends to it."""
    (block,) = blocks("bash", "install.md", "On Kubernetes")
    kubectl, secret, install = (shlex.split(line) for line in block.splitlines())
    assert install[:2] == ["helm", "install"]
    found = HEAD + helm("template", *install[2:])
    default = (K8S / "pointsman.yaml").read_text(encoding="utf-8")
    image = "image: pointsman-namesrv:"
    assert image in default
    assert found == default.replace(image, "image: registry.example.com/pointsman/pointsman-namesrv:")
    namespace = install[install.index("--namespace") + 1]
    assert (kubectl[-1], secret[2]) == (namespace, namespace)
    assert f"{{secretName: {secret[secret.index('generic') + 1]}, " in found
