"""TLS, tokens and accounts of outgoing connections: settings and their files."""

from __future__ import annotations

import re
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pointsman.rocketmq.account import Account, parse_account

MAX_FILE_BYTES = 1024 * 1024
"""A bundle of all public authorities has 0.3 MB."""
MAX_TOKEN_LENGTH = 4_096
_PEM = re.compile(rb"-----BEGIN (?P<kind>[A-Z0-9 ]+)-----.*?-----END (?P=kind)-----", re.DOTALL)


class CredentialsError(Exception):
    """The settings or their files cannot be used; one line for each problem, as ``field: file problem``."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """How a program authenticates itself to servers, and how it verifies them. Paths are of PEM files.

    Any file but that of the token turns TLS on. A token is sent over TLS, and without TLS to loopback alone.
    """

    tls: bool = False
    """Connect with TLS; needed only where no file below is set."""
    ca: str = ""
    """Authorities that sign the servers' certificates; empty: the public ones."""
    certificate: str = ""
    """Own certificate, with intermediate ones after it, for servers that request one (mTLS); needs ``key``."""
    key: str = ""
    """Private key of the certificate, not encrypted."""
    server_name: str = ""
    """Name that a server's certificate must contain; empty: the host of the address."""
    token_file: str = ""
    """File with a bearer token."""

    @property
    def uses_tls(self) -> bool:
        """Return whether connections are encrypted."""
        return self.tls or bool(self.ca or self.certificate or self.key or self.server_name)

    @property
    def files(self) -> dict[str, str]:
        """Return the files by field; empty where none is set."""
        return {field: getattr(self, field) for field in ("ca", "certificate", "key", "token_file")}

    def problems(self) -> Iterator[str]:
        """Return the problems of the settings and of their current files, each as ``field: problem``."""
        try:
            read_credentials(self)
        except CredentialsError as error:
            yield from error.problems


@dataclass(frozen=True, slots=True)
class CredentialContents:
    """The content of the files, complete and checked; None and empty where none is set."""

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None
    token: str


def read_credentials(settings: Credentials) -> CredentialContents:
    """Read and check the settings and files. Raises CredentialsError with every problem."""
    problems: list[str] = []
    if bool(settings.certificate) is not bool(settings.key):
        given, missing = ("certificate", "key") if settings.certificate else ("key", "certificate")
        problems.append(f"{missing}: is missing; {given} is set, and they are used together")
    if settings.server_name and not all(33 <= ord(letter) < 127 for letter in settings.server_name):
        problems.append(f"server_name: {settings.server_name!r} must be a host name")
    files: dict[str, bytes] = {}
    for field, file in settings.files.items():
        with _noting(problems):
            if file:
                files[field] = read_file(field, file)
                if field != "token_file":
                    _check_pem(field, file, files[field])
    token = ""
    with _noting(problems):
        if "token_file" in files:
            token = _to_token(settings.token_file, files["token_file"])
    if {"certificate", "key"} <= files.keys() and not problems:
        with _noting(problems):
            _check_pair(settings, files)
    if problems:
        raise CredentialsError(*problems)
    return CredentialContents(files.get("ca"), files.get("certificate"), files.get("key"), token)


@contextmanager
def _noting(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except CredentialsError as error:
        problems += error.problems


def read_file(field: str, file: str) -> bytes:
    """Return the content of a file of at most MAX_FILE_BYTES. Raises CredentialsError, which begins with ``field``."""
    try:
        if not stat.S_ISREG(Path(file).stat().st_mode):
            # Opening a pipe would wait for its writer.
            raise CredentialsError(f"{field}: {file} is not a file")
        with Path(file).open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise CredentialsError(f"{field}: {file} cannot be read: {problem}") from error
    if len(content) > MAX_FILE_BYTES:
        raise CredentialsError(f"{field}: {file} is larger than {MAX_FILE_BYTES} bytes")
    return content


def read_account(field: str, file: str) -> Account:
    """Return the RocketMQ account of a file. Raises CredentialsError, which has no text of the file: it is secret."""
    try:
        return parse_account(read_file(field, file).decode("utf-8-sig"), file)
    except UnicodeDecodeError:
        raise CredentialsError(f"{field}: {file} is not UTF-8") from None
    except ValueError as error:
        raise CredentialsError(f"{field}: {error}") from None


class _ContextOfOneName(ssl.SSLContext):
    """Verifies each certificate against one name: asyncio would verify it against the host."""

    server_name = ""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,  # noqa: ARG002  # the host
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """See ``ssl.SSLContext``; asyncio calls it."""
        return super().wrap_bio(incoming, outgoing, server_side, self.server_name, session)


def tls_context(settings: Credentials) -> ssl.SSLContext:
    """Return the TLS of connections without gRPC. Raises OSError (``ssl.SSLError``) for unusable files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if settings.server_name:
        context = _ContextOfOneName(ssl.PROTOCOL_TLS_CLIENT)
        context.server_name = settings.server_name
    if settings.ca:
        context.load_verify_locations(settings.ca)
    else:
        context.load_default_certs()
    if settings.certificate:
        context.load_cert_chain(settings.certificate, settings.key)
    return context


def _check_pem(field: str, file: str, content: bytes) -> None:
    """Check that it is complete, and of the kind that the field requires."""
    wanted = b"PRIVATE KEY" if field == "key" else b"CERTIFICATE"
    kinds = [match["kind"] for match in _PEM.finditer(content)]
    if content.count(b"-----BEGIN ") != len(kinds):
        raise CredentialsError(f"{field}: {file} is cut short or damaged: a BEGIN line has no END line")
    if b"ENCRYPTED PRIVATE KEY" in kinds or b"Proc-Type: 4,ENCRYPTED" in content:
        raise CredentialsError(f"{field}: {file} is encrypted; write it without a passphrase and limit who may read it")
    if not any(kind.endswith(wanted) for kind in kinds):
        raise CredentialsError(f"{field}: {file} has no PEM block {wanted.decode()}")
    if field != "key":
        try:
            blocks = b"\n".join(match[0] for match in _PEM.finditer(content) if match["kind"] == b"CERTIFICATE")
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=blocks.decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            raise CredentialsError(f"{field}: {file} has a certificate that cannot be decoded: {error}") from error


def _check_pair(settings: Credentials, files: dict[str, bytes]) -> None:
    """Check the key with its certificate. OpenSSL opens the files itself, so they are compared again afterwards."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(settings.certificate, settings.key, password="")
    except (OSError, ValueError) as error:
        if "KEY_VALUES_MISMATCH" in str(error):
            problem = f"does not belong to the certificate {settings.certificate}"
        else:
            problem = f"cannot be used with the certificate {settings.certificate}: {error}"
        raise CredentialsError(f"key: {settings.key} {problem}") from error
    for field in ("certificate", "key"):
        if read_file(field, getattr(settings, field)) != files[field]:
            raise CredentialsError(f"{field}: {getattr(settings, field)} changed while it was read; try again")


def _to_token(file: str, content: bytes) -> str:
    """Return the token without the line ends after it."""
    text = content.rstrip(b"\r\n")
    if not text:
        raise CredentialsError(f"token_file: {file} is empty")
    if len(text) > MAX_TOKEN_LENGTH:
        raise CredentialsError(f"token_file: {file} has {len(text)} bytes, at most {MAX_TOKEN_LENGTH} are allowed")
    for position, byte in enumerate(text, 1):
        if not 33 <= byte < 127:
            raise CredentialsError(
                f"token_file: {file} has a character that a token cannot have (code {byte}) at position {position}: "
                "a token is one line of visible ASCII without spaces"
            )
    return text.decode("ascii")
