"""Check the broker with an operator's program."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pointsman_agent.core.probe_verdict import ProbeResult

MAX_OUTPUT_BYTES = 512
"""Limit of the output that is stored; the rest is read and discarded, so that the program is not blocked."""
READ_BYTES = 65_536
MAX_READS = 64
"""Reads in a row, so that a program with endless output does not block the loop."""
REAP_SECONDS = 1.0
"""Longest wait for a killed program to end. One that takes longer is stuck in the kernel."""


class ExecProbe:
    """Runs ``command`` (program and arguments, no shell); exit code 0 passes.

    Program and children are a process group, which is killed when the program ends or the caller's deadline passes. The
    probe reports neither incarnation nor role.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._what = f"exec {self._command[0]}"

    async def check(self) -> ProbeResult:
        """See :meth:`pointsman_agent.probe.Probe.check`."""
        with _Output.opened() as output:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output.write_end,
                    stderr=output.write_end,
                    start_new_session=True,
                )
            except OSError as error:
                return ProbeResult(passed=False, detail=f"{self._what}: {error.strerror or error}")
            output.close_write_end()
            try:
                code = await process.wait()
            finally:
                await _kill_group(process)
            output.take()
        if code == 0:
            return ProbeResult(passed=True, detail=f"{self._what}: exit code 0")
        ended = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return ProbeResult(passed=False, detail=": ".join(filter(None, (self._what, ended, output.text))))


class _Output:
    """A pipe that asyncio did not open: asyncio waits for its own pipes until every child has closed them."""

    def __init__(self, read_end: int, write_end: int) -> None:
        self.write_end = write_end
        self._read_end = read_end
        self._is_written = True
        self._kept = bytearray()

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[_Output]:
        """Read in the background during the block."""
        output = cls(*os.pipe())
        os.set_blocking(output._read_end, False)
        loop = asyncio.get_running_loop()
        loop.add_reader(output._read_end, output.take)
        try:
            yield output
        finally:
            loop.remove_reader(output._read_end)
            os.close(output._read_end)
            output.close_write_end()

    @property
    def text(self) -> str:
        """The beginning of the output."""
        return self._kept.decode(errors="replace").strip()

    def take(self) -> None:
        """Read what is available."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(MAX_READS):
                data = os.read(self._read_end, READ_BYTES)
                self._kept += data[: MAX_OUTPUT_BYTES - len(self._kept)]
                if not data:
                    asyncio.get_running_loop().remove_reader(self._read_end)
                    return

    def close_write_end(self) -> None:
        """Close this process's write end, so that only the program has it."""
        if self._is_written:
            self._is_written = False
            os.close(self.write_end)


async def _kill_group(process: asyncio.subprocess.Process) -> None:
    # Also after the program has ended: children that it left would add up with each probe.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REAP_SECONDS):
                await process.wait()
