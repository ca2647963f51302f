"""Channels opened with credentials, and fresh ones when their files change."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any, Self, TypeAlias, cast

import grpc
import grpc.aio

from pointsman.clock import Clock
from pointsman.wire.channel_options import ChannelOptions
from pointsman.wire.credentials import Credentials, CredentialsError, read_credentials

POLL_INTERVAL_SECONDS = 10.0
"""How often the files are checked for a change."""

log = logging.getLogger(__name__)


Metadata: TypeAlias = tuple[tuple[str, str], ...]


class ChannelOpener:
    """Opens channels with the last valid content of the credentials' files.

    gRPC for Python does not reload a client's certificates, so a change needs a fresh channel: while :meth:`follow`
    runs, :attr:`version` grows with each change, and ``on_change`` callbacks are called.
    """

    def __init__(self, credentials: Credentials | None = None) -> None:
        """Read the files; None: no TLS, no token. Raises CredentialsError."""
        self._credentials = credentials or Credentials()
        self._contents = read_credentials(self._credentials)
        self._callbacks: list[Callable[[], None]] = []
        self.version = 0
        """Number of changes since the start."""
        self.problem = ""
        """Why the current content of the files is not in use; empty: it is."""

    def open(self, addr: str, options: ChannelOptions, *, metadata: Metadata = ()) -> grpc.aio.Channel:
        """Open a channel of the running event loop; it connects with the first call. ``metadata``: of each call."""
        credentials = self._channel_credentials()
        if credentials is None:
            channel = grpc.aio.insecure_channel(addr, options=options)
        else:
            channel = grpc.aio.secure_channel(addr, credentials, options=options + self._own_options())
        return cast("grpc.aio.Channel", self._with_metadata(channel, metadata))

    def open_blocking(self, addr: str, options: ChannelOptions) -> grpc.Channel:
        """Open a channel of gRPC's synchronous stack."""
        credentials = self._channel_credentials()
        if credentials is None:
            return grpc.insecure_channel(addr, options=options)
        channel = grpc.secure_channel(addr, credentials, options=options + self._own_options())
        return cast("grpc.Channel", self._with_metadata(channel, ()))

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
            contents = await asyncio.to_thread(read_credentials, self._credentials)
        except CredentialsError as error:
            if str(error) == self.problem:
                return ""
            self.problem = str(error)
            log.warning("changed files of the credentials are invalid, the last valid ones stay in use: %s", error)
            return "rejected"
        self.problem = ""
        if contents == self._contents:
            return ""
        self._contents = contents
        self.version += 1
        log.info("credentials reloaded; new connections use them")
        for callback in list(self._callbacks):
            callback()
        return "applied"

    def _channel_credentials(self) -> grpc.ChannelCredentials | None:
        contents = self._contents
        if self._credentials.uses_tls:
            return grpc.ssl_channel_credentials(contents.ca, contents.key, contents.certificate)
        # Plain TCP; gRPC refuses any address beyond loopback before it sends a byte.
        return grpc.local_channel_credentials() if contents.token else None

    def _with_metadata(self, channel: object, metadata: Metadata) -> object:
        if token := self._contents.token:
            metadata = (*metadata, ("authorization", f"Bearer {token}"))
        return _ChannelWithMetadata(channel, metadata) if metadata else channel

    def _own_options(self) -> ChannelOptions:
        name = self._credentials.server_name
        return (("grpc.ssl_target_name_override", name),) if name else ()


class _ChannelWithMetadata:
    """The part of a channel that stubs and their callers use, for both stacks, with a token or other metadata on each
    call.

    gRPC's own way, call credentials, starts a thread for each call.
    """

    def __init__(self, channel: object, metadata: Metadata) -> None:
        self._channel: Any = channel
        self._metadata = metadata

    def unary_unary(self, *method: object, **how: object) -> _MethodWithMetadata:
        return _MethodWithMetadata(self._channel.unary_unary(*method, **how), self._metadata)

    def unary_stream(self, *method: object, **how: object) -> _MethodWithMetadata:
        return _MethodWithMetadata(self._channel.unary_stream(*method, **how), self._metadata)

    def stream_unary(self, *method: object, **how: object) -> _MethodWithMetadata:
        return _MethodWithMetadata(self._channel.stream_unary(*method, **how), self._metadata)

    def stream_stream(self, *method: object, **how: object) -> _MethodWithMetadata:
        return _MethodWithMetadata(self._channel.stream_stream(*method, **how), self._metadata)

    def close(self) -> Any:  # noqa: ANN401  # None, or something to await
        return self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._channel.close()


class _MethodWithMetadata:
    def __init__(self, start: Any, metadata: Metadata) -> None:  # noqa: ANN401  # of either stack
        self._start = start
        self._metadata = metadata

    def __call__(self, *arguments: object, **more: object) -> Any:  # noqa: ANN401  # the stack's own call
        return self._start(*arguments, metadata=self._metadata, **more)

    def future(self, *arguments: object, **more: object) -> Any:  # noqa: ANN401  # as above
        return self._start.future(*arguments, metadata=self._metadata, **more)


def explain_connection_failure(message: str) -> str:
    """Prepend the cause of a failed TLS handshake and what to check to gRPC's message; others are returned unchanged.

    Source: texts of gRPC 1.72 to 1.85 (``ssl_transport_security.cc``, ``local_security_connector.cc``), and of ``ssl``.
    """
    meaning = next((meaning for pattern, meaning in _HANDSHAKE_FAILURES if re.search(pattern, message)), "")
    return f"{meaning} ({message})" if meaning else message


_HANDSHAKE_FAILURES = (
    ("certificate has expired", "the server's certificate has expired"),
    ("certificate is not yet valid", "the server's certificate is not valid yet: check the clocks"),
    (
        # A server may send its CA, too: OpenSSL adds the one that it has for clients.
        "self.signed certificate(?! in certificate chain)",
        "the server's certificate is self-signed and not in the file of the CA: check the setting ca",
    ),
    (
        "Hostname Verification Check failed|is not in peer certificate|Hostname mismatch|IP address mismatch",
        "the server's certificate is for another host: connect to a name in it, or set server_name",
    ),
    ("CERTIFICATE_VERIFY_FAILED", "the server's certificate is not signed by a trusted CA: check the setting ca"),
    ("WRONG_VERSION_NUMBER", "the server does not use TLS on this port"),
    ("_ALERT_", "the server rejected this program's certificate: check the settings certificate and key"),
    (
        "neither UDS or TCP loopback",
        "a token is sent over TLS, or to loopback only, and was not sent: set tls or ca",
    ),
    (
        # By TLS 1.3 a client learns only after its handshake that the lane needs a certificate.
        "failed to connect.*Unwrap failed",
        "the server rejected the connection: set tls here, with a certificate that its client CA signed",
    ),
    (
        "failed to connect.*Socket closed",
        (
            "the server closed the connection: if it uses TLS, set tls here, with a certificate that its client CA "
            "signed; if it is RocketMQ's name server, write rocketmq:// before its address"
        ),
    ),
)
"""Pattern of gRPC's message, and its meaning; the first that matches."""
