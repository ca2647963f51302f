"""How a failed command ends: one line or one JSON object on stderr that says what to do, and an exit code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import grpc

from pointsman_client import (
    AccessDeniedError,
    AgentFailedError,
    ClusterNotFoundError,
    InvalidInputError,
    NameServerFailedError,
    NameServersUnavailableError,
    NotFoundError,
    PointsmanError,
    RequestRejectedError,
    TopicNotFoundError,
)
from pointsman_ctl.operator_texts import printable

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_TIMED_OUT = 3
"""It was done, but a wait on the way ended before what it waited for."""
EXIT_INTERRUPTED = 130
"""As a shell reports an end by SIGINT."""
NO_GRPC = "no gRPC there: is it the port of the metrics, or of something else?"
OLDER_SERVER = "this name server does not know that call: it is older than this pointsmanctl"
OLDER_AGENT = "it does not know that call: no agent, or one that is older than this pointsmanctl"
AGENT_HINT = "is the agent running, and reachable from here? --agent HOST:PORT asks another address"
AGAIN_HINT = "run it again when all answer, what is done stays done"
_HINTS = {
    "TOPIC_HELD": "delete it on these brokers first, or hide it here with --force",
    "TOPIC_NOT_FOUND": "see `pointsmanctl topics`",
    "CLUSTER_NOT_FOUND": "see `pointsmanctl clusters`",
    "BROKER_UNKNOWN": "see `pointsmanctl brokers`",
    "KV_NOT_FOUND": "see `pointsmanctl kv list`",
    "ORDER_TOPIC_NOT_FOUND": "see `pointsmanctl order-topic list`",
    "SETTING_NOT_SAVED": "make room on that server's disk, or repair it, and run it again",
    "MAINTENANCE_NOT_FOUND": "see `pointsmanctl maintenance list`",
}
"""By the code of the server's refusal, or of what this command makes of it."""


class BrokerNotFoundError(NotFoundError):
    """No name server that was asked remembers the broker."""

    code = "BROKER_NOT_FOUND"

    def __init__(self, broker_name: str, cluster: str) -> None:
        super().__init__(
            f"no event of broker {broker_name} is remembered" + (f" in cluster {cluster}" if cluster else "")
        )


class BrokerClusterUnknownError(NotFoundError):
    """No name server that was asked knows the broker now, so its cluster must be given."""

    code = "BROKER_NOT_FOUND"

    def __init__(self, broker_name: str) -> None:
        super().__init__(f"no name server knows broker {broker_name}")


class NotConfirmedError(PointsmanError):
    """The operator was asked, and declined."""

    code = "NOT_CONFIRMED"

    def __init__(self) -> None:
        super().__init__("not confirmed: nothing was changed")


class KeyNotFoundError(NotFoundError):
    """No name server that was asked has the key."""

    code = "KV_NOT_FOUND"

    def __init__(self, namespace: str, key: str) -> None:
        super().__init__(f"there is no key {key} in namespace {namespace}")


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """A failure as operators and scripts read it."""

    code: str
    message: str
    hint: str = ""
    servers: dict[str, str] = field(default_factory=dict)
    """Address to what was wrong there."""

    def to_line(self) -> str:
        """Render for operators."""
        if not self.hint:
            return f"pointsmanctl: {self.message}"
        if self.message.endswith("?"):
            return f"pointsmanctl: {self.message} {self.hint[0].upper()}{self.hint[1:]}"
        return f"pointsmanctl: {self.message.removesuffix('.')}: {self.hint}"

    def to_document(self) -> dict[str, object]:
        """Render for scripts."""
        document: dict[str, object] = {"code": self.code, "message": self.message, "hint": self.hint}
        if self.servers:
            document["servers"] = [{"addr": addr, "message": words} for addr, words in self.servers.items()]
        return document

    def render(self, output: str) -> str:
        """Render in the output format."""
        return json.dumps({"error": self.to_document()}) if output == "json" else self.to_line()


def to_error_report(error: PointsmanError) -> ErrorReport:
    """State what went wrong and what to do."""
    message, hint, servers = printable(str(error)), "", {}
    if isinstance(error, NameServersUnavailableError):
        return _no_answer({failure.addr: failure for failure in error.failures})
    if isinstance(error, (NameServerFailedError, RequestRejectedError)):
        servers = {error.addr: failure_words(error)}
        message, hint = answer_words(error.addr, error), _hint_of(error)
    elif isinstance(error, TopicNotFoundError):
        hint = "see `pointsmanctl topics`; `pointsmanctl flapping` shows brokers that left"
    elif isinstance(error, BrokerClusterUnknownError):
        hint = "say where with --cluster; see `pointsmanctl brokers`"
    elif isinstance(error, BrokerNotFoundError):
        hint = "see `pointsmanctl brokers`"
    elif isinstance(error, (ClusterNotFoundError, KeyNotFoundError)):
        hint = _HINTS[error.code]
    return ErrorReport(_code_of(error), message, hint, servers)


def nodes_failed(failures: Mapping[str, PointsmanError], *, of: Sequence[str], is_change: bool) -> ErrorReport:
    """Name the servers that failed, of those that were each asked, and after a change those that did it."""
    if len(failures) == len(of):
        return _no_answer(failures)
    where, hint = _listed(failures), _hints(failures)
    if is_change:
        where += f"; done at {', '.join(addr for addr in of if addr not in failures)}"
        if not all(map(_is_refusal, failures.values())):
            hint = AGAIN_HINT
    message = f"{len(failures)} of {len(of)} name servers failed: {where}"
    return ErrorReport(_common_code(failures, NameServersUnavailableError.code), message, hint, _servers(failures))


