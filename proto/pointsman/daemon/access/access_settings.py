"""Section ``[access]`` of both daemons: tokens, limits and grants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_network
from pathlib import Path

from pointsman.config import ConfigError
from pointsman.daemon.access.token_file import read_token_file, token_file_warning
from pointsman.daemon.entry_file import EntryFileError
from pointsman.daemon.tls.denied_certificates import read_denied_certificates
from pointsman.names import name_problem, text_problem
from pointsman.setting import fault, not_one_of, outside

MAX_IDENTITY = 255
ANY_NAME = "*"


class Role(StrEnum):
    """Roles of callers."""

    BROKER = "broker"
    CLIENT = "client"
    VIEWER = "viewer"
    """Reads what operators see, and changes nothing."""
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Grant:
    """A role of one identity, or of the addresses of a network."""

    role: str
    """Role of the caller: broker, client, viewer (reads what operators see) or admin (may call everything)."""
    identity: str = ""
    """DNS name or URI of a certificate (its common name where it has neither), or the name of a token."""
    address: str = ""
    """Network such as 10.0.0.0/24, on RocketMQ's port only."""
    cluster: str = ""
    """For role broker: the cluster of the brokers that it may write."""
    broker_name: str = ""
    """For role broker: the broker name that it may write; `*`: every broker name of the cluster."""
    group: str = ""
    """For role client: the consumer group that it may use, with its `%RETRY%` and `%DLQ%`; `*` at the end: all groups
    that begin so. Empty: every group. At name servers: the group whose data it may change at brokers, by commands such
    as `dlq replay`."""

    def problems(self) -> Iterator[str]:
        """Rules of this row."""
        yield from not_one_of("role", self.role, [*Role])
        if bool(self.identity) == bool(self.address):
            yield f"identity: {self.identity!r} and address {self.address!r}: exactly one of them must be given"
        if self.identity:
            yield from fault("identity", self.identity, text_problem(self.identity, longest=MAX_IDENTITY))
        if self.address:
            yield from fault("address", self.address, _network_problem(self.address))
        if self.role == Role.BROKER:
            yield from fault("cluster", self.cluster, name_problem(self.cluster))
            if self.broker_name != ANY_NAME:
                yield from fault("broker_name", self.broker_name, name_problem(self.broker_name))
        elif self.cluster or self.broker_name:
            yield f"role: {self.role!r} is for all clusters and brokers: remove cluster and broker_name"
        if self.group and self.role != Role.CLIENT:
            yield f"group: {self.group!r} has no effect for role {self.role!r}: remove it, or use role 'client'"
        elif self.group and self.group != ANY_NAME:
            yield from fault("group", self.group, name_problem(self.group.removesuffix(ANY_NAME)))


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Access control: tokens, rate limits and roles."""

    tokens: str = ""
    """File of hashed tokens, created by the command ``token``; empty: none."""
    denied_certificates: str = ""
    """File of client certificates that are refused, by fingerprint or serial number; empty: none. It works without
    grants, too."""
    reload_seconds: float = 5.0
    """Interval at which the files are read again; within this time a removed token or denied certificate is refused,
    and its streams and connections end."""
    registrations_per_second: float = 1_000.0
    """Maximum rate of registrations and topic updates of one identity; without grants, of all callers together, of
    which those that send few are served first. 0: no limit."""
    registrations_burst: int = 20_000
    """Registrations of one identity accepted in a burst, before that rate applies."""
    admin_calls_per_second: float = 200.0
    """Maximum rate of operators' calls, counted likewise. 0: no limit."""
    admin_calls_burst: int = 2_000
    """Operators' calls accepted in a burst, before that rate applies."""
    grants: tuple[Grant, ...] = ()
    """Roles of callers, see below. Without grants every caller may do everything."""

    def problems(self) -> Iterator[str]:
        """Rules of this section."""
        if self.tokens:
            yield from fault("tokens", self.tokens, text_problem(self.tokens, longest=4_096))
        if self.denied_certificates:
            problem = text_problem(self.denied_certificates, longest=4_096)
            yield from fault("denied_certificates", self.denied_certificates, problem)
        if self.tokens and not self.grants:
            yield f"tokens: {self.tokens!r} has no effect without [[access.grants]]: add grants, or remove it"
        yield from outside("reload_seconds", self.reload_seconds, 0.1, 3_600.0)
        yield from outside("registrations_per_second", self.registrations_per_second, 0.0, 1e6)
        yield from outside("registrations_burst", self.registrations_burst, 1, 10_000_000)
        yield from outside("admin_calls_per_second", self.admin_calls_per_second, 0.0, 1e6)
        yield from outside("admin_calls_burst", self.admin_calls_burst, 1, 10_000_000)
        for index, grant in enumerate(self.grants):
            if grant in self.grants[:index]:
                yield f"grants[{index}]: is a duplicate of grants[{self.grants.index(grant)}]"

    def unauthenticated(self, *, has_certificates: bool, has_remoting: bool) -> Iterator[str]:
        """Rules between sections: grants without an authenticator would deny every call."""
        if self.grants and not self.tokens and not has_certificates:
            yield (
                "access.grants: need an authenticator, else no caller has an identity: set access.tokens (a file of "
                "tokens), or tls.client_ca with tls.client_certificate = 'required'"
            )
        for index, grant in enumerate(self.grants):
            if grant.address and not has_remoting:
                yield (
                    f"access.grants[{index}].address: {grant.address!r} has no effect: addresses apply to RocketMQ's "
                    "port alone, and remoting.listen is empty"
                )


def check_files(settings: AccessSettings, *, where: str) -> Sequence[str]:
    """Check the files, for ``config check``; return warnings. Raises ConfigError."""
    if settings.denied_certificates:
        try:
            read_denied_certificates(Path(settings.denied_certificates))
        except EntryFileError as error:
            problems = [f"{where}: access.denied_certificates: {problem}" for problem in error.problems]
            raise ConfigError(problems) from error
    if not settings.tokens:
        return ()
    path = Path(settings.tokens)
    try:
        names = set(read_token_file(path).values())
    except EntryFileError as error:
        raise ConfigError([f"{where}: access.tokens: {problem}" for problem in error.problems]) from error
    granted = {grant.identity for grant in settings.grants}
    warnings = [f"token {name!r} has no grant: its calls are denied" for name in sorted(names - granted)]
    if (unsafe := token_file_warning(path)) is not None:
        warnings.append(unsafe)
    return [f"{where}: access.tokens: {warning}" for warning in warnings]


def _network_problem(address: str) -> str | None:
    try:
        ip_network(address)
    except ValueError as error:
        return f"is not a network such as 10.0.0.0/24: {error}"
    return None
