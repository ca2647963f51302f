"""Name servers from a file: an address a line; empty lines and lines that begin with ``#`` are skipped."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pointsman.wire.names import addr_problem
from pointsman_agent.name_servers import NameServerSourceError

MAX_BYTES = 64 * 1024


class FileNameServers:
    """The addresses in ``path``, all of them or none: one bad line and the file is not believed.

    Nor is a file whose last line does not end: half an address may well read as another one. (A file that is cut off
    between two lines cannot be told from a shorter list; whoever writes it should rename it into place.)
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> tuple[str, ...]:
        """See :meth:`pointsman_agent.name_servers.NameServerSource.read`."""
        content = self._content()
        if len(content) > MAX_BYTES:
            raise NameServerSourceError(f"{self._path}: is longer than {MAX_BYTES} bytes")
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise NameServerSourceError(f"{self._path}: is not UTF-8 at byte {error.start}") from error
        if text and not text.endswith("\n"):
            raise NameServerSourceError(f"{self._path}: the last line does not end, so it may be half a line")
        numbered = ((number, line.strip()) for number, line in enumerate(text.split("\n"), 1))
        addrs = [(number, line) for number, line in numbered if line and not line.startswith("#")]
        for number, addr in addrs:
            problem = addr_problem(addr)
            if problem is not None:
                raise NameServerSourceError(f"{self._path}, line {number}: {addr[:100]!r} {problem}")
        return tuple(addr for _, addr in addrs)

    def _content(self) -> bytes:
        try:
            # Not blocking: to open a pipe that nobody writes to would take for ever.
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            with open(self._path, "rb", opener=lambda path, _: os.open(path, flags)) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise NameServerSourceError(f"{self._path}: is no file")
                return file.read(MAX_BYTES + 1)
        except OSError as error:
            raise NameServerSourceError(f"{self._path}: {error.strerror or error}") from error
