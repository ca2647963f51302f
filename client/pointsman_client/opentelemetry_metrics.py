"""Metrics of the client for OpenTelemetry; requires the extra ``otel``.

One object for all producers and consumers::

    metrics = OpenTelemetryMetrics()
    async with Producer(name_servers, transport=transport, metrics_hook=metrics) as producer:
        ...

Names and labels are those of :class:`~pointsman_client.prometheus.PrometheusMetrics`, without its ``_total``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

try:
    from opentelemetry import metrics
    from opentelemetry.metrics import CallbackOptions, Observation
except ModuleNotFoundError as missing:
    raise ImportError(
        "OpenTelemetryMetrics needs opentelemetry-api: pip install 'pointsman-client[otel]'", name="opentelemetry"
    ) from missing

from pointsman.clock import Clock, SystemClock
from pointsman_client import __version__
from pointsman_client.labelled_metrics import PREFIX, Ages, LabelledMetrics

Attributes = dict[str, str]


class OpenTelemetryMetrics(LabelledMetrics):
    """Makes its instruments at a meter. Methods do not block and may be called on any thread."""

    def __init__(self, meter_provider: metrics.MeterProvider | None = None, *, clock: Clock | None = None) -> None:
        """``meter_provider``: None: the global one. ``clock``: as of :class:`PrometheusMetrics`."""
        self._meter = metrics.get_meter("pointsman_client", __version__, meter_provider)
        self._clock = clock or SystemClock()
        super().__init__()

    def _counter(self, name: str, meaning: str, *labels: str) -> _Labelled:
        counter = self._meter.create_counter(PREFIX + name, _unit(name), meaning)
        return _Labelled(labels, counter.add)

    def _gauge(self, name: str, meaning: str, *labels: str) -> _Labelled:
        gauge = self._meter.create_gauge(PREFIX + name, _unit(name), meaning)
        return _Labelled(labels, gauge.set)

    def _histogram(self, name: str, meaning: str, buckets: Sequence[float], *labels: str) -> _Labelled:
        histogram = self._meter.create_histogram(
            PREFIX + name, _unit(name), meaning, explicit_bucket_boundaries_advisory=buckets
        )
        return _Labelled(labels, histogram.record)

    def _summary(self, name: str, meaning: str, *labels: str) -> _Labelled:
        # Count and sum alone: a series for each queue with buckets would be many.
        return self._histogram(name, meaning, (), *labels)

    def _ages(self, name: str, meaning: str, *labels: str) -> Ages:
        ages = Ages(self._clock)

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(seconds, dict(zip(labels, values, strict=True))) for values, seconds in ages.seconds()]

        self._meter.create_observable_gauge(PREFIX + name, [observe], _unit(name), meaning)
        return ages


class _Labelled:
    """An instrument, and the names of its attributes."""

    def __init__(self, names: Sequence[str], record: Callable[[float, Attributes], None]) -> None:
        self._names = names
        self._record = record

    def labels(self, *values: object) -> _Recorder:
        """Return the recorder for these values."""
        return _Recorder(self._record, dict(zip(self._names, map(str, values), strict=True)))


class _Recorder:
    """Records numbers with their attributes."""

    def __init__(self, record: Callable[[float, Attributes], None], attributes: Attributes) -> None:
        self._record = record
        self._attributes = attributes

    def inc(self, amount: float = 1) -> None:
        self._record(amount, self._attributes)

    def set(self, value: float) -> None:
        self._record(value, self._attributes)

    def observe(self, amount: float) -> None:
        self._record(amount, self._attributes)


def _unit(name: str) -> str:
    return "s" if name.endswith("_seconds") else ""
