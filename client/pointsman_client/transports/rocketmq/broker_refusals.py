"""Response codes of RocketMQ brokers as errors. Pure."""

from __future__ import annotations

from pointsman.remoting.frames import Command
from pointsman_client.errors import BrokerRefusedError


def refused(addr: str, answer: Command) -> BrokerRefusedError:
    """Return the error for a response with an error code."""
    return BrokerRefusedError(addr, answer.code, answer.remark or f"response code {answer.code}")
