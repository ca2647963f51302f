"""The error of a refused call."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass

import grpc
import pytest
from grpc_status import rpc_status

from pointsman.wire.error_details import ErrorDetails, read_status


@dataclass(frozen=True)
class Refusal:
    """Status, text and details."""

    status: grpc.StatusCode
    message: str
    details: ErrorDetails

    @property
    def fields(self) -> list[str]:
        return [violation.field for violation in self.details.violations]


async def refusal_of(call: Awaitable[object]) -> Refusal:
    """Await a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    error = failed.value
    return Refusal(error.code(), error.details() or "", read_status(rpc_status.from_call(error)))
