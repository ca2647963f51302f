"""Puts the status page and ``/v1`` together."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from pointsman.wire.names import split_addr
from pointsman.wire.refusals import Refusal
from pointsman_namesrv.web import fleet_documents, status_document
from pointsman_namesrv.web.fleet_documents import Fleet
from pointsman_namesrv.web.loop_documents import LoopDocuments, Query, Rest
from pointsman_namesrv.web.peer_comparison import PeerStanding
from pointsman_namesrv.web.status_site import Authorise, BeyondLoopback, open_to_everyone


def documents_of(fleet: Fleet, *, version: str, peers: Sequence[PeerStanding], report_url: str) -> LoopDocuments:
    """Return the documents of a name server that serves. Must run in its event loop."""
    builds: dict[str, Callable[[Fleet, Query, Rest], Awaitable[object]]] = {
        "status": partial(status_document.status, version=version, peers=peers, report_url=report_url),
        "brokers": fleet_documents.brokers,
        "clusters": fleet_documents.clusters,
        "routes": fleet_documents.route,
        "events": fleet_documents.events,
    }

    async def build(query: Query, rest: Rest) -> object:
        try:
            return await builds[query.kind](fleet, query, rest)
        except Refusal as refusal:
            raise fleet.as_known_now(refusal) from None

    return LoopDocuments(build, clock=fleet.clock)


def authorise_on(
    listen: str, authorise: Authorise | None = None, *, plaintext_beyond_loopback: bool = False
) -> Authorise:
    """Return who decides on a listener: access control where there is one, else only this machine is trusted."""
    if authorise is not None:
        return authorise
    if plaintext_beyond_loopback or _is_loopback(listen):
        return open_to_everyone

    def refuse(_authorization: str | None, _method: str) -> None:
        raise BeyondLoopback(listen)

    return refuse


def _is_loopback(listen: str) -> bool:
    host, _ = split_addr(listen)
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
