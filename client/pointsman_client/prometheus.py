"""Metrics of the client for prometheus-client; requires the extra ``prometheus``.

One object per registry, shared by all producers and consumers.

::

    metrics = PrometheusMetrics()
    async with Producer(name_servers, transport=transport, metrics_hook=metrics) as producer:
        ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, Metric, Summary
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    raise ImportError(
        "PrometheusMetrics needs prometheus-client: pip install 'pointsman-client[prometheus]'",
        name="prometheus_client",
    ) from error

from pointsman.clock import Clock, SystemClock
from pointsman_client.labelled_metrics import PREFIX, Ages, LabelledMetrics


class PrometheusMetrics(LabelledMetrics):
    """Registers all metrics in ``registry``. Methods do not block and may be called on any thread."""

    def __init__(self, registry: CollectorRegistry = REGISTRY, *, clock: Clock | None = None) -> None:
        """``clock``: the clock of the producers and consumers; None: the system clock."""
        self._registry = registry
        self._clock = clock or SystemClock()
        super().__init__()

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, meaning, labels, registry=self._registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(PREFIX + name, meaning, labels, registry=self._registry)

    def _histogram(self, name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(PREFIX + name, meaning, labels, registry=self._registry, buckets=buckets)

    def _summary(self, name: str, meaning: str, *labels: str) -> Summary:
        return Summary(PREFIX + name, meaning, labels, registry=self._registry)

    def _ages(self, name: str, meaning: str, *labels: str) -> Ages:
        ages = Ages(self._clock)
        self._registry.register(_AgesCollector(ages, name, meaning, labels))
        return ages


class _AgesCollector(Collector):
    """Gauges of elapsed time, computed at each scrape."""

    def __init__(self, ages: Ages, name: str, meaning: str, labels: Sequence[str]) -> None:
        self._ages = ages
        self._name = PREFIX + name
        self._meaning = meaning
        self._labelnames = labels

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(self._name, self._meaning, labels=self._labelnames)
        for values, seconds in self._ages.seconds():
            family.add_metric(values, seconds)
        yield family
