"""Builds the pages and ``/v1``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from pointsman.daemon.access.access import Access, Caller
from pointsman.names import is_loopback
from pointsman.wire.refusals import Refusal
from pointsman_namesrv.web import fleet_documents, page_documents, status_document
from pointsman_namesrv.web.loop_documents import LoopDocuments, Pause, Query
from pointsman_namesrv.web.page_documents import PageSources
from pointsman_namesrv.web.status_site import Authorise, BeyondLoopback, OtherHost


def documents_of(sources: PageSources) -> LoopDocuments:
    """Return the documents of a running name server. Must run in its event loop."""
    fleet = sources.fleet
    status = partial(
        status_document.status, version=sources.version, peers=sources.peers, report_url=sources.report_url
    )
    builds: dict[str, Callable[[Query, Pause], Awaitable[object]]] = {
        "status": partial(status, fleet),
        "brokers": partial(fleet_documents.brokers, fleet),
        "clusters": partial(fleet_documents.clusters, fleet),
        "routes": partial(fleet_documents.route, fleet),
        "events": partial(fleet_documents.events, fleet),
        "groups": partial(fleet_documents.groups, fleet),
        "queues": partial(fleet_documents.queues, fleet),
        **{kind: partial(collect, sources) for kind, collect in page_documents.BUILDS.items()},
    }

    async def build(query: Query, pause: Pause) -> object:
        try:
            return await builds[query.kind](query, pause)
        except Refusal as refusal:
            raise fleet.as_known_now(refusal) from None

    return LoopDocuments(build, clock=fleet.clock, slow=page_documents.SLOW)


def authorise_on(listen: str, access: Access, *, has_tls: bool, plaintext_beyond_loopback: bool) -> Authorise:
    """Return the access check of a listener: its grants, or without grants whether only this machine can reach it.

    Beyond loopback no token is requested in plaintext.
    """

    def authorise(authorization: str | None, method: str, host: str, peer: str) -> Caller | None:
        if not (is_protected or plaintext_beyond_loopback):
            raise BeyondLoopback(listen)
        if host and access.is_open and not plaintext_beyond_loopback and not _is_this_machine(host):
            raise OtherHost(host)
        return access.http(authorization, method, peer)

    is_protected = is_loopback(listen) or (has_tls and not access.is_open)
    return authorise


def _is_this_machine(host: str) -> bool:
    return is_loopback(host) or is_loopback(f"{host}:80")  # a browser omits port 80
