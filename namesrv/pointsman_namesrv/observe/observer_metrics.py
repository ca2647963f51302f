"""Metrics of the observer: the observed name servers, the brokers that they list, and where they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pointsman.clock import Clock
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.flap_penalties import FlapScore
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.observe.listings import Listings
from pointsman_namesrv.observe.route_differences import RouteDifferences

RESPONSE_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the histogram."""


@dataclass(frozen=True, slots=True)
class FleetNumbers:
    """The fleet as all name servers list it together; made in the event loop, read by the thread of a scrape."""

    brokers: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By cluster and state: up, missing (at one name server at least), gone."""
    departures: int = 0
    returns: int = 0
    penalties: Sequence[FlapScore] = ()
    """The highest."""


class ObserverMetrics:
    """A registry for the observer alone: a name server's own metrics would be of no name server here."""

    def __init__(self, listings: Listings, differences: RouteDifferences, recorded: Metrics, *, clock: Clock) -> None:
        """``recorded``: the metrics in which the recorders count rows."""
        self.registry = CollectorRegistry()
        for of_process in (ProcessCollector, PlatformCollector, GCCollector):
            of_process(registry=self.registry)
        for history in (recorded.history_rows, recorded.history_dropped, recorded.history_failing):
            self.registry.register(history)
        self._responses = Histogram(
            "pointsman_observe_response_seconds",
            "Time of a name server's responses to GET_BROKER_CLUSTER_INFO",
            ["name_server"],
            buckets=RESPONSE_SECONDS,
            registry=self.registry,
        )
        self._departures = Counter(
            "pointsman_observe_departures",
            "Brokers that a name server ceased to list while it was watched",
            ["name_server"],
            registry=self.registry,
        )
        self._arrivals = Counter(
            "pointsman_observe_arrivals",
            "Brokers that a name server began to list while it was watched, first ones and returns",
            ["name_server"],
            registry=self.registry,
        )
        self._topic_requests = Counter(
            "pointsman_observe_topic_requests",
            "Requests for routes, and for the list of topics",
            ["name_server"],
            registry=self.registry,
        )
        self._of_server = (self._responses, self._departures, self._arrivals, self._topic_requests)
        for addr in listings.by_addr:
            self.add(addr)
        self.registry.register(_ListingCollector(listings, differences, clock))
        self.fleet = FleetNumbers()
        """Set by who counts them."""
        self.registry.register(_FleetCollector(lambda: self.fleet))

    def add(self, addr: str) -> None:
        """Begin with a name server."""
        for each in self._of_server:
            each.labels(addr)

    def remove(self, addr: str) -> None:
        """End with a name server."""
        for each in self._of_server:
            each.remove(addr)

    def asked_for_topics(self, addr: str) -> None:
        """Count a request."""
        self._topic_requests.labels(addr).inc()

    def responded(self, addr: str, seconds: float) -> None:
        """Count a response."""
        self._responses.labels(addr).observe(seconds)

    def happened(self, addr: str, events: Iterable[Event]) -> None:
        """Count what was recorded of a name server's brokers."""
        for event in events:
            if event.kind is EventKind.EXPIRED and "between_watches" not in event.detail:
                self._departures.labels(addr).inc()
            elif event.kind is EventKind.REGISTERED:
                self._arrivals.labels(addr).inc()


class _ListingCollector(Collector):
    """Reads the listings at each scrape, in the thread of the scrape: each is replaced, never changed."""

    def __init__(self, listings: Listings, differences: RouteDifferences, clock: Clock) -> None:
        self._listings = listings
        self._differences = differences
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """See ``prometheus_client``."""
        labels = ["name_server"]
        up = GaugeMetricFamily("pointsman_observe_up", "1 while the name server responds and is watched", labels=labels)
        brokers = GaugeMetricFamily(
            "pointsman_observe_brokers", "Brokers (replicas) that the name server lists", labels=labels
        )
        topics = GaugeMetricFamily(
            "pointsman_observe_topics", "Topics that the name server listed at the last walk", labels=labels
        )
        missing = GaugeMetricFamily(
            "pointsman_observe_brokers_missing",
            "Brokers (replicas) that another name server lists and this one does not",
            labels=labels,
        )
        oldest = GaugeMetricFamily(
            "pointsman_observe_brokers_missing_seconds",
            "Time for which the first of these brokers has been missing; 0: none is",
            labels=labels,
        )
        routes = GaugeMetricFamily(
            "pointsman_observe_routes_differing",
            "Topics whose routes at the name server differ from those of most; without a majority, from another's",
            labels=labels,
        )
        since = GaugeMetricFamily(
            "pointsman_observe_routes_differing_seconds",
            "Time for which the first of these topics has differed; 0: none does",
            labels=labels,
        )
        not_compared = GaugeMetricFamily(
            "pointsman_observe_routes_not_compared",
            "Topics beyond the limit of the comparison",
            value=self._differences.not_compared,
        )
        now = self._clock.monotonic()
        for addr, differing in self._differences.shown.items():
            routes.add_metric([addr], differing.topics)
            since.add_metric([addr], now - differing.since if differing.topics else 0.0)
        for addr, listing in self._listings.by_addr.items():
            listed, absent = listing.brokers, listing.missing
            up.add_metric([addr], 0.0 if listed is None else 1.0)
            missing.add_metric([addr], len(absent))
            oldest.add_metric([addr], now - min(absent.values()) if absent else 0.0)
            if listed is not None:
                brokers.add_metric([addr], len(listed))
            if listing.topics is not None:
                topics.add_metric([addr], listing.topics)
        yield from (up, brokers, topics, missing, oldest, routes, since, not_compared)


class _FleetCollector(Collector):
    """Reads the numbers of the whole fleet at each scrape."""

    def __init__(self, fleet: Callable[[], FleetNumbers]) -> None:
        self._fleet = fleet

    def collect(self) -> Iterator[Metric]:
        """See ``prometheus_client``."""
        fleet = self._fleet()
        brokers = GaugeMetricFamily(
            "pointsman_observe_fleet_brokers",
            "Brokers (replicas) of all name servers together: up, missing at one that is watched, gone from all",
            labels=["cluster", "state"],
        )
        for labels, count in fleet.brokers.items():
            brokers.add_metric(labels, count)
        departures = CounterMetricFamily(
            "pointsman_observe_fleet_departures",
            "Brokers that the last watched name server ceased to list",
            value=fleet.departures,
        )
        returns = CounterMetricFamily(
            "pointsman_observe_fleet_returns", "Departed brokers that a name server lists again", value=fleet.returns
        )
        penalty = GaugeMetricFamily(
            "pointsman_observe_flap_penalty",
            "Flap penalty of a broker, the highest at a name server; of the brokers with the highest alone",
            labels=["cluster", "broker_name", "broker_id"],
        )
        flapping = GaugeMetricFamily(
            "pointsman_observe_flapping_brokers",
            "Of these, brokers whose flap penalty exceeded 3,000 and is not below 1,000 yet",
            value=sum(score.flapping for score in fleet.penalties),
        )
        for score in fleet.penalties:
            penalty.add_metric(list(map(str, score.position)), score.penalty)
        yield from (brokers, departures, returns, penalty, flapping)
