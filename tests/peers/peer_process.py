"""Clients of other gRPC libraries as processes: each does what a line of JSON requests, and reports the outcome.

``call`` is unary, or streams requests to one response; ``calls`` are several at the same time. ``open`` begins the one
stream of a client, with requests; ``send``, ``receive``, ``half_close`` and ``cancel`` are about it. ``receive``
returns a response, or how the call ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from deploy.rocketmq.processes import alone, is_newer, run_program
from pointsman.v1 import registration_service_pb2, route_service_pb2

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROTOS = ROOT / "proto"
CACHE = ROOT / ".build" / "peers"
BUILD_SECONDS = 900.0
PATIENCE_SECONDS = 60.0
MAX_LINE = 1 << 26

PROGRAMS = {"go": ("go",), "js": ("node", "npm"), "rust": ("cargo",), "java": ("java", "javac", "mvn")}
"""What each needs in ``PATH``; libraries come from the registry of each language the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a call, or a step of a stream, ended."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    message: str = ""
    reasons: tuple[str, ...] = ()
    """Of the ErrorInfo in the details of the status."""
    response: Mapping[str, Any] = field(default_factory=dict)
    codes: tuple[grpc.StatusCode, ...] = ()
    """Of several calls."""


def missing(language: str) -> str:
    """Return what is missing for a client; empty: nothing."""
    absent = [program for program in PROGRAMS[language] if shutil.which(program) is None]
    return f"needs {', '.join(absent)} in PATH" if absent else ""


def built(language: str) -> list[str]:
    """Build a client where its source has changed, and return the command that starts it, without arguments."""
    source, folder = HERE / language, CACHE / language
    with alone(CACHE):
        mark = folder / "built"
        if not all(is_newer(mark, each) for each in source.rglob("*") if each.is_file()):
            # Beside the sources the tools would write lock files with the registries of this machine.
            shutil.copytree(source, folder, dirs_exist_ok=True)
            _build(language, folder)
            mark.touch()
    return {
        "go": [str(folder / "peer")],
        "js": ["node", str(folder / "main.js")],
        "rust": [str(folder / "target" / "debug" / "pointsman-test-peer")],
        "java": [
            "java",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xmx256m",
            "-cp",
            f"{folder}:{folder}/lib/*",
            "Peer",
        ],
    }[language]


def _build(language: str, folder: Path) -> None:
    commands = {
        "go": [["go", "build", "-buildvcs=false", "-mod=readonly", "-o", "peer", "."]],
        "js": [["npm", "install", "--package-lock=false", "--ignore-scripts", "--no-audit", "--no-fund"]],
        "rust": [["cargo", "build", "--quiet"]],
        "java": [
            ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=lib"],
            ["javac", "-nowarn", "-proc:none", "-cp", "lib/*", "Peer.java"],
        ],
    }
    for command in commands[language]:
        run_program(command, seconds=BUILD_SECONDS, cwd=folder)
    if language == "java":
        (folder / "descriptors").write_bytes(_descriptors().SerializeToString())


def _descriptors() -> FileDescriptorSet:
    """Return the services as protobuf for Java takes them, which cannot read .proto files."""
    found: dict[str, FileDescriptor] = {}

    def add(file: FileDescriptor) -> None:
        for each in file.dependencies:
            add(each)
        found.setdefault(file.name, file)

    add(route_service_pb2.DESCRIPTOR)
    add(registration_service_pb2.DESCRIPTOR)
    files = FileDescriptorSet()
    for file in found.values():
        file.CopyToProto(files.file.add())
    return files


class PeerProcess:
    """A running client of one channel."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._method = ""

    async def call(self, method: str, *requests: Mapping[str, Any], millis: int = 0) -> Outcome:
        """Call; ``millis``: deadline, 0: none."""
        return await self._ask("call", method, requests, millis)

    async def calls(self, method: str, requests: Sequence[Mapping[str, Any]]) -> Outcome:
        """Send all requests at the same time."""
        return await self._ask("calls", method, requests)

    async def open(self, method: str, *requests: Mapping[str, Any], millis: int = 0) -> None:
        """Begin the stream."""
        self._method = method
        await self._ask("open", method, requests, millis)

    async def send(self, request: Mapping[str, Any]) -> None:
        """Send a request on the stream."""
        await self._ask("send", self._method, [request])

    async def receive(self) -> Outcome:
        """Return the next response, or the end."""
        return await self._ask("receive", self._method)

    async def half_close(self) -> None:
        """End the requests of the stream."""
        await self._ask("half_close", self._method)

    async def cancel(self) -> None:
        """Cancel the stream."""
        await self._ask("cancel", self._method)

    async def _ask(self, do: str, method: str, requests: Sequence[Mapping[str, Any]] = (), millis: int = 0) -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"do": do, "method": method, "requests": list(requests), "millis": millis}
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = await self._process.stdout.readline()
        assert line, f"the client ended while it was to {do}"
        found = json.loads(line)
        return Outcome(
            code=_code(found["code"]),
            message=found.get("message") or "",
            reasons=tuple(found.get("reasons") or ()),
            response=found.get("response") or {},
            codes=tuple(map(_code, found.get("codes") or ())),
        )


def _code(number: int) -> grpc.StatusCode:
    return next(each for each in grpc.StatusCode if each.value[0] == number)


@contextlib.asynccontextmanager
async def peer_process(language: str, addr: str, ca: Path | None = None) -> AsyncIterator[PeerProcess]:
    """Run a client, with TLS if there is an authority, for the length of the block."""
    command = await asyncio.to_thread(built, language)
    protos = CACHE / language / "descriptors" if language == "java" else PROTOS
    arguments = [addr, str(protos), *([] if ca is None else [str(ca)])]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, *arguments, stdin=pipe, stdout=pipe, limit=MAX_LINE)
    try:
        yield PeerProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
