"""From the headers of a request to the method that serves it, once for equal headers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import grpc

from pointsman.http2.grpc_framing import (
    CODINGS,
    CONTENT_TYPE,
    GrpcStatus,
    decode_binary,
    is_grpc,
    status_fields,
    timeout_seconds,
)
from pointsman.http2.header_blocks import RequestHeaders, encode_block

Inline = Callable[[bytes, Any], bytes | Awaitable[bytes]]
"""A unary method that often has its response ready: it returns the bytes, or the rest of the call."""
Metadata = tuple[tuple[str, str | bytes], ...]

_NOT_METADATA: Final = frozenset(
    {b"te", b"content-type", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding", b"grpc-message-type"}
)
"""Of the transport; gRPC's servers do not show them to handlers."""


class Refusal(NamedTuple):
    """A response without a call."""

    block: bytes
    """Its only header block."""


class Method:
    """A method, with what the headers of its requests say about the call. Never changed: calls share it."""

    __slots__ = (
        "behaviour",
        "compression",
        "fields",
        "gives_stream",
        "inline",
        "metadata",
        "read",
        "takes_stream",
        "timeout",
        "write",
    )

    def __init__(
        self,
        handler: grpc.RpcMethodHandler[Any, Any],
        inline: Inline | None,
        headers: RequestHeaders,
        *,
        timeout: float | None,
        compression: bytes,
    ) -> None:
        self.takes_stream: bool = handler.request_streaming
        self.gives_stream: bool = handler.response_streaming
        behaviours = (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
        self.behaviour = cast("Callable[[Any, Any], Any]", behaviours[2 * self.takes_stream + self.gives_stream])
        self.read: Callable[[bytes], Any] | None = handler.request_deserializer
        self.write: Callable[[Any], bytes] | None = handler.response_serializer
        self.inline = inline
        self.timeout = timeout
        """Seconds until the deadline, if the client has one."""
        self.compression = compression
        self.fields = headers.fields
        self.metadata: Metadata | None = None
        """That of the request, when a handler has asked for it."""

    def invocation_metadata(self) -> Metadata:
        """Return the metadata of the client."""
        if self.metadata is None:
            self.metadata = tuple(_metadata(self.fields))
        return self.metadata


def _metadata(fields: Sequence[tuple[bytes, bytes]]) -> list[tuple[str, str | bytes]]:
    found: list[tuple[str, str | bytes]] = []
    for name, value in fields:
        if name[:1] == b":" or name in _NOT_METADATA:
            continue
        if name.endswith(b"-bin"):
            # Several values of one name may be joined with commas.
            found += [(name.decode("ascii"), decode_binary(part.strip())) for part in value.split(b",")]
        else:
            found.append((name.decode("ascii"), value.decode("latin-1")))
    return found


def _unreadable(fields: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """Return the name of a binary field that is not base64; None: all are."""
    for name, value in fields:
        if name.endswith(b"-bin"):
            try:
                for part in value.split(b","):
                    decode_binary(part.strip())
            except ValueError:
                return name
    return None


class Methods:
    """All methods of a server. ``inline``: by path, those that may respond without a task."""

    def __init__(self, inline: Mapping[str, Inline]) -> None:
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._inline = inline

    def add(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Add services, which are checked in this order."""
        self._handlers += handlers

    def find(self, headers: RequestHeaders) -> Method | Refusal:
        """Return the method of a request, and keep it with its headers."""
        found = headers.derived
        if not isinstance(found, Method | Refusal):
            found = headers.derived = self._find(headers)
        return found

    def _find(self, headers: RequestHeaders) -> Method | Refusal:
        named = dict(headers.fields)
        if not is_grpc(named.get(b"content-type", b"")):
            return Refusal(encode_block([(b":status", b"415")]))
        if headers.method != b"POST":
            return Refusal(encode_block([(b":status", b"405"), (b"allow", b"POST")]))
        if (name := _unreadable(headers.fields)) is not None:
            return refusal(GrpcStatus.INTERNAL, f"the metadata {name[:40].decode('ascii')!r} is not base64")
        path = headers.path.decode("latin-1")
        details = _Details(path)
        for each in self._handlers:
            handler = each.service(details)
            if handler is not None:
                break
        else:
            return refusal(GrpcStatus.UNIMPLEMENTED, "Method not found!")  # the text of gRPC's own servers
        compression = named.get(b"grpc-encoding", b"identity")
        if compression not in CODINGS:
            text = f"grpc-encoding {compression[:40].decode('latin-1')!r} is not supported"
            return refusal(GrpcStatus.UNIMPLEMENTED, text, [("grpc-accept-encoding", "identity,deflate,gzip")])
        timeout = named.get(b"grpc-timeout")
        try:
            seconds = timeout_seconds(timeout) if timeout is not None else None
        except ValueError as error:
            return refusal(GrpcStatus.INTERNAL, str(error))
        return Method(handler, self._inline.get(path), headers, timeout=seconds, compression=compression)


class _Details(grpc.HandlerCallDetails):
    """What a generic handler takes of a call: the path."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()


def refusal(status: GrpcStatus, text: str, metadata: Sequence[tuple[str, str | bytes]] = ()) -> Refusal:
    """Return a response that is a status alone."""
    return Refusal(status_block(status, text, metadata))


def status_block(
    status: GrpcStatus, text: str = "", metadata: Sequence[tuple[str, str | bytes]] = (), *, alone: bool = True
) -> bytes:
    """Encode trailers; ``alone``: of a response that has nothing else ("Trailers-Only")."""
    head = [(b":status", b"200"), (b"content-type", CONTENT_TYPE)] if alone else []
    return encode_block([*head, *status_fields(status, text, metadata)])
