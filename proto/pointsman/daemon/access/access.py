"""Access control: callers by certificate, token or address, roles by ``[[access.grants]]``.

Without grants everything is open, and a call passes nothing of this but the limits on registrations and admin calls.
Refused calls raise :class:`Denied`, are counted, and are logged with identity, method, peer and reason.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge

from pointsman.clock import Clock
from pointsman.config import ConfigError
from pointsman.daemon.access.access_settings import ANY_NAME, AccessSettings, Grant, Role
from pointsman.daemon.access.rate_limit import RateLimit, SharedRateLimit
from pointsman.daemon.access.token_file import is_token, read_token_file, token_digest
from pointsman.daemon.entry_file import EntryFileError
from pointsman.daemon.tls.client_certificates import ClientCertificate
from pointsman.daemon.tls.denied_certificates import DeniedCertificates, read_denied_certificates
from pointsman.group_topics import DLQ_PREFIX, RETRY_PREFIX
from pointsman.wire.refusals import Refusal, shown

KNOWN_CERTIFICATES = 4_096
"""Combinations of names whose grants are cached."""
MAX_CALLERS = 20_000
"""Certificates that are remembered, so that their streams end when they are denied."""
LOGGED_PER_SECOND, LOGGED_BURST = 50.0, 1_000.0
"""Log lines on denied calls per window; further calls are counted, and the next line has the number."""

log = logging.getLogger(__name__)


class Limit(StrEnum):
    """Rates limited for each identity; without grants, for all peers together."""

    REGISTRATIONS = "registrations"
    ADMIN_CALLS = "admin_calls"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a method requires: one of these roles (an admin may call all)."""

    roles: frozenset[Role] = frozenset()
    limit: Limit | None = None


ANY_ROLE = Rule(frozenset(Role))
CLIENTS = Rule(frozenset({Role.CLIENT}))
BROKERS = Rule(frozenset({Role.BROKER}))
VIEWERS = Rule(frozenset({Role.VIEWER}))
ADMINS = Rule(limit=Limit.ADMIN_CALLS)

Rules = Mapping[str, Rule]
"""The rule of each method of a service."""


# --- callers --------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Caller:
    """An authenticated caller and what its grants allow."""

    identity: str
    proof: str
    """certificate, token or address."""
    roles: frozenset[Role] = frozenset()
    brokers: frozenset[tuple[str, str]] = frozenset()
    """Cluster and broker name (or ANY_NAME) that it may write."""
    groups: frozenset[str] = frozenset()
    """Consumer groups that it may use, or prefixes with ANY_NAME at the end; empty: all."""
    is_revoked: bool = False
    """Whether its token was removed or its certificate denied: its streams end."""

    def may_write(self, cluster: str, broker_name: str) -> bool:
        """Return whether it may write data of a broker name."""
        return Role.ADMIN in self.roles or (cluster, broker_name) in self.brokers or (cluster, ANY_NAME) in self.brokers

    def may_use(self, group: str) -> bool:
        """Return whether it may use a consumer group, or its retries and dead letters."""
        if not self.groups or not self.roles.isdisjoint(_FOR_ALL_GROUPS):
            return True
        name = group.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)
        return any(
            name.startswith(each[: -len(ANY_NAME)]) if each.endswith(ANY_NAME) else name == each for each in self.groups
        )

    def __str__(self) -> str:
        return f"{self.proof} {shown(self.identity)}"


_FOR_ALL_GROUPS = frozenset({Role.ADMIN, Role.BROKER})


def check_writes(caller: Caller | None, cluster: str, broker_name: str) -> None:
    """Raise PermissionDenied for a caller that may not write data of a broker name; None may."""
    if caller is None or caller.may_write(cluster, broker_name):
        return
    allowed = ", ".join(f"{where}/{name}" for where, name in sorted(caller.brokers)) or "none"
    raise PermissionDenied(
        f"{caller} may not write broker {shown(f'{cluster}/{broker_name}')}, only {allowed[:300]}; "
        "an operator can add it to [[access.grants]]",
        identity=caller.identity,
        reason=Reason.OTHER_BROKER,
    )


def check_group(caller: Caller | None, group: str) -> None:
    """Raise PermissionDenied for a caller that may not use a consumer group (empty: all of them); None may."""
    if caller is None or caller.may_use(group):
        return
    what = f"group {shown(group)}" if group else "all groups together"
    raise PermissionDenied(
        f"{caller} may not use {what}, only {', '.join(sorted(caller.groups))[:300]}; "
        "an operator can add a grant to [[access.grants]] of the agent",
        identity=caller.identity,
        reason=Reason.OTHER_GROUP,
    )


