"""Builds the status page and ``/v1``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from pointsman.daemon.access.access import Access
from pointsman.names import is_loopback
from pointsman.wire.refusals import Refusal
from pointsman_namesrv.web import fleet_documents, status_document
from pointsman_namesrv.web.fleet_documents import Fleet
from pointsman_namesrv.web.loop_documents import LoopDocuments, Pause, Query
from pointsman_namesrv.web.peer_comparison import PeerResult
from pointsman_namesrv.web.status_site import Authorise, BeyondLoopback, OtherHost


def documents_of(fleet: Fleet, *, version: str, peers: Sequence[PeerResult], report_url: str) -> LoopDocuments:
    """Return the documents of a running name server. Must run in its event loop."""
    builds: dict[str, Callable[[Fleet, Query, Pause], Awaitable[object]]] = {
        "status": partial(status_document.status, version=version, peers=peers, report_url=report_url),
        "brokers": fleet_documents.brokers,
        "clusters": fleet_documents.clusters,
        "routes": fleet_documents.route,
        "events": fleet_documents.events,
        "groups": fleet_documents.groups,
        "queues": fleet_documents.queues,
    }

    async def build(query: Query, pause: Pause) -> object:
        try:
            return await builds[query.kind](fleet, query, pause)
        except Refusal as refusal:
            raise fleet.as_known_now(refusal) from None

    return LoopDocuments(build, clock=fleet.clock)


def authorise_on(listen: str, access: Access, *, has_tls: bool, plaintext_beyond_loopback: bool) -> Authorise:
    """Return the access check of a listener: its grants, or without grants whether only this machine can reach it.

    Beyond loopback no token is requested in plaintext.
    """

    def authorise(authorization: str | None, method: str, host: str, peer: str) -> None:
        if not (is_protected or plaintext_beyond_loopback):
            raise BeyondLoopback(listen)
        if host and access.is_open and not plaintext_beyond_loopback and not _is_this_machine(host):
            raise OtherHost(host)
        access.http(authorization, method, peer)

    is_protected = is_loopback(listen) or (has_tls and not access.is_open)
    return authorise


def _is_this_machine(host: str) -> bool:
    return is_loopback(host) or is_loopback(f"{host}:80")  # a browser omits port 80
