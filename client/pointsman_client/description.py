"""The document that ``describe`` returns for a topic. Pure."""

from __future__ import annotations

from collections.abc import Callable

from pointsman.wire.json_document import Document, to_route_document
from pointsman_client.core.cached_routes import CachedRoute
from pointsman_client.errors import InvalidOptionError
from pointsman_client.pointsman_grpc.codec import from_topic_route

OWN_KEYS = frozenset(
    {
        "topic",
        "zone",
        "route",
        "revision",
        "ageSeconds",
        "sourceNode",
        "stale",
        "watched",
        "nameServers",
        "nameServerInUse",
    }
)


def describe_route(topic: str, cached: CachedRoute | None, *, now: float) -> Document:
    """Return the cached route with its age and source as JSON values; ``now`` is monotonic seconds."""
    route = None if cached is None else cached.route
    document = None if route is None else to_route_document(from_topic_route(route))
    return {
        "topic": topic,
        "route": document,
        "revision": None if document is None else document["revision"],
        "ageSeconds": None if cached is None else round(now - cached.confirmed_at, 3),
        "sourceNode": None if cached is None else cached.source,
        "stale": route is not None and route.stale,
    }


class Descriptions:
    """Functions that add their own section to ``describe``, by key."""

    def __init__(self) -> None:
        self._functions: dict[str, Callable[[str], object]] = {}

    def attach(self, name: str, function: Callable[[str], object]) -> Callable[[], None]:
        """Add ``function(topic)`` under ``name`` and return the function that removes it.

        A second function of the same name replaces the first.
        """
        if name in OWN_KEYS:
            raise InvalidOptionError("name", name, "is reserved by describe; use another name")
        self._functions[name] = function

        def remove() -> None:
            if self._functions.get(name) is function:
                del self._functions[name]

        return remove

    def of(self, topic: str) -> Document:
        """Return the sections for a topic."""
        return {name: function(topic) for name, function in self._functions.items()}
