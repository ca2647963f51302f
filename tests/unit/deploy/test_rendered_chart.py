"""What is rendered from the Helm chart, against the programs: their settings, ports, users, files and command lines."""

from __future__ import annotations

import re
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deploy.dev.render_charts import CHART, K8S
from pointsman_agent.config import load as load_agent
from pointsman_namesrv.config import NameServerConfig
from pointsman_namesrv.config import load as load_name_server
from tests.kit.certificates import Authority
from tests.kit.operations.manifests import RENDERED, Manifest, containers, manifests, of_kind, plain_environment, pods
from tests.kit.operations.monitoring_kit import ROOT, alerts
from tests.kit.report.command_line import parsed

KUBERNETES = ("1.30", "1.34")
CUSTOM = {"Certificate", "ServiceMonitor", "PodMonitor", "PrometheusRule"}
"""Kinds of cert-manager and the Prometheus operator, of which no schema is at hand."""
STATE, IMAGES_USER = "/var/lib/pointsman", 65532
OF_EACH = pytest.mark.parametrize("path", RENDERED.values(), ids=list(RENDERED))


@pytest.mark.parametrize("version", KUBERNETES)
@OF_EACH
def test_kubernetes_takes_it(path: Path, version: str) -> None:
    found = [each for each in manifests(path) if each["kind"] not in CUSTOM]
    assert found
    for each in found:
        kubernetes_validate.validate(each, version, strict=True)


