"""Failures of commands: one line or one JSON object on standard error, and the exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import grpc

from pointsman.names import is_observed, is_rocketmq, printable
from pointsman_client import (
    AccessDeniedError,
    AgentFailedError,
    BrokerError,
    BrokerRefusedError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    ClusterNotFoundError,
    InvalidInputError,
    NameServerFailedError,
    NameServersUnavailableError,
    NotFoundError,
    PointsmanError,
    RequestRejectedError,
    TopicNotFoundError,
)
from pointsman_ctl.servers.server_calls import BrokerDeniedError, BrokerFailedError

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_TIMED_OUT = 3
"""Done, but a wait timed out."""
EXIT_INTERRUPTED = 130
"""As a shell reports SIGINT."""
NO_GRPC = "not a gRPC port, maybe the metrics port, or RocketMQ's: that needs rocketmq://"
OLDER_SERVER = "this call is not supported: the name server is older than this pointsmanctl"
OLDER_AGENT = "this call is not supported: not an agent, or older than this pointsmanctl"
OPTION_OF_SETTING = {
    "set tls here, with a certificate that its client CA signed": (
        "give --tls-ca, and --tls-certificate and --tls-key if it requires a client certificate"
    ),
    "set tls or ca": "give --tls-ca",
    "check the setting ca": "check --tls-ca",
    "or set server_name": "or give --tls-server-name",
    "check the settings certificate and key": "check --tls-certificate and --tls-key",
}
"""What :mod:`pointsman.wire.channel_opener` says of settings, and what it is in this program."""
NO_RESPONSE = "no response in time"
CONNECTION_REFUSED = "connection refused"
NAME_NOT_RESOLVED = "host name cannot be resolved"
NAME_SERVER_HINT = "check that it runs, and --namesrv or POINTSMAN_NAMESRV"
AGENT_HINT = "check that the agent runs and is reachable from here, or give another address with --agent"
BROKER_HINT = "check that the broker runs and is reachable from here"
REDIS_HINT = "give --redis-password-file, and --redis-username for an ACL user"
ROCKETMQ_TLS_HINT = "give --rocketmq-tls and --tls-ca"
ACCESS_KEY_HINT = "give --access-key-file with an account that may do this"
AGAIN_HINT = "run the command again when all respond; repeating it is safe"
_NO_ACCOUNT = re.compile(r"AclException|[Uu]sername|signature|accessKey")
"""In what RocketMQ brokers respond without an account, or with a wrong one."""
_HINTS = {
    "TOPIC_HELD": "delete it on these brokers first, or hide it here with --force",
    "TOPIC_NOT_FOUND": "see `pointsmanctl topics`",
    "CLUSTER_NOT_FOUND": "see `pointsmanctl clusters`",
    "BROKER_UNKNOWN": "see `pointsmanctl brokers`",
    "KV_NOT_FOUND": "see `pointsmanctl kv list`",
    "ORDER_TOPIC_NOT_FOUND": "see `pointsmanctl order-topic list`",
    "SETTING_NOT_SAVED": "free space on that server's disk, or repair it, and run the command again",
    "MAINTENANCE_NOT_FOUND": "see `pointsmanctl maintenance list`",
}
"""By the error code."""


class BrokerNotFoundError(NotFoundError):
    """No name server has an event of the broker."""

    code = "BROKER_NOT_FOUND"

    def __init__(self, broker_name: str, cluster: str) -> None:
        super().__init__(
            f"no name server has an event of broker {broker_name}" + (f" in cluster {cluster}" if cluster else "")
        )


class BrokerClusterUnknownError(NotFoundError):
    """No name server has a registration of the broker, so its cluster must be given."""

    code = "BROKER_NOT_FOUND"

    def __init__(self, broker_name: str) -> None:
        super().__init__(f"broker {broker_name} is not registered at any name server")


class NotConfirmedError(PointsmanError):
    """The operator did not confirm."""

    code = "NOT_CONFIRMED"

    def __init__(self) -> None:
        super().__init__("not confirmed: nothing was changed")


class KeyNotFoundError(NotFoundError):
    """No name server has the key."""

    code = "KV_NOT_FOUND"

    def __init__(self, namespace: str, key: str) -> None:
        super().__init__(f"key {key} is not set in namespace {namespace}")


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """A failure, for operators and scripts."""

    code: str
    message: str
    hint: str = ""
    servers: dict[str, str] = field(default_factory=dict)
    """What failed, by address."""

    def to_line(self) -> str:
        """Render for operators."""
        if not self.hint:
            return f"pointsmanctl: {self.message}"
        if self.message.endswith("?"):
            return f"pointsmanctl: {self.message} {self.hint[0].upper()}{self.hint[1:]}"
        return f"pointsmanctl: {self.message.removesuffix('.')}; {self.hint}"

    def to_document(self) -> dict[str, object]:
        """Render for scripts."""
        document: dict[str, object] = {"code": self.code, "message": self.message, "hint": self.hint}
        if self.servers:
            document["servers"] = [{"addr": addr, "message": text} for addr, text in self.servers.items()]
        return document

    def render(self, output: str) -> str:
        """Render in the output format."""
        return json.dumps({"error": self.to_document()}) if output == "json" else self.to_line()


def to_error_report(error: PointsmanError) -> ErrorReport:
    """Describe what failed and what to do."""
    message, hint, servers = printable(str(error)), "", {}
    if isinstance(error, NameServersUnavailableError):
        return _no_response({failure.addr: failure for failure in error.failures})
    if isinstance(error, (NameServerFailedError, RequestRejectedError)):
        servers = {error.addr: failure_text(error)}
        message, hint = failure_sentence(error.addr, error), _hint_of(error)
    elif isinstance(error, BrokerError):
        servers, hint = {error.addr: printable(error.message)}, _broker_hint_of(error)
    elif isinstance(error, BrokerClusterUnknownError):
        hint = "give --cluster; see `pointsmanctl brokers`"
    elif isinstance(error, BrokerNotFoundError):
        hint = "see `pointsmanctl brokers`"
    elif isinstance(error, (TopicNotFoundError, ClusterNotFoundError, KeyNotFoundError)):
        hint = _HINTS[error.code]
    return ErrorReport(_code_of(error), message, hint, servers)


def nodes_failed(failures: Mapping[str, PointsmanError], *, of: Sequence[str], is_change: bool) -> ErrorReport:
    """Name the servers that failed and, after a change, those that applied it."""
    if len(failures) == len(of):
        return _no_response(failures)
    where, hint = _listed(failures), _hints(failures)
    if is_change:
        where += f"; done at {', '.join(addr for addr in of if addr not in failures)}"
        if not all(map(_is_refusal, failures.values())):
            hint = AGAIN_HINT
    message = f"{len(failures)} of {len(of)} name servers failed: {where}"
    return ErrorReport(_common_code(failures, NameServersUnavailableError.code), message, hint, _servers(failures))


def agents_failed(
    failures: Mapping[str, PointsmanError], *, of: Sequence[str], is_change: bool, noun: str = "agent"
) -> ErrorReport:
    """Name the agents that failed and, after a change, those that applied it; ``noun``: what they are."""
    where, hint = _listed(failures), _hints(failures)
    if all(map(_is_refusal, failures.values())) and len(failures) == len(of):
        message = f"rejected by {where}"
    elif any(isinstance(each, NameServerFailedError) for each in failures.values()) and len(failures) == len(of):
        message = f"no {noun} is responding: {where}"
    elif len(failures) == len(of):
        hint = AGAIN_HINT if is_change else hint
        message = f"{len(failures)} of {len(of)} {noun}s failed: {where}"
    else:
        hint = "data that only they have is missing"
        if is_change:
            where += f"; done at {', '.join(addr for addr in of if addr not in failures)}"
            hint = "" if all(map(_is_refusal, failures.values())) else AGAIN_HINT
        message = f"{len(failures)} of {len(of)} {noun}s failed: {where}"
    return ErrorReport(_common_code(failures, "AGENTS_FAILED"), message, hint, _servers(failures))


def queues_failed(failures: Mapping[str, PointsmanError]) -> ErrorReport:
    """Name the queues, or brokers, whose messages could not be read or sent, by CLUSTER/BROKER/N."""
    reasons: dict[str, list[str]] = {}
    for name, failure in failures.items():
        reasons.setdefault(failure_text(failure), []).append(printable(name))
    message = "failed: " + "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())
    hints = dict.fromkeys(to_error_report(failure).hint for failure in failures.values())
    return ErrorReport(_common_code(failures, "QUEUES_FAILED"), message, "; ".join(filter(None, hints)))


def failure_sentence(addr: str, failure: PointsmanError) -> str:
    """Describe the failure of a server in one sentence."""
    text = failure_text(failure)
    return f"{addr} rejected the request: {text}" if _is_refusal(failure) else f"{addr} is not responding ({text})"


def failure_text(failure: PointsmanError) -> str:
    """Return the cause of a failure in a few words."""
    if isinstance(failure, RequestRejectedError):
        # The message itself names only the first violation.
        violations = "; ".join(printable(f"{each.field} {each.description}") for each in failure.violations)
        text = violations or printable(failure.message) or failure.status.name
        # Servers log NOT_FOUND only at DEBUG.
        is_logged = failure.request_id and failure.status is not grpc.StatusCode.NOT_FOUND
        return f"{text} [request {printable(failure.request_id)}]" if is_logged else text
    if not isinstance(failure, NameServerFailedError):
        return printable(str(failure))
    is_agent = isinstance(failure, AgentFailedError)
    if is_agent and failure.status is grpc.StatusCode.UNIMPLEMENTED:
        return OLDER_AGENT
    if failure.status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return NO_RESPONSE
    if is_observed(failure.addr) and failure.message.startswith("the observer "):
        return printable(failure.message)  # what it names is between the observer and a name server
    if "Connection refused" in failure.message:
        return CONNECTION_REFUSED
    if any(word in failure.message for word in ("resolving", "DNS", NAME_NOT_RESOLVED)):
        return NAME_NOT_RESOLVED
    if "parsing HTTP/2" in failure.message or "ALPN" in failure.message:
        return NO_GRPC
    if "before receiving SETTINGS" in failure.message:
        return "connected, but not responding"
    if failure.status is grpc.StatusCode.UNIMPLEMENTED:
        return f"not a name server: {printable(failure.message)}" if is_rocketmq(failure.addr) else OLDER_SERVER
    # The cause of a failed handshake, without gRPC's own text.
    text = printable(failure.message.partition(" (failed to connect")[0]) or failure.status.name
    for setting, option in OPTION_OF_SETTING.items():
        text = text.replace(setting, option)
    return text


def exit_code_of(error: PointsmanError) -> int:
    """Return the exit code; invalid input is a usage error."""
    return EXIT_USAGE if isinstance(error, InvalidInputError) else EXIT_FAILED


def _no_response(failures: Mapping[str, PointsmanError]) -> ErrorReport:
    refusing = {addr: failure for addr, failure in failures.items() if _is_refusal(failure)}
    silent = {addr: failure for addr, failure in failures.items() if addr not in refusing}
    code, hint, servers = NameServersUnavailableError.code, _hints(failures), _servers(failures)
    if not refusing:
        return ErrorReport(code, f"no name server is responding: {_listed(failures)}", hint, servers)
    if not silent:
        return ErrorReport(_common_code(failures, code), f"rejected by {_listed(failures)}", hint, servers)
    return ErrorReport(code, f"rejected by {_listed(refusing)}; not responding: {_listed(silent)}", hint, servers)


def _is_refusal(failure: PointsmanError) -> bool:
    return isinstance(failure, RequestRejectedError)


def _servers(failures: Mapping[str, PointsmanError]) -> dict[str, str]:
    return {addr: failure_text(failure) for addr, failure in failures.items()}


def _listed(failures: Mapping[str, PointsmanError]) -> str:
    return ", ".join(f"{addr} ({text})" for addr, text in _servers(failures).items())


def _code_of(failure: PointsmanError) -> str:
    return failure.details.code or failure.code if isinstance(failure, RequestRejectedError) else failure.code


def _common_code(failures: Mapping[str, PointsmanError], otherwise: str) -> str:
    codes = set(map(_code_of, failures.values()))
    return codes.pop() if len(codes) == 1 else otherwise


def _hints(failures: Mapping[str, PointsmanError]) -> str:
    return "; ".join(filter(None, dict.fromkeys(map(_hint_of, failures.values()))))


def _broker_hint_of(error: BrokerError) -> str:
    if isinstance(error, (BrokerUnreachableError, BrokerTimeoutError)):
        return BROKER_HINT
    if not isinstance(error, BrokerRefusedError):
        return ""
    # The transport's advice, for callers with options.
    if "check username and password" in error.message:
        return REDIS_HINT
    return ACCESS_KEY_HINT if _NO_ACCOUNT.search(error.message) else ""


def _hint_of(failure: PointsmanError) -> str:
    if isinstance(failure, AccessDeniedError):
        if isinstance(failure, BrokerDeniedError) or is_rocketmq(failure.addr):
            return ACCESS_KEY_HINT
        if failure.status is grpc.StatusCode.UNAUTHENTICATED:
            return "give --tls-certificate and --tls-key, or --token-file, for an identity that this server knows"
        return failure.hint
    if isinstance(failure, RequestRejectedError):
        return _HINTS.get(failure.details.code, "")
    if isinstance(failure, NameServerFailedError) and "if it requires TLS" in failure.message:
        return ROCKETMQ_TLS_HINT
    text = failure_text(failure)
    if text in {NO_RESPONSE, CONNECTION_REFUSED, NAME_NOT_RESOLVED} or "not connected within" in text:
        if isinstance(failure, BrokerFailedError):
            return BROKER_HINT
        return AGENT_HINT if isinstance(failure, AgentFailedError) else NAME_SERVER_HINT
    return ""
