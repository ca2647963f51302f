"""The Containerfile as text: its stages, their users, that the copied and started files exist; and the pods that run
its images."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pytest

from pointsman.config import ConfigError
from pointsman_agent.config import load as load_agent
from pointsman_namesrv.config import load as load_name_server
from pointsman_namesrv.observe.observer_config import load as load_observer
from tests.kit.operations.manifests import RENDERED, pods

ROOT = Path(__file__).parents[3]
CONTAINER = ROOT / "deploy" / "container"
INSTALLED = Path(sys.executable).parent
IMAGES = ["report", "agent", "observe", "namesrv"]


@dataclass
class Stage:
    """One FROM and the instructions after it."""

    base: str
    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        return [value for given, value in self.instructions if given == instruction]


def stages() -> dict[str, Stage]:
    text = (CONTAINER / "Containerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found: dict[str, Stage] = {}
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        instruction, value = line.split(maxsplit=1)
        if instruction == "FROM":
            base, name = value.split(" AS ")
            found[name] = Stage(base, name)
        elif found:
            list(found.values())[-1].instructions.append((instruction, value))
    return found


def inherited(name: str, instruction: str) -> list[str]:
    """The values of one instruction in an image, those of its bases first."""
    found = stages()
    stage = found[name]
    above = inherited(stage.base, instruction) if stage.base in found else []
    return above + stage.all(instruction)


def environment(name: str) -> dict[str, str]:
    return dict(word.split("=", 1) for value in inherited(name, "ENV") for word in value.split())


def test_the_images_are_these_and_the_name_server_is_the_default() -> None:
    assert list(stages())[-4:] == IMAGES
    assert {stage.base for stage in stages().values()} == {"${PYTHON}", "builder", "base"}


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_runs_unprivileged_without_a_shell_and_stops_on_sigterm(image: str) -> None:
    assert inherited(image, "USER") == ["65532:65532"]
    assert inherited(image, "STOPSIGNAL") == ["SIGTERM"]
    (entry,) = inherited(image, "ENTRYPOINT")
    (program,) = json.loads(entry)
    assert (INSTALLED / Path(program).name).is_file()
    for command in inherited(image, "CMD"):
        assert isinstance(json.loads(command), list)


@pytest.mark.parametrize("image", IMAGES)
def test_nothing_is_written_into_an_image_after_it_has_its_user(image: str) -> None:
    kinds = [kind for kind, _ in stages()[image].instructions]
    assert {"RUN", "COPY", "ADD"} & set(kinds[kinds.index("USER") :]) == set()


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_contains_only_the_installed_package_of_its_builder(image: str) -> None:
    (copied,) = inherited(image, "COPY")
    builder = "report-builder" if image == "report" else "builder"
    assert copied == f"--from={builder} /opt/pointsman /opt/pointsman"
    assert inherited(image, "ADD") == []


def test_the_builder_copies_every_part_and_installs_each_from_its_folder_with_extras_that_it_has() -> None:
    parts = {path.parent.name for path in ROOT.glob("*/pyproject.toml")}
    sources = [word for value in stages()["builder"].all("COPY") for word in value.split()[:-1]]
    assert set(sources) == {*parts, "LICENSE"}
    let_in = (CONTAINER / "Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in let_in if line.startswith("!")} == set(sources)

    installed = [
        re.findall(r"\./(\w+)(?:\[([a-z,]+)\])?", " ".join(stages()[name].all("RUN")).partition(" install ")[2])
        for name in ("builder", "report-builder")
    ]
    assert {part for part, _ in installed[0]} == parts - {"spark_jobs"}
    # The report shares modules with the daemons, and none of their libraries.
    assert installed[1] == [("proto", ""), ("spark_jobs", "questions")]
    for part, extras in chain(*installed):
        project = tomllib.loads((ROOT / part / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert set(extras.split(",")) - {""} <= set(project.get("optional-dependencies", ()))


def test_the_base_has_a_python_that_we_run_on_and_a_java_that_spark_runs_on() -> None:
    text = (CONTAINER / "Containerfile").read_text(encoding="utf-8")
    (version, release) = re.findall(r"^ARG PYTHON=\S+/python:([0-9.]+)-slim-([a-z]+)$", text, re.MULTILINE)[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    # Java 17 in Debian 12, 21 in 13.
    assert (release, "default-jre-headless" in text) == ("bookworm", True)


def test_the_settings_in_the_images_exist_and_open_the_ports_that_are_exposed() -> None:
    tls = {"NAMESRV_TLS__CERTIFICATE": "server.pem", "NAMESRV_TLS__KEY": "server.key"}
    name_server = load_name_server(None, environment("namesrv") | tls)
    ports = [listen.split(":")[1] for listen in (name_server.server.listen, name_server.monitoring.listen)]
    assert inherited("namesrv", "EXPOSE") == [" ".join(ports)]
    observer = load_observer(None, environment("observe"))
    assert inherited("observe", "EXPOSE") == [observer.monitoring.listen.split(":")[1]]
    agent = load_agent(ROOT / "deploy/config/agent.example.toml", environment("agent"))
    assert inherited("agent", "EXPOSE") == [agent.monitoring.listen.split(":")[1]]


def test_the_name_servers_image_does_not_serve_plaintext_beyond_loopback_by_default() -> None:
    with pytest.raises(
        ConfigError, match=r"server.listen: .* set tls.certificate and tls.key, or tls.plaintext_beyond"
    ):
        load_name_server(None, environment("namesrv"))


def test_the_data_of_name_server_and_observer_is_in_their_volume() -> None:
    assert json.loads(inherited("namesrv", "VOLUME")[0]) == inherited("namesrv", "WORKDIR")
    assert json.loads(inherited("observe", "VOLUME")[0]) == inherited("observe", "WORKDIR")
    assert Path(environment("observe")["OBSERVE_HISTORY__DIRECTORY"]).parent == Path(*inherited("observe", "WORKDIR"))
    assert json.loads(inherited("report", "VOLUME")[0]) == inherited("report", "WORKDIR")
    (made,) = [value for value in inherited("namesrv", "RUN") if "install -d" in value]
    for volume in inherited("namesrv", "WORKDIR") + inherited("report", "WORKDIR"):
        assert f" {volume}" in made


def test_the_health_check_of_the_name_server_needs_no_shell() -> None:
    (check,) = inherited("namesrv", "HEALTHCHECK")
    command = json.loads(check[check.index("[") :])
    # Over HTTP, which needs no certificate.
    assert [Path(command[0]).name, command[1]] == ["python", "-c"]
    assert "os.environ['NAMESRV_MONITORING__LISTEN'].rpartition(':')[2] + '/healthz'" in command[2]
    assert "NAMESRV_MONITORING__LISTEN" in environment("namesrv")
    start = re.findall(r"--start-period=(\d+)s", check)
    assert float(start[0]) >= load_name_server(None, {}).server.warm_up_seconds
    assert inherited("agent", "HEALTHCHECK") == inherited("observe", "HEALTHCHECK") == ["NONE"]


@pytest.mark.parametrize(("name", "image"), [("pointsman-namesrv", "namesrv"), ("pointsman-report", "report")])
def test_a_pod_of_kubernetes_runs_its_image_as_the_images_user_with_a_volume_where_it_writes(
    name: str, image: str
) -> None:
    pod = pods(RENDERED["pointsman-with-report"])[name]
    (container,) = pod["containers"]
    assert container["image"].partition(":")[0] == f"pointsman-{image}"
    user = pod["securityContext"]
    assert [f"{user['runAsUser']}:{user['runAsGroup']}"] == inherited(image, "USER")
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert set(inherited(image, "WORKDIR")) <= writable
    if image == "report":
        assert str(Path(environment("report")["MPLCONFIGDIR"]).parent) in writable
