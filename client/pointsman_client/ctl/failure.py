"""How a failed command ends: one line or one JSON object on stderr that says what to do, and an exit code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pointsman_client.ctl.wording import failure_words, printable
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

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""As a shell reports an end by SIGINT."""


class BrokerNotFoundError(NotFoundError):
    """No name server that was asked remembers the broker."""

    code = "BROKER_NOT_FOUND"

    def __init__(self, broker_name: str, cluster: str) -> None:
        super().__init__(
            f"no event of broker {broker_name} is remembered" + (f" in cluster {cluster}" if cluster else "")
        )


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
        return f"pointsmanctl: {self.message}" + (f": {self.hint}" if self.hint else "")

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
        servers = {failure.addr: failure_words(failure) for failure in error.failures}
        where = ", ".join(f"{addr} ({words})" for addr, words in servers.items())
        message, hint = f"no name server answered at {where}", "is it running? See --namesrv"
    elif isinstance(error, NameServerFailedError):
        servers = {error.addr: failure_words(error)}
        message, hint = f"{error.addr} did not answer ({failure_words(error)})", "is it running?"
    elif isinstance(error, TopicNotFoundError):
        hint = "see `pointsmanctl topics`"
    elif isinstance(error, ClusterNotFoundError):
        hint = "see `pointsmanctl clusters`"
    elif isinstance(error, BrokerNotFoundError):
        hint = "see `pointsmanctl brokers`"
    elif isinstance(error, RequestRejectedError):
        hint = "; ".join(printable(f"{fault.field} {fault.description}") for fault in error.violations)
    return Complaint(error.code, message, hint, servers)


def to_node_complaint(failures: Mapping[str, PointsmanError], *, of: int) -> Complaint:
    """Name the servers that failed, of the ``of`` that were each asked."""
    servers = {
        addr: failure_words(failure) if isinstance(failure, NameServerFailedError) else printable(str(failure))
        for addr, failure in failures.items()
    }
    where = ", ".join(f"{addr} ({words})" for addr, words in servers.items())
    code = NameServersUnavailableError.code
    if len(failures) == of:
        return Complaint(code, f"no name server answered at {where}", "is it running? See --namesrv", servers)
    return Complaint(code, f"{len(failures)} of {of} name servers failed", where, servers)


def exit_code_of(error: PointsmanError) -> int:
    """Return the exit code: bad input is a fault of use."""
    return EXIT_USAGE if isinstance(error, InvalidInputError) else EXIT_FAILED
