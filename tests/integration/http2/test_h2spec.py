"""h2spec 2.2.1 (``go install github.com/summerwind/h2spec/cmd/h2spec@latest``) against the sans-I/O connection."""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
from pathlib import Path

import pytest

from tests.kit.certificates import Authority
from tests.kit.http2 import plain_server

WITHDRAWN = {
    # RFC 7540 section 5.3.1: a stream that depends on itself. RFC 9113 section 5.3.2 deprecates priorities.
    "Sends HEADERS frame that depend on itself",
    "Sends PRIORITY frame that depend on itself",
}
"""Cases for rules that RFC 9113 no longer has."""
CASES = 145


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
async def test_every_case_passes_apart_from_those_that_rfc_9113_withdrew(tls: bool, tmp_path: Path) -> None:
    program = shutil.which("h2spec")
    if program is None:
        pytest.skip("h2spec is not in PATH")
    context: ssl.SSLContext | None = None
    if tls:
        files = Authority(tmp_path).issue("server")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
        context.set_alpn_protocols(["h2"])
    async with plain_server.serving(context=context) as port:
        options = ["-h", "127.0.0.1", "-p", str(port), "-o", "2", *(["-t", "-k"] if tls else [])]
        process = await asyncio.create_subprocess_exec(program, *options, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
    text = output.decode()
    found = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", text)
    assert found is not None
    _, failures = text.split("Failures:", 1)
    assert set(re.findall(r"\N{MULTIPLICATION SIGN} \d+: (.*)", failures)) == WITHDRAWN, failures
    assert tuple(map(int, found.groups())) == (CASES, CASES - len(WITHDRAWN), 0, len(WITHDRAWN))
