"""TLS and tokens of outgoing gRPC connections: settings, their files, and the channels opened with them."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import grpc
import grpc.aio

from pointsman.wire.channel_options import ChannelOptions
from pointsman.wire.clock import Clock

POLL_INTERVAL_SECONDS = 10.0
"""How often the files are checked for a change."""
MAX_FILE_BYTES = 1024 * 1024
"""A bundle of all public authorities has 0.3 MB."""
MAX_TOKEN_LENGTH = 4_096
_PEM = re.compile(rb"-----BEGIN (?P<kind>[A-Z0-9 ]+)-----.*?-----END (?P=kind)-----", re.DOTALL)

log = logging.getLogger(__name__)


class CredentialsError(Exception):
    """The settings or their files cannot be used; one line for each problem, as ``field: file problem``."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """How a program proves who it is to the servers that it calls, and how it recognizes them. Paths are of PEM files.

    Any file but that of the token turns TLS on. A token is sent over TLS, and without TLS to loopback alone.
    """

    tls: bool = False
    """Connect with TLS; needed only where no file below is set."""
    ca: str = ""
    """Authorities that sign the servers' certificates; empty: the public ones."""
    certificate: str = ""
    """Own certificate, with intermediate ones after it, for servers that ask for one (mTLS); needs ``key``."""
    key: str = ""
    """Private key of the certificate, not encrypted."""
    server_name: str = ""
    """Name that a server's certificate must carry; empty: the host that is connected to."""
    token_file: str = ""
    """File with a bearer token."""

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.tls or bool(self.ca or self.certificate or self.key or self.server_name)

    @property
    def files(self) -> dict[str, str]:
        """The files by field; empty where none is set."""
        return {field: getattr(self, field) for field in ("ca", "certificate", "key", "token_file")}

    def problems(self) -> Iterator[str]:
        """List what is wrong with the settings and, as of now, their files, each as ``field: problem``."""
        try:
            _read(self)
        except CredentialsError as error:
            yield from error.problems


@dataclass(frozen=True, slots=True)
class _Contents:
    """The content of the files, complete and checked; None and empty where none is set."""

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None
    token: str


class ChannelOpener:
    """Opens channels with the last valid content of the credentials' files.

    gRPC for Python does not reload a client's certificates, so a change needs a fresh channel: while :meth:`follow`
    runs, :attr:`version` grows with each change, and ``on_change`` callbacks are called.
    """

    def __init__(self, credentials: Credentials | None = None) -> None:
        """Read the files; None: no TLS, no token. Raises CredentialsError."""
        self._credentials = credentials or Credentials()
        self._contents = _read(self._credentials)
        self._callbacks: list[Callable[[], None]] = []
        self.version = 0
        """Number of changes so far."""
        self.problem = ""
        """Why the present content of the files is not in use; empty: it is."""

    def open(self, addr: str, options: ChannelOptions) -> grpc.aio.Channel:
        """Open a channel of the running event loop; it connects with the first call."""
        credentials = self._channel_credentials()
        if credentials is None:
            return grpc.aio.insecure_channel(addr, options=options)
        channel = grpc.aio.secure_channel(addr, credentials, options=options + self._own_options())
        return cast("grpc.aio.Channel", self._with_token(channel))

    def open_blocking(self, addr: str, options: ChannelOptions) -> grpc.Channel:
        """Open a channel of gRPC's synchronous stack."""
        credentials = self._channel_credentials()
        if credentials is None:
            return grpc.insecure_channel(addr, options=options)
        channel = grpc.secure_channel(addr, credentials, options=options + self._own_options())
        return cast("grpc.Channel", self._with_token(channel))

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback()`` after each change; returns the function that ends it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    async def follow(self, clock: Clock, *, on_reload: Callable[[str], None]) -> None:
        """Check the files every :data:`POLL_INTERVAL_SECONDS` until cancelled.

        ``on_reload(result)`` is called with ``applied`` for each change, and with ``rejected`` for one that cannot be
        used: the last valid content stays in use.
        """
        while any(self._credentials.files.values()):
            await clock.sleep(POLL_INTERVAL_SECONDS)
            if result := await self._poll():
                on_reload(result)

    async def _poll(self) -> str:
        try:
            contents = await asyncio.to_thread(_read, self._credentials)
        except CredentialsError as error:
            if str(error) == self.problem:
                return ""
            self.problem = str(error)
            log.warning("changed credentials cannot be used, the last valid ones stay in use: %s", error)
            return "rejected"
        self.problem = ""
        if contents == self._contents:
            return ""
        self._contents = contents
        self.version += 1
        log.info("changed credentials are in use for new connections")
        for callback in list(self._callbacks):
            callback()
        return "applied"

    def _channel_credentials(self) -> grpc.ChannelCredentials | None:
        contents = self._contents
        if self._credentials.uses_tls:
            return grpc.ssl_channel_credentials(contents.ca, contents.key, contents.certificate)
        # Plain TCP on which gRPC refuses any address beyond loopback before it sends a byte.
        return grpc.local_channel_credentials() if contents.token else None

    def _with_token(self, channel: object) -> object:
        token = self._contents.token
        return _TokenChannel(channel, (("authorization", f"Bearer {token}"),)) if token else channel

    def _own_options(self) -> ChannelOptions:
        name = self._credentials.server_name
        return (("grpc.ssl_target_name_override", name),) if name else ()


