"""The systemd units: they start commands that exist, with options that exist, and settings that exist."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pointsman_agent.__main__
import pointsman_namesrv.__main__
import pointsman_namesrv.app
from pointsman.config import ConfigError, to_toml
from pointsman_agent.config import load as load_agent
from pointsman_namesrv.config import load as load_name_server
from pointsman_namesrv.observe import __main__ as observe_command
from pointsman_namesrv.observe import connection, observer
from pointsman_namesrv.observe.observer_config import load as load_observer
from tests.kit.report.command_line import parsed

DEPLOY = Path(__file__).parents[3] / "deploy"
SYSTEMD = DEPLOY / "systemd"
CONFIG = DEPLOY / "config"
INSTALLED = Path(sys.executable).parent
UNITS = sorted(path for path in SYSTEMD.iterdir() if path.suffix in {".service", ".timer"})
SERVICES = [path for path in UNITS if path.suffix == ".service"]
DAEMONS = ["pointsman-namesrv.service", "pointsman-observe.service", "pointsman-agent@.service"]
WORST_EXPOSURE = 1.5
"""Exposure by systemd-analyze security, from 0 (none) to 10."""


class UnitFile:
    """One unit, as systemd reads it: a name may come more than once, and a backslash joins lines."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._lines: list[tuple[str, str]] = []
        for line in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.startswith(("#", ";")):
                self._lines.append((name.strip(), value.strip()))

    def all(self, name: str) -> list[str]:
        """Every value of a directive, in order."""
        return [value for given, value in self._lines if given == name]

    def one(self, name: str) -> str:
        """The only value of a directive."""
        (value,) = self.all(name)
        return value

    def environment(self) -> dict[str, str]:
        """What Environment= sets."""
        return dict(word.split("=", 1) for line in self.all("Environment") for word in shlex.split(line))

    def command(self, **specifiers: str) -> list[str]:
        """ExecStart as the words that are executed: variables of Environment= filled in, specifiers as given."""
        environment = self.environment()
        words: list[str] = []
        for word in shlex.split(self.one("ExecStart")):
            if word.startswith("$") and word[1:] in environment:
                words += environment[word[1:]].split()  # unquoted, systemd splits it
                continue
            for letter, value in specifiers.items():
                word = word.replace(f"%{letter}", value)  # noqa: PLW2901  # the word as it becomes
            words.append(word.replace("%%", "%").replace("$$", "$"))
        return words


def unit(name: str) -> UnitFile:
    return UnitFile(SYSTEMD / name)


def variables(name: str) -> dict[str, str]:
    """The settings of an environment file, including those commented out."""
    lines = (SYSTEMD / name).read_text(encoding="utf-8").splitlines()
    return {match[1]: match[2] for line in lines if (match := re.fullmatch(r"#?([A-Z][A-Z_0-9]+)=(.*)", line))}


def test_the_name_servers_unit_starts_it_with_the_sample_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    program, *arguments = unit("pointsman-namesrv.service").command()
    assert program == "/opt/pointsman/bin/pointsman-namesrv"
    assert arguments == ["--config", "/etc/pointsman/namesrv.toml"]
    sample = str(CONFIG / "namesrv.example.toml")
    assert pointsman_namesrv.__main__.main([arguments[0], sample, "config", "check"]) == 0
    assert "ok" in capsys.readouterr().out


def test_the_observers_unit_starts_it_with_the_sample_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    program, *arguments = unit("pointsman-observe.service").command()
    assert program == "/opt/pointsman/bin/pointsman-observe"
    assert arguments == ["--config", "/etc/pointsman/observe.toml"]
    sample = str(CONFIG / "observe.example.toml")
    assert observe_command.main([arguments[0], sample, "config", "check"]) == 0
    assert "ok" in capsys.readouterr().out


def test_the_agents_unit_starts_it_with_the_sample_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    program, *arguments = unit("pointsman-agent@.service").command(i="redis-server")
    assert program == "/opt/pointsman/bin/pointsman-agent"
    assert arguments == ["--config", "/etc/pointsman/agent/redis-server.toml"]
    sample = str(CONFIG / "agent.example.toml")
    assert pointsman_agent.__main__.main([arguments[0], sample, "config", "check"]) == 0
    assert "ok" in capsys.readouterr().out


