"""Sources of a list of name servers: the addresses of a DNS name, a file, or an address server."""

from __future__ import annotations

import os
import socket
import ssl
import stat
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import BaseHandler, HTTPRedirectHandler, HTTPSHandler, ProxyHandler, build_opener

from pointsman import address_list
from pointsman.clock import SystemClock
from pointsman.name_servers import NameServerSource, NameServerSourceError
from pointsman.names import addr_problem, join_addr, split_addr
from pointsman.wire.credentials import Credentials

MAX_BYTES = 64 * 1024
HTTP_SECONDS = 4.0
"""Time of one request to an address server; less than the follower waits for it."""


Resolve = Callable[[str], Sequence[str]]
"""From a host name to its addresses, IPv4 and IPv6. Raises OSError, or UnicodeError for an invalid host name."""


def resolve(host: str) -> Sequence[str]:
    """Query the machine's resolver; blocks until it responds."""
    return [str(sockaddr[0]) for *_, sockaddr in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


class DnsNameServers:
    """All A and AAAA records of the host of ``addr`` (host:port), each with its port.

    A name server that has both counts as two, and gets each registration twice.
    """

    def __init__(self, addr: str, *, resolve: Resolve = resolve) -> None:
        self._host, self._port = split_addr(addr)
        self._resolve = resolve

    def read(self) -> tuple[str, ...]:
        """See :meth:`pointsman.name_servers.NameServerSource.read`."""
        try:
            hosts = self._resolve(self._host)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise NameServerSourceError(f"{self._host!r} cannot be resolved: {reason}") from error
        return tuple(join_addr(host, self._port) for host in hosts)


class FileNameServers:
    """The addresses in ``path``, one per line; empty lines and lines that begin with ``#`` are skipped.

    One invalid line makes the complete file invalid. So does a last line without a line end: half an address may be a
    valid address. (A file cut off between two lines looks like a shorter list; write a new file and rename it.)
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> tuple[str, ...]:
        """See :meth:`pointsman.name_servers.NameServerSource.read`."""
        content = self._content()
        if len(content) > MAX_BYTES:
            raise NameServerSourceError(f"{self._path}: is longer than {MAX_BYTES} bytes")
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise NameServerSourceError(f"{self._path}: is not UTF-8 at byte {error.start}") from error
        if text and not text.endswith("\n"):
            raise NameServerSourceError(f"{self._path}: the last line has no line end, so it may be incomplete")
        numbered = ((number, line.strip()) for number, line in enumerate(text.split("\n"), 1))
        addrs = [(number, line) for number, line in numbered if line and not line.startswith("#")]
        for number, addr in addrs:
            problem = addr_problem(addr)
            if problem is not None:
                raise NameServerSourceError(f"{self._path}, line {number}: {addr[:100]!r} {problem}")
        return tuple(addr for _, addr in addrs)

    def _content(self) -> bytes:
        try:
            # Non-blocking: opening a pipe without a writer would block indefinitely.
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            with open(self._path, "rb", opener=lambda path, _: os.open(path, flags)) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise NameServerSourceError(f"{self._path}: is not a regular file")
                return file.read(MAX_BYTES + 1)
        except OSError as error:
            raise NameServerSourceError(f"{self._path}: {error.strerror or error}") from error


class HttpNameServers:
    """The list of an address server, as RocketMQ's clients read it: 200 and ``a:9876;b:9876``, at most 16 addresses.

    ``https`` is verified as ``tls`` says; None: by the authorities of ``credentials``, whose certificate is presented.
    Proxies of the environment are not used, and redirections not followed.
    """

    def __init__(self, url: str, *, credentials: Credentials | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._url = url
        self._credentials = credentials or Credentials()
        self._tls = tls
        self._clock = SystemClock()

    def read(self) -> tuple[str, ...]:
        """See :meth:`pointsman.name_servers.NameServerSource.read`."""
        try:
            text = self._content().decode("ascii").strip()
        except HTTPError as error:
            with error:
                raise NameServerSourceError(f"{self._url}: HTTP {error.code}, expected 200") from error
        except (OSError, HTTPException, UnicodeDecodeError) as error:
            reason = getattr(error, "reason", None) or error
            raise NameServerSourceError(f"{self._url}: {str(reason)[:300]}") from error
        problem = address_list.list_problem(text.removesuffix(";"))
        if problem is not None:
            raise NameServerSourceError(f"{self._url}: the list {problem}")
        return address_list.to_addrs(text.removesuffix(";"))

    def _content(self) -> bytes:
        handlers: list[BaseHandler] = [ProxyHandler({}), _NoRedirections()]
        if self._url.startswith("https://"):
            handlers.append(HTTPSHandler(context=self._tls or self._tls_context()))
        until = self._clock.monotonic() + HTTP_SECONDS
        content = b""
        with build_opener(*handlers).open(self._url, timeout=HTTP_SECONDS) as response:
            while part := response.read1(MAX_BYTES):
                content += part
                if len(content) > MAX_BYTES:
                    raise NameServerSourceError(f"{self._url}: is longer than {MAX_BYTES} bytes")
                if self._clock.monotonic() > until:
                    raise NameServerSourceError(f"{self._url}: no complete response within {HTTP_SECONDS:g} s")
        return content

    def _tls_context(self) -> ssl.SSLContext:
        # Read each time: the files may have been renewed.
        context = ssl.create_default_context(cafile=self._credentials.ca or None)
        if self._credentials.certificate:
            context.load_cert_chain(self._credentials.certificate, self._credentials.key)
        return context


class _NoRedirections(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:  # noqa: ANN401  # the base's arguments
        """Let the redirection be an error."""


def build_source(
    *, dns: str = "", file: str = "", url: str = "", credentials: Credentials | None = None
) -> NameServerSource | None:
    """Build the source that is set; None if none is."""
    if url:
        return HttpNameServers(url, credentials=credentials)
    if dns:
        return DnsNameServers(dns)
    if file:
        return FileNameServers(Path(file))
    return None


def forgeable_list_problem(url: str, credentials: Credentials) -> str | None:
    """Check that servers of a forged list would not get the token of ``credentials``."""
    if not url.startswith("http://") or not credentials.token_file or credentials.uses_tls:
        return None
    return (
        "is not encrypted, so servers of a forged list would get the token: use https, or verify the name servers with "
        "credentials.tls"
    )
