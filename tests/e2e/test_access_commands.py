"""The commands of the sections on security, as pasted, and the daemons that they give."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from pointsman.v1.admin_service_pb2 import GetNodeInfoRequest
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman.v1.route_service_pb2 import ListTopicsRequest
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from tests.kit.name_server.process import real_name_server
from tests.kit.refusal import refusal_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def pasted(readme: str, folder: Path) -> str:
    """Run the block of the section in a shell, and return its output."""
    section = (ROOT / readme).read_text(encoding="utf-8").split("\n## Security\n")[1].split("\n## ")[0]
    block = re.search(r"```bash\n(.*?)```", section, re.DOTALL)
    assert block is not None
    run = subprocess.run(
        ["bash", "-euc", block[1]],
        cwd=folder,
        env=os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return run.stdout


async def test_the_commands_of_the_readme_give_a_server_with_roles(tmp_path: Path) -> None:
    assert pasted("namesrv/README.md", tmp_path) == "namesrv.toml: ok\n"
    assert {path.stat().st_mode & 0o077 for path in map(tmp_path.joinpath, ("tokens", "ops.token"))} == {0}
    header = {
        name: (("authorization", f"Bearer {(tmp_path / f'{name}.token').read_text(encoding='utf-8').strip()}"),)
        for name in ("ops", "app", "broker-a")
    }
    async with real_name_server(tmp_path, "--config", "namesrv.toml") as server:
        async with grpc.aio.insecure_channel(server.addr) as channel:
            admin, route = AdminServiceStub(channel), RouteServiceStub(channel)
            for each in header.values():
                await route.ListTopics(ListTopicsRequest(), metadata=each)
            await admin.GetNodeInfo(GetNodeInfoRequest(), metadata=header["ops"])
            refused = await refusal_of(admin.GetNodeInfo(GetNodeInfoRequest(), metadata=header["app"]))
            assert refused.status is grpc.StatusCode.PERMISSION_DENIED
            assert (await refusal_of(route.ListTopics(ListTopicsRequest()))).status is grpc.StatusCode.UNAUTHENTICATED
        denied = await server.logged("call denied")
        assert (denied["identity"], denied["method"], denied["reason"]) == ("app", "GetNodeInfo", "wrong_role")
        assert await server.stop() == 0


def test_the_agents_commands_give_a_configuration_that_is_valid(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text(
        '[broker]\ncluster = "c1"\nname = "a"\naddr = "10.0.0.1:6379"\n[name_servers]\naddrs = ["127.0.0.1:9876"]\n',
        encoding="utf-8",
    )
    assert pasted("broker_agent/README.md", tmp_path) == "agent.toml: ok\n"
    assert len((tmp_path / "agent.tokens").read_text(encoding="utf-8").splitlines()) == 2


def test_a_start_fails_where_no_grant_can_be_proved(tmp_path: Path) -> None:
    config = tmp_path / "namesrv.toml"
    for content, problem in (
        ('[[access.grants]]\nrole = "admin"\nidentity = "ops"\n', "access.grants: need an authenticator"),
        ('[access]\ntokens = "tokens"\n', "access.tokens: 'tokens' has no effect without [[access.grants]]"),
        (
            '[access]\ntokens = "missing"\n[[access.grants]]\nrole = "admin"\nidentity = "ops"\n',
            "access.tokens: missing: cannot be read: No such file",
        ),
    ):
        config.write_text(content, encoding="utf-8")
        run = subprocess.run(
            [BIN / "pointsman-namesrv", "--config", config],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert run.returncode == 2
        assert problem in run.stderr
        assert run.stderr.count("\n") == 1
