"""The border to a transport, which may be foreign code: whatever it does ends in time and in an error of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from pointsman_client.errors import BrokerRefusedError, BrokerTimeoutError, PointsmanError, ResponseCode

ResultT = TypeVar("ResultT")


async def answer_of(addr: str, call: Awaitable[ResultT], *, timeout_seconds: float) -> ResultT:
    """Wait for a call of a transport.

    Raises what it raises of ours; :class:`BrokerTimeoutError` also when the transport does not keep its time; and
    :class:`BrokerRefusedError` with SYSTEM_ERROR for anything else, which is a fault of the transport.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            return await call
    except PointsmanError:
        raise
    except TimeoutError as error:
        raise BrokerTimeoutError(addr, f"no answer within {timeout_seconds:.3g} s") from error
    except Exception as error:  # the border to foreign code: a failure of a transport is a refusal
        message = f"the transport raised {error!r}"
        raise BrokerRefusedError(addr, ResponseCode.SYSTEM_ERROR, message) from error