class Author(NamedTuple):
    """Author of a change."""

    name: str
    """The authenticated identity; without authentication the claimed one."""
    claimed: str = ""
    """The claimed author, where it differs."""


def author(claimed: str, caller: Caller | None) -> Author:
    """Return the author of a change."""
    if caller is None:
        return Author(claimed)
    return Author(caller.identity, claimed if claimed != caller.identity else "")


# --- refusals -------------------------------------------------------------------------------------------------


class Reason(StrEnum):
    """Reason of a denied call, in metrics and logs."""

    NO_CREDENTIALS = "no_credentials"
    UNREADABLE_CREDENTIALS = "unreadable_credentials"
    UNKNOWN_TOKEN = "unknown_token"  # noqa: S105  # a reason
    DENIED_CERTIFICATE = "denied_certificate"
    NO_GRANT = "no_grant"
    WRONG_ROLE = "wrong_role"
    OTHER_BROKER = "other_broker"
    OTHER_GROUP = "other_group"
    OTHER_CLIENT = "other_client"
    RATE = "rate"


class Denied(Refusal):
    """A call that its caller may not make."""

    def __init__(self, message: str, *, identity: str, reason: Reason) -> None:
        super().__init__(message)
        self.identity = identity
        self.reason = reason
        self.method = ""
        """Set where the method of the call is known."""

    @property
    def facts(self) -> Mapping[str, str]:
        """Return identity, method and reason."""
        # Trailers are ASCII, and bounded.
        return {"identity": shown(self.identity), "method": self.method, "reason": self.reason.value}


class Unauthenticated(Denied):
    """No valid credentials."""

    code = "UNAUTHENTICATED"
    status = "UNAUTHENTICATED"


class PermissionDenied(Denied):
    """The caller is known but not allowed to make the call."""

    code = "PERMISSION_DENIED"
    status = "PERMISSION_DENIED"


class RateLimited(Denied):
    """Too many calls of one identity; later ones are accepted."""

    code = "RATE_LIMITED"
    status = "RESOURCE_EXHAUSTED"

    def __init__(self, limit: Limit, per_second: float, *, identity: str, wait: float) -> None:
        whose = f"of {shown(identity)}" if identity else "of all callers together"
        what = limit.replace("_", " ")
        super().__init__(
            f"at most {per_second:g} {what} per second {whose} are accepted; retry after {wait:.1f} s",
            identity=identity,
            reason=Reason.RATE,
        )
        self.wait = wait

    @property
    def facts(self) -> Mapping[str, str]:
        """Return the facts of every denied call, and when to retry."""
        return {**super().facts, "retry_after_seconds": f"{self.wait:.3f}"}


WHAT_TO_SEND = (
    "present a certificate that tls.client_ca signed, or send the metadata `authorization: Bearer TOKEN` "
    "(pointsmanctl: POINTSMAN_TOKEN_FILE)"
)


# --- access control -------------------------------------------------------------------------------------------