@pytest.mark.parametrize("name", DAEMONS)
def test_a_reload_sends_a_daemon_the_signal_that_reloads(name: str) -> None:
    assert unit(name).one("ExecReload") == "/bin/kill -HUP $MAINPID"


def test_the_reports_unit_computes_yesterday_and_findings_are_not_a_failure() -> None:
    program, *arguments = unit("pointsman-report.service").command(S="/var/lib")
    assert (program, arguments[0]) == ("/opt/pointsman/bin/pointsman-report", "nightly")
    asked = parsed(arguments)
    assert asked["requested_day"] == "yesterday"
    assert asked["history"] == ("/run/pointsman-report/history",)
    assert asked["warehouse"] == "/var/lib/pointsman-report/warehouse"
    # Python itself ends with 1 where it cannot even start: that must not pass for a night with findings.
    assert asked["exit_zero"]
    assert unit("pointsman-report.service").all("SuccessExitStatus") == []


def test_every_sample_of_the_reports_options_can_be_used_and_its_figures_can_be_written() -> None:
    lines = (SYSTEMD / "report.env").read_text(encoding="utf-8").splitlines()
    samples = [line.split("=", 1)[1].split() for line in lines if re.match("#?REPORT_OPTIONS=", line)]
    asked = [parsed(["nightly", "--warehouse", "w", *sample]) for sample in samples]
    folders = {str(options["textfile"].parent) for options in asked if options["textfile"]}
    assert folders == {unit("pointsman-report.service").one("ReadWritePaths").removeprefix("-")}


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_a_unit_starts_a_command_that_is_installed(path: Path) -> None:
    started = [Path(word).name for word in UnitFile(path).command() if word.startswith("/opt/pointsman/bin/")]
    assert [name for name in started if not (INSTALLED / name).is_file()] == []
    assert len(started) == 1


def test_the_environment_files_name_settings_that_exist() -> None:
    name_server, agent = variables("namesrv.env"), variables("agent.env")
    assert len(name_server) > 2
    assert len(agent) > 2
    load_name_server(CONFIG / "namesrv.example.toml", name_server)
    observed = variables("observe.env")
    assert len(observed) > 2
    files = [name for name in observed if name.endswith(("__CA", "__ACCESS_KEY_FILE"))]
    with pytest.raises(ConfigError) as raised:  # the files of the sample are not on this machine
        load_observer(CONFIG / "observe.example.toml", observed)
    assert [problem.split(": ")[1] for problem in raised.value.problems] == files
    # A user name without a password is an error, and the sample has no real password.
    probe = {"AGENT_PROBE__KIND": "redis", "AGENT_PROBE__PASSWORD": "x"}
    load_agent(CONFIG / "agent.example.toml", agent | probe)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_settings_in_a_unit_itself_exist(path: Path) -> None:
    ours = {name: value for name, value in UnitFile(path).environment().items() if "__" in name}
    load_name_server(None, {name: value for name, value in ours.items() if name.startswith("NAMESRV_")})
    load_agent(CONFIG / "agent.example.toml", ours)


def test_the_name_servers_data_is_in_its_state_directory() -> None:
    # Relative names are below the working directory, which is the state directory.
    service = unit("pointsman-namesrv.service")
    assert service.one("WorkingDirectory") == f"%S/{service.one('StateDirectory')}"
    config = load_name_server(CONFIG / "namesrv.example.toml", variables("namesrv.env"))
    folders = [line.split('"')[1] for line in to_toml(config).splitlines() if line.startswith("directory = ")]
    assert folders
    assert [folder for folder in folders if Path(folder).is_absolute()] == []
    service = unit("pointsman-observe.service")
    assert service.one("WorkingDirectory") == f"%S/{service.one('StateDirectory')}"
    assert not Path(load_observer(CONFIG / "observe.example.toml", {}).history.directory).is_absolute()


def test_a_report_of_the_observers_history_needs_the_drop_in_of_the_page() -> None:
    drop_in = (SYSTEMD / "README.md").read_text(encoding="utf-8").partition("BindReadOnlyPaths=\n")[2].splitlines()[0]
    source, mounted = drop_in.removeprefix("BindReadOnlyPaths=-").split(":")
    observer_unit, report = unit("pointsman-observe.service"), unit("pointsman-report.service")
    history = load_observer(CONFIG / "observe.example.toml", {}).history.directory
    assert source == f"/var/lib/private/{observer_unit.one('StateDirectory')}/{history}"
    assert mounted == report.one("BindReadOnlyPaths").split(":")[1]
    assert observer_unit.one("Group") == report.one("Group")