def agents_failed(failures: Mapping[str, PointsmanError], *, of: Sequence[str], is_change: bool) -> ErrorReport:
    """Name the agents that failed, of those that were each asked, and after a change those that did it."""
    where, hint = _listed(failures), _hints(failures)
    if len(failures) == len(of):
        message = f"{'refused by' if all(map(_is_refusal, failures.values())) else 'no agent answered at'} {where}"
    else:
        hint = "what only they know is missing here"
        if is_change:
            where += f"; done at {', '.join(addr for addr in of if addr not in failures)}"
            hint = "" if all(map(_is_refusal, failures.values())) else AGAIN_HINT
        message = f"{len(failures)} of {len(of)} agents failed: {where}"
    return ErrorReport(_common_code(failures, "AGENTS_FAILED"), message, hint, _servers(failures))


def answer_words(addr: str, failure: PointsmanError) -> str:
    """Describe in one sentence what a server did instead of answering."""
    words = failure_words(failure)
    return f"{addr} refused: {words}" if _is_refusal(failure) else f"{addr} did not answer ({words})"


def failure_words(failure: PointsmanError) -> str:
    """Describe in few words why a name server or an agent did not answer, or refused."""
    if isinstance(failure, RequestRejectedError):
        # The message of bad input names its first fault alone.
        faults = "; ".join(printable(f"{fault.field} {fault.description}") for fault in failure.violations)
        words = faults or printable(failure.message) or failure.status.name
        # What is not found, servers log at DEBUG alone.
        is_logged = failure.request_id and failure.status is not grpc.StatusCode.NOT_FOUND
        return f"{words} [request {printable(failure.request_id)}]" if is_logged else words
    if not isinstance(failure, NameServerFailedError):
        return printable(str(failure))
    is_agent = isinstance(failure, AgentFailedError)
    if is_agent and failure.status is grpc.StatusCode.UNIMPLEMENTED:
        return OLDER_AGENT
    if failure.status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "no answer in time"
    if "Connection refused" in failure.message:
        return "connection refused"
    if "resolving" in failure.message or "DNS" in failure.message:
        return "its name cannot be resolved"
    if "parsing HTTP/2" in failure.message:
        return NO_GRPC
    if "before receiving SETTINGS" in failure.message:
        return "connected, but no answer: is it hung?"
    if failure.status is grpc.StatusCode.UNIMPLEMENTED:
        return OLDER_SERVER
    # Of a failed handshake the cause, without gRPC's own text.
    return printable(failure.message.partition(" (failed to connect")[0]) or failure.status.name


def exit_code_of(error: PointsmanError) -> int:
    """Return the exit code: bad input is a usage error."""
    return EXIT_USAGE if isinstance(error, InvalidInputError) else EXIT_FAILED


def _no_answer(failures: Mapping[str, PointsmanError]) -> ErrorReport:
    refusing = {addr: failure for addr, failure in failures.items() if _is_refusal(failure)}
    silent = {addr: failure for addr, failure in failures.items() if addr not in refusing}
    code, hint, servers = NameServersUnavailableError.code, _hints(failures), _servers(failures)
    if not refusing:
        return ErrorReport(code, f"no name server answered at {_listed(failures)}", hint, servers)
    if not silent:
        return ErrorReport(_common_code(failures, code), f"refused by {_listed(failures)}", hint, servers)
    return ErrorReport(code, f"refused by {_listed(refusing)}; no answer from {_listed(silent)}", hint, servers)


def _is_refusal(failure: PointsmanError) -> bool:
    return isinstance(failure, RequestRejectedError)


def _servers(failures: Mapping[str, PointsmanError]) -> dict[str, str]:
    return {addr: failure_words(failure) for addr, failure in failures.items()}


def _listed(failures: Mapping[str, PointsmanError]) -> str:
    return ", ".join(f"{addr} ({words})" for addr, words in _servers(failures).items())


def _code_of(failure: PointsmanError) -> str:
    return failure.details.code or failure.code if isinstance(failure, RequestRejectedError) else failure.code


def _common_code(failures: Mapping[str, PointsmanError], otherwise: str) -> str:
    codes = set(map(_code_of, failures.values()))
    return codes.pop() if len(codes) == 1 else otherwise


def _hints(failures: Mapping[str, PointsmanError]) -> str:
    return "; ".join(filter(None, dict.fromkeys(map(_hint_of, failures.values()))))


def _hint_of(failure: PointsmanError) -> str:
    if isinstance(failure, AccessDeniedError):
        if failure.status is grpc.StatusCode.UNAUTHENTICATED:
            return "pass --tls-certificate and --tls-key, or --token-file, that this server knows"
        return failure.hint
    if isinstance(failure, RequestRejectedError):
        return _HINTS.get(failure.details.code, "")
    # No answer at all, rather than an error of its own.
    if failure_words(failure) in {"no answer in time", "connection refused", "its name cannot be resolved"}:
        return AGENT_HINT if isinstance(failure, AgentFailedError) else "is it running? See --namesrv"
    return ""