class Access:
    """Authenticates and authorises. ``own``: the broker of an agent, for which a broker role needs a grant.

    ``prefix``: of the metrics' names. ``shown_over_http``: rules of the methods whose responses HTTP shows. Raises
    ConfigError when the token file cannot be read.
    """

    def __init__(
        self,
        settings: AccessSettings,
        *,
        clock: Clock,
        prefix: str,
        registry: CollectorRegistry,
        own: tuple[str, str] | None = None,
        shown_over_http: Rules | None = None,
    ) -> None:
        self.settings = settings
        self.is_open = not settings.grants
        """Whether every caller may call everything."""
        self.takes_tokens = bool(settings.tokens)
        self.denies_certificates = bool(settings.denied_certificates)
        """Whether every certificate is compared with a list."""
        self._clock = clock
        self._own = own
        self._http_rules = shown_over_http or {}
        self._metrics = _Metrics(prefix, registry)
        kind = SharedRateLimit if self.is_open else RateLimit
        self._limits = {
            limit: kind(per_second, burst)
            for limit, per_second, burst in (
                (Limit.REGISTRATIONS, settings.registrations_per_second, settings.registrations_burst),
                (Limit.ADMIN_CALLS, settings.admin_calls_per_second, settings.admin_calls_burst),
            )
            if per_second
        }
        self._grants: dict[str, list[Grant]] = {}
        self._networks: list[tuple[IPv4Network | IPv6Network, Grant]] = []
        for grant in settings.grants:
            if grant.address:
                self._networks.append((ip_network(grant.address), grant))
            else:
                self._grants.setdefault(grant.identity, []).append(grant)
        self._certificate = lru_cache(KNOWN_CERTIFICATES)(self._caller_of)
        self._logged = RateLimit(LOGGED_PER_SECOND, LOGGED_BURST)
        self._not_logged = 0
        self._on_revoked: list[Callable[[Collection[Caller]], None]] = []
        self._path = Path(settings.tokens) if settings.tokens else None
        self._problem = ""
        self._tokens: Mapping[bytes, tuple[bytes, Caller]] = {}
        self._denied_path = Path(settings.denied_certificates) if settings.denied_certificates else None
        self._denied, self._denied_problem = DeniedCertificates(), ""
        self._callers: OrderedDict[ClientCertificate, Caller] = OrderedDict()
        """With a list of denied certificates, the caller of each."""
        if self._denied_path is not None:
            try:
                self._take_denied(read_denied_certificates(self._denied_path))
            except EntryFileError as error:
                problems = [f"access.denied_certificates: {problem}" for problem in error.problems]
                raise ConfigError(problems) from error
        if self._path is not None:
            try:
                self._take(read_token_file(self._path))
            except EntryFileError as error:
                raise ConfigError([f"access.tokens: {problem}" for problem in error.problems]) from error

    def on_revoked(self, call: Callable[[Collection[Caller]], None]) -> None:
        """Call ``call`` with the callers whose token was removed, in the event loop."""
        self._on_revoked.append(call)

    def problems(self) -> list[str]:
        """Return the problems, for operators."""
        problems = {"tokens": self._problem, "denied_certificates": self._denied_problem}
        return [
            f"access.{setting}: {problem}; the last valid content stays in use"
            for setting, problem in problems.items()
            if problem
        ]

    async def follow(self) -> None:
        """Poll the files until cancelled. If one is invalid, its last valid content stays in use."""
        while self._path is not None or self._denied_path is not None:
            await self._clock.sleep(self.settings.reload_seconds)
            if self._denied_path is not None:
                try:
                    denied = await asyncio.to_thread(read_denied_certificates, self._denied_path)
                except EntryFileError as error:
                    self._note_denied_file("; ".join(error.problems))
                else:
                    self._take_denied(denied)
            if self._path is None:
                continue
            try:
                names = await asyncio.to_thread(read_token_file, self._path)
            except EntryFileError as error:
                self._note_file("; ".join(error.problems))
            else:
                self._take(names)

    # --- authentication ---------------------------------------------------------------------------------------

    def needs_check(self, rule: Rule) -> bool:
        """Return whether calls with this rule must pass :meth:`admit`."""
        return not self.is_open or self.denies_certificates or (rule.limit is not None and rule.limit in self._limits)

    def admit(
        self, rule: Rule, certificate: ClientCertificate | None, authorization: Sequence[str], *, peer: str = ""
    ) -> Caller | None:
        """Return the caller if the rule allows it; None where everything is open.

        ``certificate``: the verified one. ``authorization``: the values of that header; a token takes precedence over
        a certificate. ``peer``: the caller's key for bounds, where everything is open. Raises Denied.
        """
        of_certificate = self.caller_of(certificate) if certificate is not None and self.denies_certificates else None
        if self.is_open:
            self.limit(rule.limit, None, peer)
            return of_certificate
        if authorization:
            caller = self._by_header(authorization)
        elif certificate is not None and certificate.names:
            caller = of_certificate or self._certificate(*certificate.names)
        elif certificate is not None and certificate.problem:
            raise Unauthenticated(
                f"the client's certificate {certificate.problem}", identity="", reason=Reason.UNREADABLE_CREDENTIALS
            )
        else:
            raise Unauthenticated(f"no credentials: {WHAT_TO_SEND}", identity="", reason=Reason.NO_CREDENTIALS)
        self.authorise(caller, rule)
        self.limit(rule.limit, caller)
        return caller

    def caller_of(self, certificate: ClientCertificate) -> Caller | None:
        """Return the caller with a certificate, if it has names or everything is open. Raises Unauthenticated.

        With a list of denied certificates each certificate is another caller, also where everything is open: its
        streams end when it is denied.
        """
        if not self.denies_certificates:
            return self._certificate(*certificate.names) if certificate.names and not self.is_open else None
        if self._denied.has(certificate):
            identity = certificate.names[0] if certificate.names else ""
            raise Unauthenticated(
                f"the certificate with the serial number {certificate.serial:x} is denied here "
                "(access.denied_certificates): use another one",
                identity=identity,
                reason=Reason.DENIED_CERTIFICATE,
            )
        caller = self._callers.get(certificate)
        if caller is None:
            if self.is_open:
                identity = certificate.names[0] if certificate.names else certificate.digest.hex()
                caller = Caller(identity, "certificate", frozenset({Role.ADMIN}))
            elif certificate.names:
                caller = self._caller_of(*certificate.names)
            else:
                return None
            self._callers[certificate] = caller
            if len(self._callers) > MAX_CALLERS:
                self._callers.popitem(last=False)
        self._callers.move_to_end(certificate)
        return caller

    def http(self, authorization: str | None, method: str, peer: str) -> Caller | None:
        """As :meth:`admit`, for an HTTP request that shows the response of ``method``; None where everything is open.

        Accepts Bearer, and Basic with the token as the password. From any thread. Raises Unauthenticated (401) and
        PermissionDenied (403), which are counted and logged here.
        """
        if self.is_open:
            return None
        try:
            if authorization is None:
                raise Unauthenticated(
                    "no credentials: send a token as Bearer, or as the password",
                    identity="",
                    reason=Reason.NO_CREDENTIALS,
                )
            caller = self._by_header([authorization])
            self.authorise(caller, self._http_rules.get(method, ADMINS))
        except Denied as denied:
            self.note(denied, method, peer)
            raise
        return caller

    def connection(self, certificate: ClientCertificate | None, host: str) -> Caller | None:
        """Return the caller on a connection of RocketMQ's port: by certificate, else by a grant of its address.

        None where everything is open. A caller without a grant has no role. Raises Unauthenticated for a denied
        certificate.
        """
        by_name = self.caller_of(certificate) if certificate is not None else None
        if self.is_open:
            return by_name
        if by_name is not None and by_name.roles:
            return by_name
        addr = _address(host)
        matching = [(network, grant) for network, grant in self._networks if addr is not None and addr in network]
        if not matching:
            return by_name or Caller(host, "address")
        return self._caller(f"{matching[0][0]}", "address", [grant for _, grant in matching])

    def authorise(self, caller: Caller, rule: Rule) -> None:
        """Raise PermissionDenied unless the rule allows this caller's call."""
        if Role.ADMIN in caller.roles or not caller.roles.isdisjoint(rule.roles):
            return
        if not caller.roles:
            raise PermissionDenied(
                f"{caller} has no role here: an operator can add it to [[access.grants]]",
                identity=caller.identity,
                reason=Reason.NO_GRANT,
            )
        needed = " or ".join(sorted({*rule.roles, Role.ADMIN}))
        raise PermissionDenied(
            f"{caller} has the role {', '.join(sorted(caller.roles))}, the call needs {needed}: use another "
            "identity, or have an operator add a grant",
            identity=caller.identity,
            reason=Reason.WRONG_ROLE,
        )

    def limit(self, limit: Limit | None, caller: Caller | None, peer: str = "") -> None:
        """Count one call against the limit of its caller, without one against that which peers share.

        Raises RateLimited.
        """
        if limit is None or limit not in self._limits:
            return
        identity = caller.identity if caller is not None else ""
        rate = self._limits[limit]
        wait = rate.take(identity or peer, now=self._clock.monotonic())
        if wait:
            raise RateLimited(limit, rate.per_second, identity=identity, wait=wait)

    def note(self, denied: Denied, method: str, peer: str, request_id: str = "") -> None:
        """Count and log a denied call; ``method`` must be from a bounded set."""
        denied.method = method
        self._metrics.denied.labels(method, denied.reason.value).inc()
        if self._logged.take("", now=self._clock.monotonic()):
            self._not_logged += 1
            return
        facts: dict[str, object] = {
            "identity": denied.identity,
            "method": method,
            "peer": peer,
            "reason": denied.reason.value,
            "error": str(denied),
        }
        if request_id:
            facts["request_id"] = request_id
        if self._not_logged:
            facts["not_logged"], self._not_logged = self._not_logged, 0
        log.warning("call denied", extra={"facts": facts})

    # --- internals --------------------------------------------------------------------------------------------

    def _by_header(self, authorization: Sequence[str]) -> Caller:
        token = _token_of(authorization[0]) if len(authorization) == 1 else None
        if token is None:
            raise Unauthenticated(
                f"the header authorization is not one `Bearer TOKEN`: {WHAT_TO_SEND}",
                identity="",
                reason=Reason.UNREADABLE_CREDENTIALS,
            )
        digest = token_digest(token)
        known = self._tokens.get(digest)
        if known is None or not hmac.compare_digest(known[0], digest):
            raise Unauthenticated(
                "unknown or removed token: an operator can add its line to the file access.tokens "
                "(the command `token NAME` creates one)",
                identity="",
                reason=Reason.UNKNOWN_TOKEN,
            )
        return known[1]

    def _caller_of(self, *names: str) -> Caller:
        granted = [name for name in names if name in self._grants]
        grants = [grant for name in granted for grant in self._grants[name]]
        return self._caller(granted[0] if granted else names[0], "certificate", grants)

    def _caller(self, identity: str, proof: str, grants: Sequence[Grant]) -> Caller:
        brokers = frozenset((g.cluster, g.broker_name) for g in grants if g.role == Role.BROKER)
        roles = {Role(grant.role) for grant in grants}
        groups = frozenset(grant.group for grant in grants if grant.role == Role.CLIENT)
        caller = Caller(identity, proof, frozenset(roles), brokers, frozenset() if "" in groups else groups)
        if self._own is not None and Role.BROKER in roles and not caller.may_write(*self._own):
            caller.roles -= {Role.BROKER}
        return caller

    def _take(self, names: Mapping[bytes, str]) -> None:
        before = self._tokens
        self._tokens = {
            digest: before[digest]
            if digest in before and before[digest][1].identity == name
            else (digest, self._caller(name, "token", self._grants.get(name, ())))
            for digest, name in names.items()
        }
        kept = {id(caller) for _, caller in self._tokens.values()}
        gone = [caller for _, caller in before.values() if id(caller) not in kept]
        for caller in gone:
            caller.is_revoked = True
        if gone or len(self._tokens) != len(before):
            facts = {"tokens": len(self._tokens), "removed": sorted({caller.identity for caller in gone})}
            log.info("token file loaded", extra={"facts": facts})
        self._metrics.tokens.set(len(self._tokens))
        self._note_file("")
        if gone:
            for call in self._on_revoked:
                call(gone)

    def _take_denied(self, denied: DeniedCertificates) -> None:
        if denied != self._denied:
            self._denied = denied
            gone = [certificate for certificate in self._callers if denied.has(certificate)]
            callers = [self._callers.pop(certificate) for certificate in gone]
            for caller in callers:
                caller.is_revoked = True
            facts = {"certificates": len(denied), "denied_now": sorted({caller.identity for caller in callers})}
            log.info("file of denied certificates loaded", extra={"facts": facts})
            for call in self._on_revoked if callers else ():
                call(callers)
        self._metrics.denied_certificates.set(len(denied))
        self._note_denied_file("")

    def _note_denied_file(self, problem: str) -> None:
        self._metrics.denied_file_invalid.set(bool(problem))
        if problem and problem != self._denied_problem:
            facts = {"problem": problem, "certificates": len(self._denied)}
            log.error(
                "file of denied certificates invalid; its last valid content stays in use", extra={"facts": facts}
            )
        elif self._denied_problem and not problem:
            log.info("file of denied certificates is valid again")
        self._denied_problem = problem

    def _note_file(self, problem: str) -> None:
        self._metrics.file_invalid.set(bool(problem))
        if problem and problem != self._problem:
            facts = {"problem": problem, "tokens": len(self._tokens)}
            log.error("token file invalid; its last valid content stays in use", extra={"facts": facts})
        elif self._problem and not problem:
            log.info("token file is valid again")
        self._problem = problem