class _TokenChannel:
    """What generated stubs and their callers need of a channel, of either stack, with a token on each call.

    gRPC's own way, call credentials, starts a thread for each call.
    """

    def __init__(self, channel: object, metadata: tuple[tuple[str, str], ...]) -> None:
        self._channel: Any = channel
        self._metadata = metadata

    def unary_unary(self, *method: object, **how: object) -> _TokenMethod:
        return _TokenMethod(self._channel.unary_unary(*method, **how), self._metadata)

    def unary_stream(self, *method: object, **how: object) -> _TokenMethod:
        return _TokenMethod(self._channel.unary_stream(*method, **how), self._metadata)

    def stream_unary(self, *method: object, **how: object) -> _TokenMethod:
        return _TokenMethod(self._channel.stream_unary(*method, **how), self._metadata)

    def stream_stream(self, *method: object, **how: object) -> _TokenMethod:
        return _TokenMethod(self._channel.stream_stream(*method, **how), self._metadata)

    def close(self) -> Any:  # noqa: ANN401  # None, or something to await
        return self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._channel.close()


class _TokenMethod:
    def __init__(self, start: Any, metadata: tuple[tuple[str, str], ...]) -> None:  # noqa: ANN401  # of either stack
        self._start = start
        self._metadata = metadata

    def __call__(self, *arguments: object, **more: object) -> Any:  # noqa: ANN401  # the stack's own call
        return self._start(*arguments, metadata=self._metadata, **more)

    def future(self, *arguments: object, **more: object) -> Any:  # noqa: ANN401  # as above
        return self._start.future(*arguments, metadata=self._metadata, **more)


def explain_connection_failure(message: str) -> str:
    """Put in front of gRPC's message what failed in a TLS handshake and what to check; other messages stay as they are.

    Source: texts of gRPC 1.72 to 1.85 (``ssl_transport_security.cc``, ``local_security_connector.cc``).
    """
    meaning = next((meaning for pattern, meaning in _HANDSHAKE_FAILURES if re.search(pattern, message)), "")
    return f"{meaning} ({message})" if meaning else message


_HANDSHAKE_FAILURES = (
    ("certificate has expired", "the server's certificate has expired"),
    ("certificate is not yet valid", "the server's certificate is not valid yet: check the clocks"),
    (
        "self.signed certificate",
        "the server's certificate is self-signed and not in the file of the CA: check the setting ca",
    ),
    ("CERTIFICATE_VERIFY_FAILED", "the server's certificate is not signed by a trusted CA: check the setting ca"),
    (
        "Hostname Verification Check failed",
        "the server's certificate is for another host: connect to a name in it, or set server_name",
    ),
    ("WRONG_VERSION_NUMBER", "the server does not use TLS on this port"),
    ("_ALERT_", "the server rejected this program's certificate: check the settings certificate and key"),
    (
        "neither UDS or TCP loopback",
        "a token is sent over TLS, or to loopback only, and was not sent: set tls or ca",
    ),
    (
        "failed to connect.*Socket closed",
        "the server closed the connection: if it uses TLS, set tls here, with a certificate that its client CA signed",
    ),
)
"""Pattern of gRPC's message, and its meaning; the first that matches."""


