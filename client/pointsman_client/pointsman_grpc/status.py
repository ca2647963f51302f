"""Translation of gRPC errors to the client's own, with the gRPC error as the cause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from pointsman.wire.channel_opener import explain_connection_failure
from pointsman.wire.error_details import ANOTHER_MAY_ANSWER, ErrorDetails, read_status
from pointsman_client.errors import (
    AccessDeniedError,
    ClientClosedError,
    NameServerFailedError,
    NotFoundError,
    PointsmanError,
    RequestRejectedError,
)


@contextmanager
def grpc_errors_of(
    addr: str,
    *,
    failed: type[NameServerFailedError] = NameServerFailedError,
    not_found: Callable[[], NotFoundError] | None = None,
) -> Iterator[None]:
    """Translate errors of a call: ``failed`` is that of a missing response, ``not_found`` builds that of NOT_FOUND."""
    cancellations = _cancellations()
    try:
        try:
            yield
        finally:
            # A stream that fails while its reader is cancelled raises only the failure: the cancellation would be lost.
            if _cancellations() > cancellations:
                raise asyncio.CancelledError
    except asyncio.CancelledError:
        if _cancellations() <= cancellations:
            # The caller was not cancelled: the channel was closed during its call.
            raise ClientClosedError from None
        raise
    except grpc.aio.AioRpcError as error:
        raise _to_client_error(addr, error, failed, not_found) from error
    except grpc.aio.UsageError as error:
        # Raised on a closed channel, and channels are closed with their client.
        raise ClientClosedError from error


def _cancellations() -> int:
    """Return the requests to cancel this task.

    The caller must not keep the task: an ended task refers to its exception and so to the caller's frame. Such a cycle
    would keep the connection of the call open.
    """
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _to_client_error(
    addr: str,
    error: grpc.aio.AioRpcError,
    failed: type[NameServerFailedError],
    not_found: Callable[[], NotFoundError] | None,
) -> PointsmanError:
    status, message = error.code(), error.details() or ""
    if status in ANOTHER_MAY_ANSWER:
        return failed(addr, status, explain_connection_failure(message))
    if status is grpc.StatusCode.NOT_FOUND and not_found is not None:
        return not_found()
    denied = status in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
    kind = AccessDeniedError if denied else RequestRejectedError
    return kind(addr, status, message, details_of(error))


def details_of(error: grpc.aio.AioRpcError) -> ErrorDetails:
    """Return the error details of a failed call; empty if there are none."""
    try:
        return read_status(rpc_status.from_call(error))
    except (ValueError, DecodeError):
        # Details that contradict the status or cannot be decoded are ignored.
        return ErrorDetails()
