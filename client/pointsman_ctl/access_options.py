"""Options for TLS and tokens, and the credentials that they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from pointsman_client import Credentials

CommandT = TypeVar("CommandT", bound=Callable[..., object])

ACCESS_OPTIONS = {
    "tls": ("tls", "Use TLS. Implied by the other TLS options."),
    "tls_ca": ("ca", "CA certificates of the servers, PEM.  [default: public CAs]"),
    "tls_certificate": ("certificate", "Client certificate, PEM."),
    "tls_key": ("key", "Private key of the client certificate, PEM."),
    "tls_server_name": ("server_name", "Name in the servers' certificates, if not the host."),
    "token_file": ("token_file", "File with a bearer token; requires TLS beyond loopback."),
}
"""By option of the program: the field of Credentials, and the help."""


def access_options(command: CommandT) -> CommandT:
    """Add the TLS and token options, each with its environment variable."""
    for name, (_, text) in reversed(ACCESS_OPTIONS.items()):
        flag = f"--{name.replace('_', '-')}"
        if name == "tls":
            option = click.option(flag, is_flag=True, envvar="POINTSMAN_TLS", show_envvar=True, help=text)
        else:
            metavar = "NAME" if name == "tls_server_name" else "FILE"
            envvar = f"POINTSMAN_{name.upper()}"
            option = click.option(flag, metavar=metavar, default="", envvar=envvar, show_envvar=True, help=text)
        command = option(command)
    return command


def read_credentials(values: Mapping[str, Any]) -> Credentials:
    """Return the credentials of the TLS and token options. Raises a usage error for unusable files."""
    credentials = Credentials(**{ACCESS_OPTIONS[name][0]: value for name, value in values.items()})
    options = {field: f"--{name.replace('_', '-')}" for name, (field, _) in ACCESS_OPTIONS.items()}
    problems = [(*problem.partition(": "),) for problem in credentials.problems()]
    if problems:
        raise click.UsageError("; ".join(f"{options[field]}: {text}" for field, _, text in problems))
    return credentials
