"""How a failed command ends: one line or one JSON object on stderr that says what to do, and an exit code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pointsman_client.errors import (
    ClusterNotFoundError,
    InvalidInputError,
    NameServerFailedError,
    NameServersUnavailableError,
    NotFoundError,
    PointsmanError,
    RequestRejectedError,
    TopicNotFoundError,
)
from pointsman_ctl.wording import failure_words, is_out_of_reach, printable

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_TIMED_OUT = 3
"""It was done, but a wait on the way ended before what it waited for."""
EXIT_INTERRUPTED = 130
"""As a shell reports an end by SIGINT."""

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
    """No name server that was asked knows the broker now, so its cluster must be said."""

    code = "BROKER_NOT_FOUND"

    def __init__(self, broker_name: str) -> None:
        super().__init__(f"no name server knows broker {broker_name}")


class NotConfirmedError(PointsmanError):
    """A person was asked and said no."""

    code = "NOT_CONFIRMED"

    def __init__(self) -> None:
        super().__init__("not confirmed: nothing was changed")


class KeyNotFoundError(NotFoundError):
    """No name server that was asked has the key."""

    code = "KV_NOT_FOUND"

    def __init__(self, namespace: str, key: str) -> None:
        super().__init__(f"there is no key {key} in namespace {namespace}")


@dataclass(frozen=True, slots=True)
class Complaint:
    """A failure as people and scripts read it."""

    code: str
    message: str
    hint: str = ""
    servers: dict[str, str] = field(default_factory=dict)
    """Address to what was wrong there."""

    def to_line(self) -> str:
        """Render for people."""
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
        """Render as the output format asks."""
        return json.dumps({"error": self.to_document()}) if output == "json" else self.to_line()


def to_complaint(error: PointsmanError) -> Complaint:
    """Say what went wrong and what to do."""
    message, hint, servers = printable(str(error)), "", {}
    if isinstance(error, NameServersUnavailableError):
        return _nobody_answered({failure.addr: failure for failure in error.failures})
    if isinstance(error, NameServerFailedError):
        servers = {error.addr: failure_words(error)}
        message, hint = answer_words(error.addr, error), _hint_for([error])
    elif isinstance(error, TopicNotFoundError):
        hint = "see `pointsmanctl topics`; `pointsmanctl flapping` shows brokers that left"
    elif isinstance(error, ClusterNotFoundError):
        hint = "see `pointsmanctl clusters`"
    elif isinstance(error, BrokerNotFoundError):
        hint = "see `pointsmanctl brokers`"
    elif isinstance(error, BrokerClusterUnknownError):
        hint = "say where with --cluster; see `pointsmanctl brokers`"
    elif isinstance(error, KeyNotFoundError):
        hint = _HINTS[error.code]
    elif isinstance(error, RequestRejectedError):
        message = answer_words(error.addr, error)
        hint = _HINTS.get(error.details.code, "")
        return Complaint(error.details.code or error.code, message, hint, {error.addr: _words(error)})
    return Complaint(error.code, message, hint, servers)


def to_node_complaint(failures: Mapping[str, PointsmanError], *, of: Sequence[str], is_change: bool) -> Complaint:
    """Name the servers that failed, of those that were each asked, and after a change those that did it."""
    servers = {addr: _words(failure) for addr, failure in failures.items()}
    where = _listed(servers)
    hint = _hint_for(failures.values())
    if len(failures) < len(of):
        if is_change:
            where += f"; done at {', '.join(addr for addr in of if addr not in failures)}"
            if not all(isinstance(failure, RequestRejectedError) for failure in failures.values()):
                hint = "run it again when all answer, what is done stays done"
        message = f"{len(failures)} of {len(of)} name servers failed: {where}"
        return Complaint(_code_of(failures.values()), message, hint, servers)
    if all(isinstance(failure, RequestRejectedError) for failure in failures.values()):
        return Complaint(_code_of(failures.values()), f"refused by {where}", hint, servers)
    return _nobody_answered(failures)


def answer_words(addr: str, failure: PointsmanError) -> str:
    """Say in one sentence what a server did instead of answering."""
    if isinstance(failure, RequestRejectedError):
        return f"{addr} refused: {_words(failure)}"
    return f"{addr} did not answer ({_words(failure)})"


def exit_code_of(error: PointsmanError) -> int:
    """Return the exit code: bad input is a fault of use."""
    return EXIT_USAGE if isinstance(error, InvalidInputError) else EXIT_FAILED


def _nobody_answered(failures: Mapping[str, PointsmanError]) -> Complaint:
    servers = {addr: _words(failure) for addr, failure in failures.items()}
    refusing = {addr: servers[addr] for addr, failure in failures.items() if isinstance(failure, RequestRejectedError)}
    if refusing:
        silent = {addr: words for addr, words in servers.items() if addr not in refusing}
        message = f"refused by {_listed(refusing)}; no answer from {_listed(silent)}"
    else:
        message = f"no name server answered at {_listed(servers)}"
    return Complaint(NameServersUnavailableError.code, message, _hint_for(failures.values()), servers)


def _words(failure: PointsmanError) -> str:
    if isinstance(failure, NameServerFailedError):
        return failure_words(failure)
    if isinstance(failure, RequestRejectedError):
        # The message of bad input names its first fault alone.
        faults = "; ".join(printable(f"{fault.field} {fault.description}") for fault in failure.violations)
        return faults or printable(failure.message) or failure.status.name
    return printable(str(failure))


def _listed(servers: Mapping[str, str]) -> str:
    return ", ".join(f"{addr} ({words})" for addr, words in servers.items())


def _code_of(failures: Iterable[PointsmanError]) -> str:
    codes = {
        failure.details.code or failure.code if isinstance(failure, RequestRejectedError) else failure.code
        for failure in failures
    }
    return codes.pop() if len(codes) == 1 else NameServersUnavailableError.code


def _hint_for(failures: Iterable[PointsmanError]) -> str:
    hints = dict.fromkeys(_hint_of(failure) for failure in failures)
    return "; ".join(hint for hint in hints if hint)


def _hint_of(failure: PointsmanError) -> str:
    if isinstance(failure, RequestRejectedError):
        return _HINTS.get(failure.details.code, "")
    if isinstance(failure, NameServerFailedError) and is_out_of_reach(failure):
        return "is it running? See --namesrv"
    return ""