class _Metrics:
    """Metrics of access control; ``prefix`` begins the names."""

    def __init__(self, prefix: str, registry: CollectorRegistry) -> None:
        self.denied = Counter(
            f"{prefix}_denied_calls",
            "Calls denied, by method (on the remoting port: request code) and reason",
            ["method", "reason"],
            registry=registry,
        )
        self.denied_certificates = Gauge(
            f"{prefix}_access_denied_certificates", "Client certificates in the list of denied ones", registry=registry
        )
        self.denied_file_invalid = Gauge(
            f"{prefix}_access_denied_certificates_file_invalid",
            "1 while the file of denied certificates is invalid; its last valid content stays in use",
            registry=registry,
        )
        self.tokens = Gauge(f"{prefix}_access_tokens", "Tokens in use", registry=registry)
        self.file_invalid = Gauge(
            f"{prefix}_access_tokens_file_invalid",
            "1 while the token file is invalid; its last valid content stays in use",
            registry=registry,
        )


def _token_of(authorization: str) -> str | None:
    """Return the token of a header's value; None if there is none in the one valid form."""
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "basic" and len(rest) <= 1_024:
        try:
            rest = base64.b64decode(rest, validate=True).decode("ascii").partition(":")[2]
        except (binascii.Error, ValueError):
            return None
    elif scheme.lower() != "bearer":
        return None
    return rest if is_token(rest) else None


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        addr = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(addr, "ipv4_mapped", None) or addr
