"""Options for TLS, tokens and RocketMQ accounts, and what they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

import pointsman_client
from pointsman.wire.credentials import Credentials, CredentialsError, read_account, read_file, tls_context

if TYPE_CHECKING:
    from pointsman_ctl.servers.rocketmq_name_server import RocketmqAccess
    from pointsman_ctl.servers.stored_messages import RedisAccess

CommandT = TypeVar("CommandT", bound=Callable[..., object])

ACCESS_OPTIONS = {
    "tls": ("tls", "Use TLS. Implied by the other --tls options."),
    "tls_ca": ("ca", "CA certificates of the servers, PEM.  [default: public CAs]"),
    "tls_certificate": ("certificate", "Client certificate, PEM."),
    "tls_key": ("key", "Private key of the client certificate, PEM."),
    "tls_server_name": ("server_name", "Name in the servers' certificates, if not the host."),
    "token_file": ("token_file", "File with a bearer token; requires TLS beyond loopback."),
    "rocketmq_tls": ("", "Use TLS with RocketMQ brokers, too. Implied by TLS with rocketmq:// addresses."),
    "access_key_file": ("", "Account for RocketMQ's servers: lines accessKey: NAME and secretKey: SECRET."),
    "redis_username": ("", "ACL user of Redis brokers, for commands that read or send messages.  [default: none]"),
    "redis_password_file": ("", "File with the password of Redis brokers."),
    "redis_tls": ("", "Use TLS with Redis brokers, too, with --tls-ca; certificates must have their hosts."),
}
"""By option of the program: the field of Credentials, if any, and the help."""
_FLAGS = {"tls", "rocketmq_tls", "redis_tls"}
_NAMES = {"tls_server_name", "redis_username"}


@dataclass(frozen=True, slots=True)
class Access:
    """The values of the options."""

    credentials: Credentials = field(default_factory=Credentials)
    rocketmq_tls: bool = False
    access_key: pointsman_client.AccessKey | None = None
    redis_username: str = ""
    redis_password: str = field(default="", repr=False)
    redis_tls: bool = False

    def to_rocketmq(self, *, with_tls: bool) -> RocketmqAccess:
        """Return the access to RocketMQ's servers; ``with_tls``: with TLS if Pointsman's servers would have it."""
        from pointsman_ctl.servers.rocketmq_name_server import RocketmqAccess  # noqa: PLC0415  # imports gRPC

        uses_tls = self.rocketmq_tls or (with_tls and self.credentials.uses_tls)
        return RocketmqAccess(tls_context(self.credentials) if uses_tls else None, self.access_key)

    def to_redis(self) -> RedisAccess:
        """Return the access to Redis brokers: with TLS, their certificates must have the hosts of their addresses."""
        from pointsman_ctl.servers.stored_messages import RedisAccess  # noqa: PLC0415  # imports gRPC

        given = self.credentials
        files = {"ssl_ca_certs": given.ca, "ssl_certfile": given.certificate, "ssl_keyfile": given.key}
        ssl = {"ssl_check_hostname": True} | {name: file for name, file in files.items() if file}
        return RedisAccess(self.redis_username, self.redis_password, ssl if self.redis_tls else None)


def access_options(command: CommandT) -> CommandT:
    """Add the options, each with its environment variable."""
    for name, (_, text) in reversed(ACCESS_OPTIONS.items()):
        flag, envvar = f"--{name.replace('_', '-')}", f"POINTSMAN_{name.upper()}"
        if name in _FLAGS:
            option = click.option(flag, is_flag=True, envvar=envvar, show_envvar=True, help=text)
        else:
            metavar = "NAME" if name in _NAMES else "FILE"
            option = click.option(flag, metavar=metavar, default="", envvar=envvar, show_envvar=True, help=text)
        command = option(command)
    return command


def read_access(values: Mapping[str, Any]) -> Access:
    """Return what the options give. Raises a usage error for unusable files."""
    credentials = Credentials(**{name: values[option] for option, (name, _) in ACCESS_OPTIONS.items() if name})
    problems = list(credentials.problems())
    access_key, password = None, ""
    if values["access_key_file"]:
        try:
            account = read_account("access_key_file", values["access_key_file"])
            access_key = pointsman_client.AccessKey(account.access_key, account.secret_key, account.security_token)
        except CredentialsError as error:
            problems += error.problems
    if values["redis_password_file"]:
        try:
            password = _read_password(values["redis_password_file"])
        except CredentialsError as error:
            problems += error.problems
    elif values["redis_username"]:
        problems.append("redis_password_file: is missing; redis_username is set")
    if problems:
        options = {name or option: f"--{option.replace('_', '-')}" for option, (name, _) in ACCESS_OPTIONS.items()}
        texts = [(*problem.partition(": "),) for problem in problems]
        raise click.UsageError("; ".join(f"{options[name]}: {text}" for name, _, text in texts))
    redis = values["redis_username"], password, values["redis_tls"]
    return Access(credentials, values["rocketmq_tls"], access_key, *redis)


def _read_password(file: str) -> str:
    """Read a line. Errors have no text of the file: it is secret."""
    try:
        password = read_file("redis_password_file", file).decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise CredentialsError(f"redis_password_file: {file} is not UTF-8") from None
    if not password or not password.isprintable():
        problem = "is empty" if not password else "must have one line without control characters"
        raise CredentialsError(f"redis_password_file: {file} {problem}")
    return password
