"""The account that signs requests, for RocketMQ servers that check who sends them (``AclClientRPCHook``). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pointsman.rocketmq.account import Account
from pointsman_client.errors import InvalidOptionError


@dataclass(frozen=True, slots=True)
class AccessKey(Account):
    """An account of RocketMQ's access control (``SessionCredentials``).

    Raises :class:`InvalidOptionError` if name or secret is empty, as from an environment variable that is not set.
    """

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                # Not its value, which may be the secret.
                raise InvalidOptionError(name, type(value), "must be a str that is not empty")
