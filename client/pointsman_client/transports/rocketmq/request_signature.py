"""Signatures of requests, for brokers that check who sends them (RocketMQ ``AclClientRPCHook``). Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AccessKey:
    """An account of a broker's ACL (``SessionCredentials``)."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def signed(self, ext: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the fields of a request with its signature: HMAC-SHA1 of all values, by name, and the body."""
        fields = {**ext, "AccessKey": self.access_key}
        if self.security_token:
            fields["SecurityToken"] = self.security_token
        content = "".join(fields[name] for name in sorted(fields)).encode() + body
        digest = hmac.digest(self.secret_key.encode(), content, hashlib.sha1)
        return {**fields, "Signature": base64.b64encode(digest).decode()}
