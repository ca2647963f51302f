"""The site of ``docs/`` as it is built, and its first page as a stranger uses it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_docs_as_pasted import STOP_SECONDS, Fleet, blocks

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

ROOT = Path(__file__).parents[2]
START = "getting-started.md"


def test_the_site_builds_without_a_warning_and_loads_nothing_from_another_host(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        html = page.read_text(encoding="utf-8")
        assert re.findall(r"<(?:script|img|iframe)[^>]+src=\"?https?://[^\s\">]+", html) == [], page.name
        assert re.findall(r"<link[^>]+href=\"?https?://[^\s\">]+", html) == [], page.name
    api = (tmp_path / "api" / "producer.html").read_text(encoding="utf-8")
    assert 'id="pointsman_client.Producer.send_by_key"' in api
    assert ":class:" not in api


def test_the_tests_of_the_page_on_testing_pass(tmp_path: Path) -> None:
    conftest, tests = blocks("python", "testing.md")
    (tmp_path / "conftest.py").write_text(conftest, encoding="utf-8")
    (tmp_path / "test_orders.py").write_text(tests, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n", encoding="utf-8")
    done = subprocess.run(
        [*(sys.executable, "-m", "pytest", "-q"), *("-o", "asyncio_default_fixture_loop_scope=function")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.redis
@pytest.mark.parametrize("port", ["9876", "9880"])
def test_getting_started_names_a_port_that_is_in_use_and_does_not_hang(tmp_path: Path, port: str) -> None:
    here = Fleet(tmp_path)
    (start,) = blocks("bash", START, "Start the fleet")
    limited = start.replace("--timeout 30s", "--timeout 10s")
    assert limited != start
    with socket.create_server(("127.0.0.1", int(here.exchanged(port)))):
        pasted = f"{here.exchanged(limited)}\nkill $agent $redis $namesrv\nwait\necho stopped\n"
        with here.shell(pasted) as process:
            printed, _ = process.communicate(timeout=STOP_SECONDS)

    assert f"cannot listen on 127.0.0.1:{here.exchanged(port)}" in printed
    assert "a route of topic orders" in printed
    assert printed.endswith("stopped\n"), printed


@pytest.mark.redis
def test_getting_started_works_as_pasted(tmp_path: Path) -> None:
    here = Fleet(tmp_path)
    (start,) = blocks("bash", START, "Start the fleet")
    (first,) = blocks("python", START, "Send and consume")
    (run,) = blocks("bash", START, "Send and consume")
    (outage,) = blocks("bash", START, "See an outage")
    (report,) = blocks("bash", START, "Read the report")
    pasted = f"{start}\ncat > first.py <<'PYTHON'\n{first}PYTHON\n{run}\n{outage}\n{report}\necho exit $?\n"
    pasted += "wait\necho stopped\n"
    with here.shell(here.exchanged(pasted)) as process:
        printed, _ = process.communicate(timeout=4 * STOP_SECONDS)

    assert printed.endswith("stopped\n"), printed
    assert re.findall(r"^sent (\d) SEND_OK$", printed, re.MULTILINE) == ["0", "1", "2"]
    assert len(re.findall(r"^received order [012] from queue [0-3]$", printed, re.MULTILINE)) == 3
    assert re.search(r"rule +the probe fails on", printed), printed
    # On a busy machine the last failure may be a timeout, which is weak evidence.
    assert re.search(r"PROBE_FAILED +(REFUSED .*\n.* the broker refuses to serve|PROBE .*\n.* weak)", printed), printed
    assert re.search(r"^home/broker-a/0 +degraded +1000 +1 ", printed, re.MULTILINE)
    assert "\nexit 1\n" in printed
    (page,) = re.findall(r"report: (\S+/report\.html)$", printed, re.MULTILINE)
    assert "broker-a" in Path(page).read_text(encoding="utf-8")
