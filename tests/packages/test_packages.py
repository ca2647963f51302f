"""The deb and the rpm on a booted Debian in a container: installed, started, upgraded, removed; as root."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.test_docs_as_pasted import blocks
from tests.kit.waiting import until

pytestmark = [pytest.mark.packages, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PREPARED = ROOT / ".build/test-packages"
AGENT_FILE = "/etc/pointsman/agent/redis-server.toml"
AGENT = """
    [broker]
    cluster = "c"
    name = "orders-1"
    addr = "127.0.0.1:6379"
    [name_servers]
    addrs = ["127.0.0.1:9876"]
    [probe]
    kind = "redis"
    [[topics.topic]]
    name = "orders"
    read_queues = 4
    write_queues = 4
    """
NOT_OURS = re.compile(
    r"/(proc|sys|dev|run|tmp|var/log|var/cache|var/lib/(dpkg|rpm|redis|systemd|private)|root)(/|$)"
    r"|/etc/(passwd|group|shadow|gshadow)-?$|/etc/\.pwd\.lock$|/etc/\.updated$|/var/\.updated$"
)
"""What the package managers and the system write."""
SERVICES = ("pointsman-namesrv", "pointsman-agent@redis-server")
COMMANDS = {
    "deb": {"install": "dpkg --install", "remove": "dpkg --remove pointsman", "purge": "dpkg --purge pointsman"},
    # Debian's rpm does not know which of Debian's packages an rpm needs.
    "rpm": {"install": "rpm --upgrade --nodeps --oldpackage --force-debian", "remove": "rpm --erase pointsman"},
}


def package(build: str, kind: str) -> Path:
    (found,) = (PREPARED / build).glob(f"*.{kind}")
    return found


class Machine:
    """A booted Debian in a container with its own network; what it writes is in memory and ends with it."""

    def __init__(self) -> None:
        command = [
            "systemd-nspawn",
            f"--directory={PREPARED / 'root'}",
            "--volatile=overlay",
            "--boot",
            "--register=no",
        ]
        command += ["--keep-unit", "--link-journal=no", "--console=passive", "--private-network", "--quiet"]
        command += [f"--bind-ro={PREPARED}:/packages", f"--machine=pointsman-{id(self):x}"]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self._init = ""
        try:
            until(self._is_up, what="a boot")
        except BaseException:
            self.stop()
            raise

    def _is_up(self) -> bool:
        assert self._process.poll() is None, "systemd-nspawn failed: its error is above"
        # The first child is not yet the container's init.
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text(encoding="utf-8")
        self._init = children.strip()
        return self("systemctl is-system-running", codes=None) in {"running", "degraded"}

    def __call__(self, script: str, *, codes: tuple[int, ...] | None = (0,), seconds: float = 120.0) -> str:
        """Run a script of bash inside and return what it prints; AssertionError if it exits otherwise."""
        inside = ["nsenter", f"--target={self._init}", "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup"]
        clean = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/root"]
        done = subprocess.run(
            [*inside, *clean, "bash", "-euc", script], check=False, capture_output=True, text=True, timeout=seconds
        )
        assert codes is None or done.returncode in codes, f"{script}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def files(self) -> set[str]:
        """Every path but those of the package managers and the system."""
        found = self("find / -xdev -regextype posix-extended -regex '/(proc|sys|dev|run|packages)' -prune -o -print")
        return {path for path in found.splitlines() if not NOT_OURS.match(path)}

    def show(self, service: str, name: str) -> str:
        return self(f"systemctl show --value --property={name} {service}")

    def routes(self) -> list[str]:
        """Return the broker names that serve the topic."""
        found = json.loads(self("pointsmanctl --output json route orders", codes=(0, 1)) or "{}")
        return [broker["brokerName"] for broker in found.get("brokerDatas", ())]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def booted() -> Iterator[Machine]:
    machine = Machine()
    try:
        yield machine
    finally:
        machine.stop()


@pytest.fixture(scope="module", autouse=True)
def prepared() -> None:
    if not (PREPARED / "now").is_dir():
        pytest.fail("there are no packages to test: run `make test-packages`")


@pytest.mark.parametrize("kind", ["deb", "rpm"])
def test_a_host_is_installed_upgraded_with_its_routes_and_left_as_it_was(kind: str) -> None:
    commands = COMMANDS[kind]
    before = "before" if (PREPARED / "before").is_dir() else "now"
    with booted() as machine:
        at_first = machine.files()
        machine(f"{commands['install']} /packages/{before}/*.{kind}")
        assert machine("getent group pointsman && id -gn pointsman-report").endswith("pointsman")
        assert machine("systemctl is-enabled pointsman-namesrv", codes=(1,)) == "disabled"
        first_version = machine("pointsmanctl --version")

        machine(f"cat >{AGENT_FILE} <<'END'\n{textwrap.dedent(AGENT)}\nEND")
        machine("echo NAMESRV_SERVER__WARM_UP_SECONDS=600 >>/etc/pointsman/namesrv.env")
        machine("systemctl enable --now redis-server pointsman-namesrv pointsman-agent@redis-server")
        until(lambda: machine.routes() == ["orders-1"], what="the route")
        for service in SERVICES:
            assert_is_locked_in(machine, service)

        pids = [machine.show(service, "MainPID") for service in SERVICES]
        machine(f"{commands['install']} /packages/now/*.{kind}")
        # Immediately, although the warm-up has not ended: by the snapshot.
        assert machine.routes() == ["orders-1"]
        assert [machine.show(service, "ActiveState") for service in SERVICES] == ["active"] * 2
        assert not set(pids) & {machine.show(service, "MainPID") for service in SERVICES}, "they run the new version"
        assert before == "now" or machine("pointsmanctl --version") != first_version
        assert machine("tail -1 /etc/pointsman/namesrv.env") == "NAMESRV_SERVER__WARM_UP_SECONDS=600"
        events = set(re.findall(r'"event": ?"(\w+)"', machine("pointsmanctl --output json events --since 1h")))
        assert {"REGISTERED", "NAMESRV_STOPPED"} <= events
        assert not events & {"EXPIRED", "PROBE_FAILED", "SUSPECTED", "UNREGISTERED"}, "the upgrade was not an outage"

        machine(commands["remove"])
        assert machine("pgrep -f pointsman", codes=(1,)) == ""
        assert machine("ls /var/lib/private/pointsman/history")
        # The folder for zsh is the system's, where there are rpms.
        left = machine.files() - at_first - {"/usr/share/zsh/site-functions"}
        assert {path for path in left if path.startswith(("/opt", "/usr"))} == set()
        # An rpm has no purge: what was changed and written stays.
        if kind == "deb":
            machine(commands["purge"])
            assert machine.files() - at_first == {"/etc/pointsman", "/etc/pointsman/agent", AGENT_FILE}
            assert machine("ls /var/lib/private 2>/dev/null", codes=(0, 2)) == ""
            machine("getent group pointsman", codes=(2,))
            machine("getent passwd pointsman-report", codes=(2,))


def assert_is_locked_in(machine: Machine, service: str) -> None:
    """By what the kernel says of the process: not root, no capability, a filter of system calls."""
    status = machine(f"cat /proc/{machine.show(service, 'MainPID')}/status")
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert "0" not in facts["Uid"].split()
    assert facts["CapEff"].strip("0") == ""
    assert facts["NoNewPrivs"] == "1"
    assert facts["Seccomp"] == "2"


def test_the_commands_of_the_page_on_installing_start_a_name_server() -> None:
    (block,) = blocks("bash", "install.md", "On a host")
    build, *commands = block.splitlines()
    assert build == "make packages"
    with booted() as machine:
        machine("mkdir /root/dist && cp /packages/now/*.deb /root/dist")
        machine("\n".join(["cd /root", *commands]), seconds=180)
        assert machine("systemctl is-active pointsman-namesrv") == "active"


def test_shells_complete_and_pages_of_the_manual_can_be_read() -> None:
    with booted() as machine:
        machine("dpkg --install /packages/now/*.deb")
        completes = (
            ". /usr/share/bash-completion/completions/pointsmanctl; complete -p pointsmanctl >/dev/null;"
            "COMP_WORDS=(pointsmanctl flap); COMP_CWORD=1; _pointsmanctl_completion pointsmanctl; echo ${COMPREPLY[*]}"
        )
        assert machine(completes) == "flapping"
        programs = {"pointsman-agent", "pointsman-namesrv", "pointsman-observe", "pointsmanctl"}
        for program in programs:
            machine(f"zsh -n /usr/share/zsh/vendor-completions/_{program}")
            machine(f"fish --no-execute /usr/share/fish/vendor_completions.d/{program}.fish")
        in_zsh = "autoload -Uz compinit && compinit -u && echo ${_comps[pointsmanctl]}"
        assert machine(f"zsh -fc 'fpath=(/usr/share/zsh/vendor-completions $fpath); {in_zsh}'") == "_pointsmanctl"
        assert machine("fish -c 'complete --do-complete \"pointsmanctl flap\"'").startswith("flapping")

        pages = machine("ls /usr/share/man/man1 | grep ^pointsman | sed 's/.1.gz$//'").split()
        assert programs | {"pointsmanctl-drain-broker", "pointsman-namesrv-config-check"} <= set(pages)
        for page in pages:
            assert machine(f"MANROFFSEQ= man --warnings=w {page} 2>&1 >/dev/null") == ""
        assert "Take a broker out of service" in machine("MANWIDTH=80 man pointsmanctl-drain-broker")


def test_lintian_finds_no_error() -> None:
    judged = subprocess.run(
        ["lintian", "--no-tag-display-limit", package("now", "deb")], capture_output=True, text=True, check=False
    )
    print(judged.stdout)
    assert [line for line in judged.stdout.splitlines() if line.startswith("E:")] == []


def test_the_rpm_is_the_deb_in_other_words() -> None:
    rpm, deb = package("now", "rpm"), package("now", "deb")
    # Folders of the system belong to neither.
    of_deb = {line.split()[5].removeprefix(".") for line in ask("dpkg-deb", "--contents", deb) if line[0] != "d"}
    of_rpm = {
        line.split()[1]
        for line in ask("rpm", "-qp", "--queryformat=[%{FILEMODES:perms} %{FILENAMES}\n]", rpm)
        if line[0] != "d"
    }
    only_deb = {"/usr/share/doc/pointsman/changelog.gz", "/usr/share/lintian/overrides/pointsman"}
    assert of_rpm == {path.replace("/zsh/vendor-completions/", "/zsh/site-functions/") for path in of_deb - only_deb}
    assert len(of_rpm) > 1000
    assert ask("rpm", "-qp", "--queryformat=%{VERSION}", rpm) == ask("dpkg-deb", "--field", deb, "Version")
    assert any(line.startswith("python(abi) = 3.") for line in ask("rpm", "-qp", "--requires", rpm))
    assert ask("rpm", "-qpc", rpm) == [
        f"/etc/pointsman/{daemon}.{kind}" for daemon in ("namesrv", "observe") for kind in ("env", "toml")
    ]


def ask(*command: str | Path) -> list[str]:
    """Return the lines that a command prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def test_no_file_has_the_time_or_the_folder_of_the_build() -> None:
    stage = ROOT / ".build/packages/stage"
    found = subprocess.run(["grep", "-rlF", str(ROOT), stage], capture_output=True, text=True, check=False).stdout
    assert found == ""
    page = gzip.decompress((stage / "usr/share/man/man1/pointsmanctl.1.gz").read_bytes()).decode()
    committed = subprocess.run(
        ["git", "log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%d"],
        cwd=ROOT, env={"TZ": "UTC", "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    assert f'"{committed}"' in page.splitlines()[0]
