"""Which authenticated identity a client id belongs to."""

from __future__ import annotations

from collections.abc import Callable

from pointsman.daemon.access.access import Caller, PermissionDenied, Reason
from pointsman.daemon.access.access_settings import Role
from pointsman.wire.refusals import shown


class ClientOwners:
    """A client id belongs to the identity that made it, until its last stream and its last lock end.

    ``owners``: each returns the identity that holds a client id in one table; empty: none.
    """

    def __init__(self, *owners: Callable[[str], str]) -> None:
        self._owners = owners

    def check(self, client_id: str, caller: Caller | None) -> None:
        """Raise PermissionDenied for a client id of another identity. An admin may use all; without grants all may."""
        if caller is None or Role.ADMIN in caller.roles:
            return
        for owner in self._owners:
            if owner(client_id) not in {"", caller.identity}:
                raise PermissionDenied(
                    f"{caller} may not use client id {shown(client_id)}: it belongs to another identity until its "
                    "last stream and lock end",
                    identity=caller.identity,
                    reason=Reason.OTHER_CLIENT,
                )
