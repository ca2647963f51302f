"""Completion of ``pointsmanctl`` in bash: names from a real name server and a real agent, silence when they fail."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from pointsman.clock import SystemClock
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from tests.kit.agent.group_clients import Consumer, reads
from tests.kit.agent.in_route import whole_agents
from tests.kit.ctl.process import environment
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.scripted_routes import refused_addr, scripted_route_server, silent_listener

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="bash is not installed")
SCRIPT = """
source <(_POINTSMANCTL_COMPLETE=bash_source pointsmanctl)
complete_line() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _pointsmanctl_completion pointsmanctl
    echo "${COMPREPLY[*]}"
}
"""
"""What bash does at TAB."""


async def completions(*lines: str, namesrv: str) -> list[str]:
    """Return what bash offers at the end of each line."""
    calls = "\n".join(f"complete_line {' '.join(map(shlex.quote, line.split(' ')))}" for line in lines)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *(str(BASH), "--norc", "--noprofile", "-c", SCRIPT + calls),
        env={**environment(), "PATH": path, "POINTSMAN_NAMESRV": namesrv},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert err == b""
    return out.decode().splitlines()


@asynccontextmanager
async def fleet() -> AsyncIterator[tuple[str, str]]:
    """Run a name server and the agent of c1/a/0, with a consumer; yields their addresses."""
    async with (
        running_name_server() as app,
        whole_agents(("a", 0), clock=SystemClock(), name_servers=[app]) as (agent,),
    ):
        consumer = Consumer(agent.addr, "10.0.0.1@x")
        await consumer.beat(reads("billing", "orders"))
        yield app.addr, agent.addr
        await consumer.crash()


async def test_names_of_topics_clusters_brokers_and_groups_are_completed() -> None:
    expected = {
        "pointsmanctl route o": "orders",
        "pointsmanctl brokers --cluster ": "c1",
        "pointsmanctl why ": "a",
        "pointsmanctl evict c1/": "c1/a/0",
        "pointsmanctl maintenance on ": "c1 c1/a",
        "pointsmanctl offsets b": "billing",
        "pointsmanctl offsets show ": "billing",
        "pointsmanctl group ": "delete set show billing",
        "pointsmanctl group b": "billing",
        "pointsmanctl group del": "delete",
        "pointsmanctl group delete ": "billing",
        "pointsmanctl group --que": "--queues",
        "pointsmanctl group billing --que": "--queues",
        "pointsmanctl messages peek o": "orders",
        "pointsmanctl messages send o": "orders",
        "pointsmanctl producers o": "orders",
    }
    async with fleet() as (namesrv, _):
        assert await completions(*expected, namesrv=namesrv) == list(expected.values())


async def test_groups_with_dead_letters_are_completed_without_their_agents() -> None:
    async with running_name_server() as app, grpc.aio.insecure_channel(app.addr) as channel:
        topics = (wire.topic("orders"), wire.topic("%DLQ%billing"), wire.topic("%RETRY%audit"))
        await RegistrationServiceStub(channel).RegisterBroker(wire.registration(*topics))
        lines = [f"pointsmanctl dlq {command} " for command in ("show", "replay", "export")]
        assert await completions(*lines, namesrv=app.addr) == ["billing"] * 3


async def test_completion_uses_the_servers_that_the_line_names() -> None:
    async with fleet() as (namesrv, agent), refused_addr() as dead:
        found = await completions(
            f"pointsmanctl route --namesrv {namesrv} ",
            f"pointsmanctl group --agent {agent} ",
            f"pointsmanctl --namesrv {dead},{namesrv} route ",
            namesrv=dead,
        )
    assert found == ["orders", "billing", "orders"]


async def test_completion_is_silent_when_servers_fail_or_options_are_wrong() -> None:
    async with refused_addr() as dead, silent_listener() as silent:
        found = await completions(
            "pointsmanctl route ",
            f"pointsmanctl --namesrv {silent} group b",
            "pointsmanctl --tls-ca /does/not/exist route ",
            namesrv=dead,
        )
    assert found == [""] * 3


async def test_a_name_that_a_shell_could_interpret_is_not_offered() -> None:
    async with scripted_route_server() as server:
        server.topic_names = ["%RETRY%billing", "$(reboot)", "a;b", "a|b", "a\nb", "*", "orders"]
        found = await completions("pointsmanctl route ", namesrv=server.addr)
    assert found == ["%RETRY%billing orders"]