def _read(settings: Credentials) -> _Contents:
    """Read and check the settings and files. Raises CredentialsError with every problem."""
    problems: list[str] = []
    if bool(settings.certificate) is not bool(settings.key):
        given, missing = ("certificate", "key") if settings.certificate else ("key", "certificate")
        problems.append(f"{missing}: is missing; {given} is set, and they are used together")
    if settings.server_name and not all(33 <= ord(letter) < 127 for letter in settings.server_name):
        problems.append(f"server_name: {settings.server_name!r} must be a host name")
    files: dict[str, bytes] = {}
    for field, file in settings.files.items():
        with _noting(problems):
            if file:
                files[field] = _read_file(field, file)
                if field != "token_file":
                    _check_pem(field, file, files[field])
    token = ""
    with _noting(problems):
        if "token_file" in files:
            token = _to_token(settings.token_file, files["token_file"])
    if {"certificate", "key"} <= files.keys() and not problems:
        with _noting(problems):
            _check_pair(settings, files)
    if problems:
        raise CredentialsError(*problems)
    return _Contents(files.get("ca"), files.get("certificate"), files.get("key"), token)


@contextmanager
def _noting(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except CredentialsError as error:
        problems += error.problems


def _read_file(field: str, file: str) -> bytes:
    try:
        if not stat.S_ISREG(Path(file).stat().st_mode):
            # Opening a pipe would wait for its writer.
            raise CredentialsError(f"{field}: {file} is not a file")
        with Path(file).open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise CredentialsError(f"{field}: {file} cannot be read: {problem}") from error
    if len(content) > MAX_FILE_BYTES:
        raise CredentialsError(f"{field}: {file} is larger than {MAX_FILE_BYTES} bytes")
    return content


def _check_pem(field: str, file: str, content: bytes) -> None:
    """Check that it is complete, and of the kind that the field takes."""
    wanted = b"PRIVATE KEY" if field == "key" else b"CERTIFICATE"
    kinds = [match["kind"] for match in _PEM.finditer(content)]
    if content.count(b"-----BEGIN ") != len(kinds):
        raise CredentialsError(f"{field}: {file} is cut short or damaged: a BEGIN line has no END line")
    if b"ENCRYPTED PRIVATE KEY" in kinds or b"Proc-Type: 4,ENCRYPTED" in content:
        raise CredentialsError(f"{field}: {file} is encrypted; write it without a passphrase and limit who may read it")
    if not any(kind.endswith(wanted) for kind in kinds):
        raise CredentialsError(f"{field}: {file} has no PEM block {wanted.decode()}")
    if field != "key":
        try:
            blocks = b"\n".join(match[0] for match in _PEM.finditer(content) if match["kind"] == b"CERTIFICATE")
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=blocks.decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            raise CredentialsError(f"{field}: {file} has a certificate that cannot be decoded: {error}") from error


def _check_pair(settings: Credentials, files: dict[str, bytes]) -> None:
    """Check the key with its certificate. OpenSSL reads files alone, so they must not change meanwhile."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(settings.certificate, settings.key, password="")
    except (OSError, ValueError) as error:
        if "KEY_VALUES_MISMATCH" in str(error):
            problem = f"does not belong to the certificate {settings.certificate}"
        else:
            problem = f"cannot be used with the certificate {settings.certificate}: {error}"
        raise CredentialsError(f"key: {settings.key} {problem}") from error
    for field in ("certificate", "key"):
        if _read_file(field, getattr(settings, field)) != files[field]:
            raise CredentialsError(f"{field}: {getattr(settings, field)} changed while it was read; try again")


def _to_token(file: str, content: bytes) -> str:
    """Return the token; line ends after it are not part of it."""
    text = content.rstrip(b"\r\n")
    if not text:
        raise CredentialsError(f"token_file: {file} is empty")
    if len(text) > MAX_TOKEN_LENGTH:
        raise CredentialsError(f"token_file: {file} has {len(text)} bytes, at most {MAX_TOKEN_LENGTH} are allowed")
    for position, byte in enumerate(text, 1):
        if not 33 <= byte < 127:
            raise CredentialsError(
                f"token_file: {file} has a character that a token cannot have (code {byte}) at position {position}: "
                "a token is one line of visible ASCII without spaces"
            )
    return text.decode("ascii")
