"""`certs check` and the certificates for trials, as they are typed."""

from __future__ import annotations

import datetime as dt
import json
import re
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pointsman_agent.__main__
import pointsman_namesrv.__main__
from deploy.dev import make_certificates
from tests.kit.certificates import Authority, Files
from tests.kit.name_server.process import real_name_server

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
INSTALLED = Path(sys.executable).parent


def in_days(days: float) -> dt.datetime:
    return dt.datetime.now(dt.UTC) + dt.timedelta(days=days)


def configured(files: Files, *, more: str = "") -> str:
    """A configuration file of the name server, next to the certificates."""
    path = files.ca.with_name("namesrv.toml")
    path.write_text(
        f'[tls]\ncertificate = "{files.certificate}"\nkey = "{files.key}"\nclient_ca = "{files.ca}"\n' + more
    )
    return str(path)


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = pointsman_namesrv.__main__.main(["certs", "check", "--output", "json", *words])
    return code, json.loads(capsys.readouterr().out)


def test_denied_certificates_are_counted_and_a_bad_line_is_named(
    authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    denied = tmp_path / "denied"
    config = configured(
        authority.issue("server", expires=in_days(40)), more=f'[access]\ndenied_certificates = "{denied}"\n'
    )
    denied.write_text("serial:0A1F the old host\n")
    code, found = checked(capsys, "--config", config)
    [row] = [row for row in found["files"] if row["setting"] == "access.denied_certificates"]
    assert (code, row["note"], row["problems"]) == (0, "1 denied", [])
    denied.write_text("serial:xyz\n")
    code, found = checked(capsys, "--config", config)
    [row] = [row for row in found["files"] if row["setting"] == "access.denied_certificates"]
    assert code == 1
    assert "line 1: 'serial:xyz'" in row["problems"][0]
    assert pointsman_namesrv.__main__.main(["config", "check", "--config", config]) == 2
    assert "access.denied_certificates" in capsys.readouterr().err


def test_good_files_are_listed_with_names_and_days(authority: Authority, capsys: pytest.CaptureFixture[str]) -> None:
    files = authority.issue("server", "ns1.example", "10.0.0.1", expires=in_days(40))
    code, found = checked(capsys, "--config", configured(files), "--ca", str(files.ca))
    assert (code, found["ok"]) == (0, True)
    assert [row["setting"] for row in found["files"]] == ["tls.client_ca", "tls.certificate", "tls.key"]
    row = found["files"][1]
    assert row["names"] == ["ns1.example", "10.0.0.1"]
    assert 39 < row["daysLeft"] < 41


@pytest.mark.parametrize(
    ("days", "words", "problem"),
    [
        (10, (), "expires in 10.0 days"),
        (10, ("--days", "5"), None),
        (40, ("--days", "60"), "expires in 40.0 days"),
        (-3, (), "expired 3.0 days ago"),
    ],
)
def test_a_certificate_that_expires_soon_is_a_problem(
    authority: Authority, capsys: pytest.CaptureFixture[str], days: float, words: tuple[str, ...], problem: str | None
) -> None:
    files = authority.issue("server", expires=in_days(days))
    code, found = checked(capsys, "--config", configured(files), *words)
    assert code == (problem is not None)
    problems = found["files"][1]["problems"]
    assert problems == [] if problem is None else any(problem in each for each in problems)


def test_every_file_that_cannot_be_used_is_named(authority: Authority, capsys: pytest.CaptureFixture[str]) -> None:
    files = authority.issue("server")
    config = configured(files)
    authority.issue("other").key.replace(files.key)
    code, found = checked(capsys, "--config", config)
    assert code == 1
    assert "is not the key of" in found["files"][2]["problems"][0]
    files.certificate.write_text("x")
    files.ca.unlink()
    code, found = checked(capsys, "--config", config)
    assert code == 1
    assert "cannot be read" in found["files"][0]["problems"][0]
    assert found["files"][1]["problems"] == ["is not a certificate in PEM form"]


def test_a_certificate_of_another_authority_is_noted_and_with_ca_a_problem(
    authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, other = authority.issue("server"), Authority(tmp_path, "other")
    config = configured(Files(other.file, files.certificate, files.key))
    code, found = checked(capsys, "--config", config)
    assert (code, found["files"][1]["note"]) == (0, "not issued by the CA of [tls]")
    code, found = checked(capsys, "--config", config, "--ca", str(other.file))
    assert code == 1
    assert "was not issued by" in found["files"][1]["problems"][0]
    assert pointsman_namesrv.__main__.main(["certs", "check", "--config", config, "--ca", "missing.pem"]) == 2
    assert "--ca: 'missing.pem' cannot be read" in capsys.readouterr().err


def test_the_default_output_is_a_table_for_the_agent_too(
    authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    files = authority.issue("server")
    config = Path(configured(files)).rename(files.ca.with_name("agent.toml"))
    sample = (ROOT / "deploy/config/agent.example.toml").read_text(encoding="utf-8")
    kept = re.sub(r"(?s)\n\[tls\].*?\n\n", "\n\n", sample)
    config.write_text(f"{kept}\n{config.read_text()}")
    assert pointsman_agent.__main__.main(["certs", "check", "--config", str(config)]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["SETTING", "FILE", "NAMES", "EXPIRES", "DAYS", "RESULT"]
    assert [row.split()[0] for row in rows] == ["tls.client_ca", "tls.certificate", "tls.key"]
    assert pointsman_namesrv.__main__.main(["certs", "check"]) == 0
    assert "no certificates" in capsys.readouterr().out


def test_the_certificate_that_an_agent_presents_to_name_servers_is_checked_too(
    authority: Authority, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = authority.issue("broker-a", "broker-a.example", expires=in_days(3))
    for name, value in (("TLS", "true"), ("CA", own.ca), ("CERTIFICATE", own.certificate), ("KEY", own.key)):
        monkeypatch.setenv(f"AGENT_CREDENTIALS__{name}", str(value))
    sample = str(ROOT / "deploy/config/agent.example.toml")
    assert pointsman_agent.__main__.main(["certs", "check", "--output", "json", "--config", sample]) == 1
    found = json.loads(capsys.readouterr().out)["files"]
    assert [row["setting"] for row in found] == ["credentials.ca", "credentials.certificate", "credentials.key"]
    assert found[1]["problems"] == ["expires in 3.0 days"]


def test_a_start_with_faulty_files_exits_2_and_names_the_file(authority: Authority) -> None:
    files = authority.issue("server")
    config = configured(files)
    files.key.write_text("x")
    for words in ((), ("config", "check")):
        ended = subprocess.run(
            [INSTALLED / "pointsman-namesrv", "--config", config, *words], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 2
        assert ended.stderr == f"tls.key: '{files.key}' is not a private key in PEM form\n"


def test_listening_beyond_loopback_without_tls_exits_2_and_names_both_ways_out(tmp_path: Path) -> None:
    ended = subprocess.run(
        [INSTALLED / "pointsman-namesrv", "--listen", "0.0.0.0:0"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ended.returncode == 2
    assert "tls.certificate and tls.key" in ended.stderr
    assert "tls.plaintext_beyond_loopback = true" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_page_makes_certificates_that_serve(tmp_path: Path) -> None:
    page = (ROOT / "deploy/README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"(?s)```bash\n(python deploy/dev/make_certificates.py.*?)```", page)
    pasted = block.rstrip().removesuffix("pointsman-namesrv").replace("deploy/dev", str(ROOT / "deploy/dev"))
    ended = subprocess.run(
        ["bash", "-euc", pasted],
        cwd=tmp_path,
        env={"PATH": f"{INSTALLED}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(re.findall(r"  ok\b", ended.stdout)) == 3


async def test_certificates_for_trials_serve_and_are_renewed_from_the_same_authority(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "made"
    assert make_certificates.main([str(folder), "--days", "30"]) == 0
    ca, before = (folder / "ca.pem").read_bytes(), (folder / "server.pem").read_bytes()
    assert make_certificates.main([str(folder)]) == 0
    assert (folder / "ca.pem").read_bytes() == ca
    assert (folder / "server.pem").read_bytes() != before
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.key")} == {0o600}
    files = (("certificate", "server.pem"), ("key", "server.key"), ("client_ca", "ca.pem"))
    settings = {f"tls.{name}": folder / file for name, file in files}
    async with real_name_server(tmp_path, settings=settings) as served:
        host, port = served.addr.split(":")
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        context.load_cert_chain(folder / "admin.pem", folder / "admin.key")
        context.set_alpn_protocols(["h2"])
        with socket.create_connection((host, int(port))) as raw, context.wrap_socket(raw, server_hostname=host) as peer:
            assert peer.version() == "TLSv1.3"
            assert peer.recv(9)[3] == 4  # the server's SETTINGS: it accepted the certificate
