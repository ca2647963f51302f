"""Response codes of RocketMQ brokers as errors. Pure."""

from __future__ import annotations

from pointsman.remoting.codes import BrokerResponseCode as Code
from pointsman.remoting.frames import Command
from pointsman_client.errors import BrokerRefusedError

_ADVICE: dict[int, str] = {
    Code.SYSTEM_BUSY: "it is overloaded, or a slave that may not be read (slaveReadEnable): use another broker",
    Code.REQUEST_CODE_NOT_SUPPORTED: "the broker is older than 4.9, or this is not its listenPort",
    Code.MESSAGE_ILLEGAL: "see maxMessageSize of the broker; properties have at most 32,767 bytes",
    Code.SERVICE_NOT_AVAILABLE: "its disk is full, or it is a slave: use another broker",
    Code.NO_PERMISSION: "check access_key, brokerPermission, perm of the topic and consumeEnable of the group",
    Code.TOPIC_NOT_EXIST: "create the topic, or set autoCreateTopicEnable",
    Code.SUBSCRIPTION_PARSE_FAILED: "check the tags of the subscription",
    Code.SUBSCRIPTION_GROUP_NOT_EXIST: "create the group, or set autoCreateSubscriptionGroup",
}
_NAMES = {code.value: code.name for code in Code}


def refused(addr: str, response: Command) -> BrokerRefusedError:
    """Return the error for a response with an error code."""
    code = response.code
    name = _NAMES.get(code, "response code")
    advice = f" ({_ADVICE[code]})" if code in _ADVICE else ""
    return BrokerRefusedError(addr, code, f"{name} {code}: {response.remark or 'no reason given'}{advice}")
