"""Accounts of RocketMQ's access control: the signature of a request, and the text that an account is read from."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

_KEYS = {"accessKey": "access_key", "secretKey": "secret_key", "securityToken": "security_token"}
"""By key of an account's file, as in RocketMQ's ``tools.yml``: the field of Account."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account (``SessionCredentials``)."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def signed(self, ext: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the fields of a request with its signature: HMAC-SHA1 of all values, by name, and the body.

        As RocketMQ's ``AclClientRPCHook`` writes it.
        """
        fields = {**ext, "AccessKey": self.access_key}
        if self.security_token:
            fields["SecurityToken"] = self.security_token
        content = "".join(fields[name] for name in sorted(fields)).encode() + body
        digest = hmac.digest(self.secret_key.encode(), content, hashlib.sha1)
        return {**fields, "Signature": base64.b64encode(digest).decode()}


def parse_account(text: str, file: str) -> Account:
    """Read the part of YAML that a file for mqadmin needs.

    Raises ValueError, which names ``file`` and has no text of it: it is secret.
    """
    fields: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith(("#", "---")):
            continue
        key, colon, value = line.partition(":")
        if not colon or key.strip() not in _KEYS:
            raise ValueError(
                f"line {number} of {file} must be accessKey: NAME, secretKey: SECRET or securityToken: TOKEN"
            )
        value = value.partition(" #")[0].strip()
        is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        fields[_KEYS[key.strip()]] = value[1:-1] if is_quoted else value
    missing = [key for key in ("accessKey", "secretKey") if not fields.get(_KEYS[key])]
    if missing:
        raise ValueError(f"{file} has no {' and no '.join(missing)}")
    return Account(**fields)
