"""The file of hashed tokens: one line for each, ``NAME sha256:HEX``; lines that begin with # are comments.

The server's file has only the hash of a token. Two lines may have one name, so that a token can be replaced without an
interruption: add the new one, move its users, remove the old one.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pointsman.daemon.entry_file import EntryFileError, read_entries
from pointsman.wire.refusals import shown

TOKEN_BYTES = 32

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:/-]{0,127}", re.ASCII)
_HASH = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


class NewToken(NamedTuple):
    """A token and its line."""

    token: str
    line: str


def new_token(name: str) -> NewToken:
    """Create a random token of 256 bits. Raises ValueError for an invalid name."""
    if (problem := token_name_problem(name)) is not None:
        raise ValueError(problem)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    return NewToken(token, f"{name} sha256:{token_digest(token).hex()}")


def token_digest(token: str) -> bytes:
    """Return the digest by which tokens are compared."""
    return hashlib.sha256(token.encode()).digest()


def token_name_problem(name: str) -> str | None:
    """Return the problem of a token's name; None: it is valid."""
    if _NAME.fullmatch(name):
        return None
    return f"the name {shown(name)} must have 1 to 128 letters, digits and . _ @ : / - and begin with a letter or digit"


def is_token(text: str) -> bool:
    """Return whether a string can be a token: 16 to 512 characters that a header may have (RFC 6750)."""
    return _TOKEN.fullmatch(text) is not None


def read_token_file(path: Path) -> Mapping[bytes, str]:
    """Return the name of each token by its digest. Blocks. Raises EntryFileError."""
    names: dict[bytes, str] = {}

    def take(words: list[str]) -> str | None:
        if (problem := _line_problem(words)) is not None:
            return problem
        digest = bytes.fromhex(words[1].removeprefix("sha256:"))
        if digest in names:
            return f"token {words[0]!r} is equal to {names[digest]!r}; each name needs its own token"
        names[digest] = words[0]
        return None

    read_entries(path, take, entries="tokens")
    return names


def add_line(path: Path, line: str) -> None:
    """Append a line to a valid file, or create it, readable by its owner alone. Raises EntryFileError."""
    target = Path(os.path.realpath(path))
    fresh = target.with_name(f"{target.name}.{secrets.token_hex(4)}.new")
    try:
        before = target.stat() if target.exists() else None
        content = target.read_bytes() if before is not None else b""
        if content.strip():
            read_token_file(path)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            if before is not None:
                os.fchown(file.fileno(), before.st_uid, before.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            file.write(content + (b"" if content.endswith(b"\n") or not content else b"\n") + line.encode() + b"\n")
        fresh.replace(target)
    except OSError as error:
        raise EntryFileError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        fresh.unlink(missing_ok=True)


def token_file_warning(path: Path) -> str | None:
    """Return a warning about the file's permissions: its hashes reveal no token, but its names reveal the holders."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return None
    if mode & stat.S_IWOTH:
        return f"{path}: every user of this machine can write it and so add a token: run chmod o= {path}"
    if mode & stat.S_IROTH:
        return f"{path}: every user of this machine can read it: run chmod o= {path}"
    return None


def _line_problem(words: list[str]) -> str | None:
    # Errors never show the second word: it may be a token that was pasted in place of its hash.
    if len(words) != 2:
        return f"has {len(words)} words, must have two: NAME sha256:HEX"
    if (problem := token_name_problem(words[0])) is not None:
        return problem
    if _HASH.fullmatch(words[1]) is None:
        return f"of {words[0]!r} must have sha256: and 64 digits 0-9 a-f; the command `token {words[0]}` prints a line"
    return None