def test_the_report_reads_the_history_that_the_name_server_writes() -> None:
    name_server, report = unit("pointsman-namesrv.service"), unit("pointsman-report.service")
    history = load_name_server(CONFIG / "namesrv.example.toml", {}).history.directory
    source, mounted = report.one("BindReadOnlyPaths").removeprefix("-").split(":")
    # A dynamic user's folder is in private/, from which systemd mounts it as root.
    assert name_server.one("DynamicUser") == "yes"
    assert source == f"/var/lib/private/{name_server.one('StateDirectory')}/{history}"
    assert report.environment()["REPORT_OPTIONS"] == f"--history {mounted}"
    # Reading is by the group: the same one, and the mask leaves it its bits.
    assert name_server.one("Group") == report.one("Group") == "pointsman"
    assert int(name_server.one("UMask"), 8) & 0o050 == 0


def test_permanent_users_and_groups_are_created() -> None:
    lines = (SYSTEMD / "pointsman.sysusers.conf").read_text(encoding="utf-8").splitlines()
    made = {tuple(line.split()[:2]) for line in lines if line and not line.startswith("#")}
    assert made == {("g", "pointsman"), ("u", "pointsman-report")}
    assert unit("pointsman-report.service").one("User") == "pointsman-report"


def test_the_name_server_may_open_a_file_for_each_connection_of_both_wires() -> None:
    config = load_name_server(CONFIG / "namesrv.example.toml", {"NAMESRV_REMOTING__LISTEN": "127.0.0.1:9875"})
    others = 1_000
    assert int(unit("pointsman-namesrv.service").one("LimitNOFILE")) > config.most_connections + others


@pytest.mark.parametrize("name", DAEMONS)
def test_a_bad_configuration_is_not_tried_again(name: str) -> None:
    assert "2" in unit(name).one("RestartPreventExitStatus").split()


@pytest.mark.parametrize("name", DAEMONS)
def test_a_crashed_daemon_leaves_no_core_dump_with_its_secrets(name: str) -> None:
    assert unit(name).one("LimitCORE") == "0"


def test_the_stop_timeout_covers_the_daemons_shutdown() -> None:
    ends = pointsman_namesrv.app.HISTORY_STOP_SECONDS + pointsman_namesrv.app.SNAPSHOT_STOP_SECONDS
    name_server = load_name_server(None, {}).server.stop_grace_seconds + ends
    observing = observer.STOP_SECONDS + connection.CLOSE_SECONDS
    agent = load_agent(CONFIG / "agent.example.toml", {}).stop.timeout_seconds
    assert float(unit("pointsman-namesrv.service").one("TimeoutStopSec").removesuffix("s")) >= name_server + 5
    assert float(unit("pointsman-observe.service").one("TimeoutStopSec").removesuffix("s")) >= observing + 5
    assert float(unit("pointsman-agent@.service").one("TimeoutStopSec").removesuffix("s")) >= agent + 5


def test_the_agent_starts_before_its_broker_and_outlives_its_failures() -> None:
    agent = unit("pointsman-agent@.service")
    assert agent.all("Before") == ["%i.service"]
    assert [tie for tie in ("BindsTo", "PartOf", "Requires", "Requisite") if agent.all(tie)] == []


@pytest.fixture
def analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("systemd-analyze is not on this machine (Debian: apt-get install systemd)")
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_reports_no_errors(path: Path, tmp_path: Path, analyze: str) -> None:
    # It checks the programs too: those of this environment replace the installed ones.
    for each in UNITS:
        text = each.read_text(encoding="utf-8").replace("/opt/pointsman/bin", str(INSTALLED))
        (tmp_path / each.name).write_text(text, encoding="utf-8")
    verified = subprocess.run([analyze, "verify", tmp_path / path.name], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_a_service_can_reach_little(path: Path, analyze: str) -> None:
    command = [analyze, "security", "--offline=true", f"--threshold={int(WORST_EXPOSURE * 10)}", str(path)]
    judged = subprocess.run(command, capture_output=True, text=True, check=False)
    if "offline" in judged.stderr:
        pytest.skip("this systemd-analyze cannot judge a file (it is older than 250)")
    assert judged.returncode == 0, judged.stdout.splitlines()[-1]
