"""An agent with certificates at a real name server: its registration lives through rotations and bad files."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.config import ConfigError
from pointsman.manual_clock import ManualClock
from pointsman.wire.channel_opener import ChannelOpener
from pointsman.wire.credentials import Credentials
from pointsman_agent.config import AgentConfig, HeartbeatSection, load
from pointsman_agent.core.registration_session import RegistrationState
from pointsman_agent.drain.write_perm import WritePermissions
from pointsman_namesrv.app import NameServerApp
from tests.kit.agent.in_process import RunningAgent, agent_config, running_agent
from tests.kit.certificates import Authority, Files
from tests.kit.history.rows import rows_in
from tests.kit.name_server.in_process import running_name_server
from tests.kit.tls_peers import tls_config
from tests.kit.waiting import eventually


@pytest.fixture
def own(authority: Authority) -> Files:
    return authority.issue("agent")


@pytest.fixture
async def server(clock: ManualClock, authority: Authority, tmp_path: Path) -> AsyncIterator[NameServerApp]:
    files = authority.issue("server")
    async with running_name_server(
        clock=clock, tls=tls_config(files, mutual=True), history=tmp_path / "history"
    ) as app:
        yield app


def credentials(own: Files, ca: Path | None = None) -> Credentials:
    return Credentials(ca=str(ca or own.ca), certificate=str(own.certificate), key=str(own.key))


def config(server: NameServerApp, own: Files) -> AgentConfig:
    return with_credentials(server, credentials(own))


def with_credentials(server: NameServerApp, theirs: Credentials) -> AgentConfig:
    # A clock that is moved by hand must not end a call that is in flight.
    heartbeat = HeartbeatSection(timeout_seconds=60.0)
    return replace(agent_config([server.addr]), credentials=theirs, heartbeat=heartbeat)


def reloads(agent: RunningAgent, result: str) -> int:
    labels = {"result": result}
    return int(agent.agent.metrics.registry.get_sample_value("pointsman_agent_credential_reloads_total", labels) or 0)


def streams(server: NameServerApp) -> float | None:
    return server.metrics.registry.get_sample_value("pointsman_namesrv_keep_alive_streams")


async def in_time(clock: ManualClock, condition: Callable[[], object]) -> None:
    """Let time pass until the condition holds; slowly, for the calls in flight are real."""
    await eventually(condition, clock=clock, step=0.5)


async def heartbeats(clock: ManualClock, agent: RunningAgent, addr: str, count: int) -> None:
    """Let intervals pass."""
    wanted = agent.beats(addr) + count
    await in_time(clock, lambda: agent.beats(addr) >= wanted)


async def test_a_registration_survives_three_rotations(
    server: NameServerApp, clock: ManualClock, authority: Authority, own: Files, tmp_path: Path
) -> None:
    async with running_agent(config(server, own), clock=clock) as agent:
        await agent.counts_beats(server.addr, 1)
        for rotation in (1, 2, 3):
            beats = agent.beats(server.addr)
            authority.issue("agent")
            await in_time(clock, lambda: reloads(agent, "applied") == rotation)  # noqa: B023  # awaited here
            # The move is a heartbeat before the next one is due.
            await agent.counts_beats(server.addr, beats + 1)
            await eventually(lambda: streams(server) == 1)
        await heartbeats(clock, agent, server.addr, 5)
        assert agent.registration_state(server.addr) is RegistrationState.REGISTERED
        assert agent.registrations(server.addr) == 1
        assert agent.beats(server.addr, "stream_broken") == agent.beats(server.addr, "timeout") == 0
        # A wipe is the last row, after all earlier ones.
        permissions = write_permissions(ChannelOpener(credentials(own)))
        await permissions.set(server.addr, writable=False)
        await eventually(lambda: "PERM_CHANGED" in events(tmp_path), clock=clock)
        assert [event for event in events(tmp_path) if event != "TOPICS"] == ["REGISTERED", "PERM_CHANGED"]


def events(folder: Path) -> list[str]:
    return [row["event"] for row in rows_in(folder / "history") if row.get("broker_name") == "a"]


def write_permissions(opener: ChannelOpener) -> WritePermissions:
    return WritePermissions(cluster="c1", broker_name="a", agent_addr="a:1", timeout=10.0, opener=opener)


async def test_new_certificates_that_the_name_server_rejects_leave_the_registration_on_its_connection(
    server: NameServerApp,
    clock: ManualClock,
    authority: Authority,
    own: Files,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "pointsman_agent")
    async with running_agent(config(server, own), clock=clock) as agent:
        await agent.counts_beats(server.addr, 1)
        foreign = Authority(tmp_path, "other")
        foreign.issue("agent")
        await in_time(clock, lambda: "changed credentials failed, the connection stays as it was" in caplog.messages)
        await heartbeats(clock, agent, server.addr, 5)
        assert agent.registration_state(server.addr) is RegistrationState.REGISTERED
        authority.issue("agent")
        await in_time(clock, lambda: reloads(agent, "applied") == 2)
        await heartbeats(clock, agent, server.addr, 2)
        await eventually(lambda: streams(server) == 1)
        assert agent.registrations(server.addr) == 1
        assert agent.beats(server.addr, "broken") == 0


async def test_half_written_files_change_nothing(
    server: NameServerApp, clock: ManualClock, authority: Authority, own: Files
) -> None:
    async with running_agent(config(server, own), clock=clock) as agent:
        await agent.counts_beats(server.addr, 1)
        own.key.write_bytes(own.key.read_bytes()[:50])
        await in_time(clock, lambda: reloads(agent, "rejected") == 1)
        await heartbeats(clock, agent, server.addr, 5)
        assert (agent.registrations(server.addr), reloads(agent, "rejected")) == (1, 1)
        authority.issue("agent")
        beats = agent.beats(server.addr)
        await in_time(clock, lambda: reloads(agent, "applied") == 1)
        await eventually(lambda: agent.beats(server.addr) > beats)


async def test_an_agent_that_could_not_connect_registers_with_the_first_valid_certificate(
    server: NameServerApp, clock: ManualClock, authority: Authority, tmp_path: Path
) -> None:
    foreign = Authority(tmp_path, "other").issue("agent")
    rejected = with_credentials(server, credentials(foreign, ca=authority.file))
    async with running_agent(rejected, clock=clock) as agent:
        await agent.stands(server.addr, RegistrationState.UNREACHABLE)
        authority.issue("agent")
        await in_time(clock, lambda: agent.registration_state(server.addr) is RegistrationState.REGISTERED)


def test_nothing_but_the_probe_of_a_broker_opens_a_channel_without_the_credentials() -> None:
    root = Path(__file__).parents[3]
    files = [file for part in ("broker_agent", "client", "proto") for file in (root / part).rglob("*.py")]
    opening = {file.name for file in files if re.search(r"secure_channel\(", file.read_text(encoding="utf-8"))}
    assert opening == {"channel_opener.py", "network_probes.py"}


async def test_write_permission_is_changed_over_mutual_tls(server: NameServerApp, own: Files) -> None:
    changed = await write_permissions(ChannelOpener(credentials(own))).set(server.addr, writable=False)
    assert changed.answer.done
    refused = await write_permissions(ChannelOpener(Credentials(ca=str(own.ca)))).set(server.addr, writable=False)
    assert not refused.answer.done
    assert "with a certificate that its client CA signed" in refused.answer.text


def test_a_configuration_with_files_that_cannot_be_used_is_refused(own: Files, tmp_path: Path) -> None:
    environment = {
        "AGENT_BROKER__CLUSTER": "c1",
        "AGENT_BROKER__NAME": "a",
        "AGENT_BROKER__ADDR": "10.0.0.1:6379",
        "AGENT_NAME_SERVERS__ADDRS": "127.0.0.1:9876",
        "AGENT_CREDENTIALS__CERTIFICATE": str(own.certificate),
        "AGENT_CREDENTIALS__KEY": str(tmp_path / "absent.key"),
    }
    with pytest.raises(ConfigError) as raised:
        load(None, environment)
    (problem,) = raised.value.problems
    assert "credentials.key: " in problem
    assert "absent.key cannot be read: No such file or directory" in problem
    assert load(None, environment | {"AGENT_CREDENTIALS__KEY": str(own.key)}).credentials.uses_tls
