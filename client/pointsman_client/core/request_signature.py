"""Signatures of requests, for RocketMQ servers that check who sends them (``AclClientRPCHook``). Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from pointsman_client.errors import InvalidOptionError


@dataclass(frozen=True, slots=True)
class AccessKey:
    """An account of RocketMQ's access control (``SessionCredentials``).

    Raises :class:`InvalidOptionError` if name or secret is empty, as from an environment variable that is not set.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                # Not its value, which may be the secret.
                raise InvalidOptionError(name, type(value), "must be a str that is not empty")

    def signed(self, ext: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the fields of a request with its signature: HMAC-SHA1 of all values, by name, and the body."""
        fields = {**ext, "AccessKey": self.access_key}
        if self.security_token:
            fields["SecurityToken"] = self.security_token
        content = "".join(fields[name] for name in sorted(fields)).encode() + body
        digest = hmac.digest(self.secret_key.encode(), content, hashlib.sha1)
        return {**fields, "Signature": base64.b64encode(digest).decode()}
