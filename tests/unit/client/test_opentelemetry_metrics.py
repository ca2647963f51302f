"""The adapter to OpenTelemetry: the same numbers under the same names and labels as for Prometheus."""

from __future__ import annotations

import inspect

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from prometheus_client import CollectorRegistry

from pointsman.manual_clock import ManualClock
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.labelled_metrics import LabelledMetrics
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.opentelemetry_metrics import OpenTelemetryMetrics
from pointsman_client.prometheus import PrometheusMetrics

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
VALUES: dict[str, object] = {
    "queue": MessageQueue("orders", "c1", "broker-a", 3),
    **dict.fromkeys(("at", "since"), 990.0),
    **dict.fromkeys(("messages", "queues", "count", "tries", "waiting"), 5),
    **dict.fromkeys(("is_aside", "is_idle"), True),
    "seconds": 0.25,
}


def call_all(metrics: LabelledMetrics) -> None:
    """Call each hook twice, except the one that ends a route."""
    for name, hook in inspect.getmembers(metrics, inspect.ismethod):
        if hasattr(MetricsHook, name) and name != "route_dropped" and not name.startswith("_"):
            for _ in range(2):
                hook(**{each: VALUES.get(each, each) for each in inspect.signature(hook).parameters})


def of_prometheus(registry: CollectorRegistry) -> Samples:
    """Counters and gauges by name and labels; of distributions the sums."""
    return {
        (sample.name.removesuffix("_sum").removesuffix("_total"), tuple(sorted(sample.labels.items()))): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith(("_created", "_count", "_bucket"))
    }


def of_opentelemetry(reader: InMemoryMetricReader) -> Samples:
    data = reader.get_metrics_data()
    assert data is not None
    found: Samples = {}
    for metric in (m for resource in data.resource_metrics for scope in resource.scope_metrics for m in scope.metrics):
        assert metric.unit == ("s" if metric.name.endswith("_seconds") else "")
        for point in metric.data.data_points:
            assert isinstance(point, NumberDataPoint | HistogramDataPoint)
            labels = tuple(sorted((name, str(value)) for name, value in (point.attributes or {}).items()))
            found[metric.name, labels] = point.sum if isinstance(point, HistogramDataPoint) else point.value
    return found


def test_both_have_the_same_numbers() -> None:
    clock, registry, reader = ManualClock(), CollectorRegistry(), InMemoryMetricReader()
    call_all(PrometheusMetrics(registry, clock=clock))
    call_all(OpenTelemetryMetrics(MeterProvider([reader]), clock=clock))
    clock.now += 42.0
    expected = of_prometheus(registry)

    assert len(expected) > 25
    assert of_opentelemetry(reader) == pytest.approx(expected)


def test_an_age_ends_with_what_it_is_the_age_of() -> None:
    clock, reader = ManualClock(), InMemoryMetricReader()
    metrics = OpenTelemetryMetrics(MeterProvider([reader]), clock=clock)
    metrics.route_confirmed(topic="orders", at=clock.monotonic())
    clock.now += 42.0
    assert of_opentelemetry(reader) == {("pointsman_client_route_age_seconds", (("topic", "orders"),)): 42.0}
    metrics.route_dropped(topic="orders")
    assert reader.get_metrics_data() is None or of_opentelemetry(reader) == {}