@OF_EACH
def test_every_container_is_locked_down_and_mounts_only_what_its_pod_has(path: Path) -> None:
    for name, pod in pods(path).items():
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["automountServiceAccountToken"] is False
        volumes = {each["name"] for each in pod.get("volumes", ())}
        claims = [
            claim["metadata"]["name"]
            for each in of_kind(path, "StatefulSet").values()
            if each["metadata"]["name"] == name
            for claim in each["spec"]["volumeClaimTemplates"]
        ]
        mounted = set()
        for each in containers(pod):
            security = each["securityContext"]
            assert security["readOnlyRootFilesystem"]
            assert not security["allowPrivilegeEscalation"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in each["resources"]["limits"]
            mounted |= {mount["name"] for mount in each["volumeMounts"]}
        assert mounted == volumes | set(claims)


def name_server_pod(path: Path) -> tuple[Manifest, Manifest]:
    """Return the specification of a name server's pod, and its container."""
    pod = pods(path)["pointsman-namesrv"]
    (container,) = pod["containers"]
    return pod, container


def name_server_toml(path: Path) -> str:
    return str(of_kind(path, "ConfigMap")["pointsman-namesrv"]["data"]["namesrv.toml"])


@pytest.fixture
def tls(authority: Authority) -> Path:
    """A folder with the files of a Secret of type kubernetes.io/tls."""
    files = authority.issue("tls")
    for name, file in {"tls.crt": files.certificate, "tls.key": files.key, "ca.crt": files.ca}.items():
        file.rename(authority.folder / name)
    return authority.folder


def with_files(settings: dict[str, str], tls: Path) -> dict[str, str]:
    """Return settings of the environment with the mounted files of a test."""
    return {name: value.replace("/etc/pointsman-tls", str(tls)) for name, value in settings.items()}


def name_server_config(path: Path, tls: Path) -> NameServerConfig:
    """Return the configuration as the server reads it."""
    file = tls / "namesrv.toml"
    file.write_text(name_server_toml(path).replace("/etc/pointsman-tls", str(tls)), encoding="utf-8")
    return load_name_server(file, with_files(plain_environment(name_server_pod(path)[1]), tls))


WITH_NAME_SERVERS = [path for path in RENDERED.values() if "pointsman-namesrv" in of_kind(path, "StatefulSet")]
OF_NAME_SERVERS = pytest.mark.parametrize("path", WITH_NAME_SERVERS, ids=lambda path: path.stem)
WITH_SIDECARS = [path for path in RENDERED.values() if any("initContainers" in pod for pod in pods(path).values())]


@OF_NAME_SERVERS
def test_the_ports_and_probes_are_those_of_the_name_servers_settings(path: Path, tls: Path) -> None:
    config, (_, container) = name_server_config(path, tls), name_server_pod(path)
    ports = {each["name"]: str(each["containerPort"]) for each in container["ports"]}
    listens = {"grpc": config.server.listen, "metrics": config.monitoring.listen, "rocketmq": config.remoting.listen}
    assert ports == {name: listen.rpartition(":")[2] for name, listen in listens.items() if listen}
    assert {listen.rpartition(":")[0] for listen in listens.values() if listen} == {"0.0.0.0"}
    for service in of_kind(path, "Service").values():
        if service["spec"]["selector"]["app.kubernetes.io/component"] == "namesrv":
            assert {each["name"]: str(each["port"]) for each in service["spec"]["ports"]} == ports

    ready = container["readinessProbe"]["httpGet"]
    assert (ready["path"], ready["port"]) == ("/healthz", "metrics")
    assert ready["scheme"] == ("HTTPS" if config.monitoring.tls else "HTTP")
    # A server that warms up is alive; over TLS Kubernetes speaks no gRPC.
    live = container["livenessProbe"]
    assert ("grpc" in live) == (not config.tls.certificate)
    if "grpc" in live:
        assert live["grpc"] == {"port": int(ports["grpc"]), "service": "live"}


@OF_NAME_SERVERS
def test_the_files_of_the_settings_are_mounted_and_the_state_is_in_the_volume(path: Path, tls: Path) -> None:
    config, (pod, container) = name_server_config(path, tls), name_server_pod(path)
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    named = {str(Path(file).parent) for file in re.findall(r'"(/etc/[^"]+)"', name_server_toml(path))}
    assert named == {at for at in mounts if at.startswith("/etc/pointsman-")}
    writable = {at for at, each in mounts.items() if not each.get("readOnly")}
    assert writable == {STATE, *(["/histories"] if config.history.ship else [])}
    assert not Path(config.history.directory).is_absolute()
    assert {pod["securityContext"][key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {IMAGES_USER}
    # Before SIGTERM, for running calls, and for the history's last file.
    sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > sleep + config.server.stop_grace_seconds + 10


@OF_NAME_SERVERS
def test_name_servers_compare_their_routes_by_names_that_their_service_gives(path: Path, tls: Path) -> None:
    config = name_server_config(path, tls)
    replicas = of_kind(path, "StatefulSet")["pointsman-namesrv"]["spec"]["replicas"]
    host = "pointsman-namesrv.pointsman.svc"
    peers = [f"pointsman-namesrv-{number}.{host}:9876" for number in range(replicas)]
    assert list(config.peers.name_servers) in ([], peers)
    headless = of_kind(path, "Service")["pointsman-namesrv"]["spec"]
    assert (headless["clusterIP"], headless["publishNotReadyAddresses"]) == ("None", True)
    if config.peers.name_servers and config.tls.certificate:
        assert config.peers.server_name == host


@pytest.mark.parametrize("path", WITH_SIDECARS, ids=lambda path: path.stem)
def test_an_agent_reads_its_settings_and_its_probe_is_of_its_pod(path: Path, tls: Path) -> None:
    (name,) = [name for name, pod in pods(path).items() if "initContainers" in pod]
    (agent,) = pods(path)[name]["initContainers"]
    assert agent["restartPolicy"] == "Always"
    facts = {"POD_NAME": f"{name}-0", "POD_NAMESPACE": "pointsman"}
    environment = {
        variable: re.sub(r"\$\((\w+)\)", lambda match: facts[match[1]], value)
        for variable, value in plain_environment(agent).items()
    }
    file = tls / "agent.toml"
    file.write_text(of_kind(path, "ConfigMap")[f"{name}-agent"]["data"]["agent.toml"], encoding="utf-8")
    config = load_agent(file, with_files(environment, tls))
    assert (config.broker.name, config.name_servers.dns) == (f"{name}-0", "pointsman-namesrv.pointsman.svc:9876")
    host = f"{name}-0.{name}.pointsman.svc"
    assert (config.broker.addr, config.broker.agent_addr) == (f"{host}:6379", f"{host}:9880")
    assert config.probe.target == "127.0.0.1:6379"
    assert {str(each["containerPort"]) for each in agent["ports"]} == {
        each.listen.rpartition(":")[2] for each in (config.rpc, config.monitoring)
    }
    assert of_kind(path, "Service")[name]["spec"]["publishNotReadyAddresses"]
    assert config.credentials.uses_tls == bool(config.tls.certificate)


@pytest.fixture(params=["pointsman-with-report", "report"])
def cron_job(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The specification of the nightly report's CronJob."""
    (found,) = of_kind(RENDERED[request.param], "CronJob").values()
    spec: dict[str, Any] = found["spec"]
    return spec


def test_the_cron_job_starts_on_the_day_after_the_one_that_it_computes_and_never_twice_at_a_time(
    cron_job: dict[str, Any],
) -> None:
    minute, hour, *rest = cron_job["schedule"].split()
    assert (rest, cron_job["timeZone"]) == (["*", "*", "*"], "Etc/UTC")
    assert cron_job["concurrencyPolicy"] == "Forbid"
    job = cron_job["jobTemplate"]["spec"]
    last_end = timedelta(
        hours=int(hour),
        minutes=int(minute),
        seconds=cron_job["startingDeadlineSeconds"] + job["activeDeadlineSeconds"],
    )
    assert last_end < timedelta(days=1)
    assert (job["template"]["spec"]["restartPolicy"], job["backoffLimit"]) == ("Never", 2)


def test_findings_are_no_failure_of_the_job_or_one_that_is_not_repeated(cron_job: dict[str, Any]) -> None:
    job = cron_job["jobTemplate"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    given = parsed(container["args"])
    assert given["requested_day"] == "yesterday"
    if given["exit_zero"]:
        assert "podFailurePolicy" not in job
    else:
        (rule,) = job["podFailurePolicy"]["rules"]
        assert rule["action"] == "FailJob"
        assert rule["onExitCodes"] == {"containerName": container["name"], "operator": "In", "values": [1]}


def test_the_cron_job_reads_what_the_name_servers_copy_and_writes_only_its_volume(cron_job: dict[str, Any]) -> None:
    pod = cron_job["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    given = parsed(container["args"])
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    # `cp --parents` makes the folders of the file below the mount.
    assert [str(each) for each in given["history"]] == [f"/histories{STATE}/history"]
    assert mounts["/histories"]["readOnly"]
    assert str(Path(given["warehouse"]).parent) == "/var/lib/pointsman-report"
    assert {path for path, mount in mounts.items() if not mount.get("readOnly")} == {
        "/var/lib/pointsman-report",
        "/tmp",
    }


@pytest.mark.parametrize("name", ["pointsman-with-report", "report"])
def test_name_servers_copy_their_history_to_the_claim_that_the_report_mounts(name: str, tls: Path) -> None:
    path = RENDERED[name]
    assert name_server_config(path, tls).history.ship == ("cp", "--parents", "{file}", "/histories")
    pod, container = name_server_pod(path)
    report = pods(path)["pointsman-report"]
    (written, read) = (
        [each["persistentVolumeClaim"]["claimName"] for each in one["volumes"] if each["name"] == "histories"]
        for one in (pod, report)
    )
    assert written == read
    assert {"name": "histories", "mountPath": "/histories"} in container["volumeMounts"]


def test_the_operators_rules_are_the_alerts_with_their_runbook() -> None:
    (rule,) = of_kind(RENDERED["cert-manager"], "PrometheusRule").values()
    found = {each["alert"]: each for group in rule["spec"]["groups"] for each in group["rules"] if "alert" in each}
    assert set(found) == set(alerts())
    for each in found.values():
        assert each["annotations"]["runbook_url"].startswith("https://git.example.com/pointsman/runbook.md#")


def test_a_certificate_has_the_names_by_which_peers_and_clients_connect() -> None:
    certificates = of_kind(RENDERED["cert-manager"], "Certificate")
    host = "pointsman-namesrv.pointsman.svc"
    assert {host, f"*.{host}"} <= set(certificates["pointsman-namesrv"]["spec"]["dnsNames"])
    assert "*.orders.pointsman.svc" in certificates["orders-agent"]["spec"]["dnsNames"]
    monitors = of_kind(RENDERED["cert-manager"], "ServiceMonitor")
    (endpoint,) = monitors["pointsman-namesrv"]["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]["serverName"]) == ("https", host)


def test_only_the_listed_pods_reach_a_name_server() -> None:
    (policy,) = of_kind(K8S / "pointsman.yaml", "NetworkPolicy").values()
    ingress = policy["spec"]["ingress"]
    assert [[each["port"] for each in rule["ports"]] for rule in ingress] == [["grpc"], ["metrics"]]
    assert all(rule["from"] for rule in ingress)
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_the_chart_has_the_version_of_the_programs() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert chart["appVersion"] == version
    assert chart["version"] == re.sub(r"\.dev(\d+)$", r"-dev.\1", version)
