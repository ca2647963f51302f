"""Response codes of RocketMQ brokers as errors. Pure."""

from __future__ import annotations

from datetime import datetime

from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.codes import is_denied
from pointsman.rocketmq.frames import Command
from pointsman_client.errors import BrokerRefusedError, InvalidMessageError, PointsmanError

_ADVICE: dict[int, str] = {
    Code.SYSTEM_BUSY: "it is overloaded, or a slave that may not be read (slaveReadEnable): use another broker",
    Code.REQUEST_CODE_NOT_SUPPORTED: "the broker is older than 4.9, or this is not its listenPort",
    Code.MESSAGE_ILLEGAL: "see maxMessageSize of the broker; properties have at most 32,767 bytes",
    Code.SERVICE_NOT_AVAILABLE: "its disk is full, or it is a slave: use another broker",
    Code.NO_PERMISSION: "check access_key, brokerPermission, perm of the topic and consumeEnable of the group",
    Code.TOPIC_NOT_EXIST: "create the topic, or set autoCreateTopicEnable",
    Code.SUBSCRIPTION_PARSE_FAILED: "check the tags, or the SQL condition, of the subscription",
    Code.SUBSCRIPTION_GROUP_NOT_EXIST: "create the group, or set autoCreateSubscriptionGroup",
}
_NAMES = {code.value: code.name for code in Code}


def refused(addr: str, response: Command) -> BrokerRefusedError:
    """Return the error for a response with an error code."""
    code = response.code
    name = _NAMES.get(code, "response code")
    advice = f" ({_ADVICE[code]})" if code in _ADVICE else ""
    if code == Code.SYSTEM_ERROR and "does not support consumer to filter message" in (response.remark or ""):
        advice = " (set enablePropertyFilter)"
    if code == Code.SYSTEM_ERROR and is_denied(code, response.remark):
        advice = " (check access_key)"
    return BrokerRefusedError(addr, code, f"{name} {code}: {response.reason}{advice}")


def send_refused(addr: str, response: Command, due_at: datetime | None) -> PointsmanError:
    """As :func:`refused`, for a send: a delay beyond the broker's limit is an InvalidMessageError."""
    is_illegal = response.code == Code.MESSAGE_ILLEGAL and "timer message illegal" in (response.remark or "")
    if due_at is not None and is_illegal:
        problem = f"is rejected by {addr} (see timerMaxDelaySec of the broker): {response.reason}"
        return InvalidMessageError("deliver_at", due_at.isoformat(), problem)
    return refused(addr, response)
