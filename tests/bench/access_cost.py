"""Name servers with and without access control in one run: route queries with a token, and under mTLS."""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc

from pointsman.daemon.access.access_settings import AccessSettings, Grant
from tests.bench import messages
from tests.bench.report import Report
from tests.bench.routes import queries
from tests.bench.servers import name_server
from tests.bench.turns import Load, Turn, in_turns
from tests.bench.worker import worker
from tests.kit.access_tokens import TokenFolder
from tests.kit.certificates import Authority, Files
from tests.kit.tls_peers import channel, tls_config

GRANTS = (
    Grant("admin", "app"),
    Grant("admin", "client.example"),
    *(Grant("broker", f"broker-{n}.example", cluster="c1", broker_name=f"broker-{n}") for n in range(1_000)),
)
OPEN, TOKEN, MTLS, CERTIFICATE = "open", "token", "mTLS, open", "mTLS, certificate"


@dataclass(frozen=True)
class _Folder:
    """Files of all servers."""

    tokens: TokenFolder
    authority: Authority
    server: Files
    client: Files


async def measure(report: Report) -> None:
    """Print the figures. All clients send the token: only the server's work is compared."""
    report.subject("Access control: route queries per CPU second of the server, as a share of those without it")
    with tempfile.TemporaryDirectory() as name:
        authority = Authority(Path(name))
        folder = _Folder(
            TokenFolder(Path(name), "app"),
            authority,
            authority.issue("server"),
            authority.issue("client", "client.example"),
        )
        async with AsyncExitStack() as stack:
            turns = {
                OPEN: await _turn(stack, folder, access=AccessSettings(), tls=False),
                TOKEN: await _turn(stack, folder, access=folder.tokens.settings(*GRANTS), tls=False),
                MTLS: await _turn(stack, folder, access=AccessSettings(), tls=True),
                CERTIFICATE: await _turn(stack, folder, access=AccessSettings(grants=GRANTS), tls=True),
            }
            costs = await in_turns(turns, report, title="route queries")
    for with_it, without in ((TOKEN, OPEN), (CERTIFICATE, MTLS)):
        report.figure(
            with_it,
            f"{costs.ratio(with_it, without):.2f} ({costs.median(with_it):.1f} against {costs.median(without):.1f} us)",
        )


async def _turn(stack: AsyncExitStack, folder: _Folder, *, access: AccessSettings, tls: bool) -> Turn:
    config = tls_config(folder.server, mutual=True) if tls else None
    server = await stack.enter_async_context(worker(name_server, config, access))
    addr, header = await server.ask("addr"), folder.tokens.header("app")
    opened = channel(addr, folder.authority.file, folder.client) if tls else grpc.aio.insecure_channel(addr)
    to_it = await stack.enter_async_context(opened)
    await messages.register(to_it, messages.registration(0, topics=1), header)
    load: Load = queries(to_it, messages.query(messages.topic_name(0)), header)
    return Turn(server, load)
