"""The adapter to prometheus-client: every hook method shows in a scrape, under names that Prometheus expects."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pointsman.manual_clock import ManualClock
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.labelled_metrics import LabelledMetrics
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.prometheus import PrometheusMetrics

QUEUE = MessageQueue("orders", "c1", "broker-a", 3)
HOOKS = [name for name, _ in inspect.getmembers(MetricsHook, inspect.isfunction)]
VALUES: Mapping[str, object] = {
    "at": 990.0,
    "messages": 5,
    "queue": QUEUE,
    "queues": 6,
    "seconds": 0.25,
    "since": 993.0,
    "count": 7,
    "is_aside": True,
    "is_idle": True,
    "tries": 2,
    "waiting": 8,
}


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def call(metrics: PrometheusMetrics, hook: str) -> None:
    method = getattr(metrics, hook)
    method(**{name: VALUES.get(name, name) for name in inspect.signature(method).parameters})


def samples(registry: CollectorRegistry) -> dict[str, float]:
    lines = generate_latest(registry).decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#") and "_created" not in line)
    return {name: float(value) for name, _, value in pairs}


@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook != "route_dropped"])
def test_every_hook_is_overridden_and_changes_a_sample(hook: str, registry: CollectorRegistry) -> None:
    metrics = PrometheusMetrics(registry, clock=ManualClock())
    assert hook in vars(LabelledMetrics)
    assert inspect.signature(getattr(metrics, hook)) == inspect.signature(getattr(MetricsHook(), hook))
    before = samples(registry)
    call(metrics, hook)
    assert any(value for name, value in samples(registry).items() if before.get(name) != value)


def test_the_age_of_a_route_is_that_of_the_moment_of_the_scrape(registry: CollectorRegistry) -> None:
    clock = ManualClock()
    metrics = PrometheusMetrics(registry, clock=clock)
    metrics.route_confirmed(topic="orders", at=clock.monotonic())
    clock.now += 42.0
    assert samples(registry)['pointsman_client_route_age_seconds{topic="orders"}'] == 42.0
    metrics.route_confirmed(topic="orders", at=clock.monotonic())
    assert samples(registry)['pointsman_client_route_age_seconds{topic="orders"}'] == 0.0
    metrics.route_dropped(topic="orders")
    assert not [name for name in samples(registry) if "route_age" in name]


def test_a_blocked_queue_shows_for_how_long_until_it_is_not(registry: CollectorRegistry) -> None:
    clock = ManualClock()
    metrics = PrometheusMetrics(registry, clock=clock)
    metrics.queue_blocked(group="billing", queue=QUEUE, since=clock.monotonic())
    clock.now += 40.0
    place = 'broker_name="broker-a",cluster="c1",group="billing",queue_id="3",topic="orders"'
    assert samples(registry)[f"pointsman_client_blocked_queue_seconds{{{place}}}"] == 40.0
    metrics.queue_blocked(group="billing", queue=QUEUE, since=None)
    assert not [name for name in samples(registry) if "blocked" in name]


def test_a_long_call_shows_for_how_long_until_it_ends(registry: CollectorRegistry) -> None:
    clock = ManualClock()
    metrics = PrometheusMetrics(registry, clock=clock)
    metrics.call_running(group="billing", queue=QUEUE, since=clock.monotonic() - 5.0)
    clock.now += 40.0
    place = 'broker_name="broker-a",cluster="c1",group="billing",queue_id="3",topic="orders"'
    assert samples(registry)[f"pointsman_client_listener_call_running_seconds{{{place}}}"] == 45.0
    metrics.call_running(group="billing", queue=QUEUE, since=None)
    assert not [name for name in samples(registry) if "running" in name]


def test_each_call_of_the_hook_is_counted_under_its_name(registry: CollectorRegistry) -> None:
    metrics = PrometheusMetrics(registry, clock=ManualClock())
    for hook in HOOKS:
        call(metrics, hook)
    seen = samples(registry)
    place = 'broker_name="broker-a",cluster="c1",group="group",queue_id="3",topic="orders"'
    assert seen['pointsman_client_sends_total{outcome="outcome",topic="topic"}'] == 1
    assert seen['pointsman_client_tries_per_send_sum{topic="topic"}'] == 2
    assert seen[f"pointsman_client_listener_duration_seconds_sum{{{place}}}"] == 0.25
    of_sends = place.replace('group="group",', "")
    assert seen[f"pointsman_client_send_queue_duration_seconds_sum{{{of_sends}}}"] == 0.25
    assert seen['pointsman_client_queues_held{group="group",topic="topic"}'] == 7
    assert seen['pointsman_client_outbox_messages{topic="topic"}'] == 8
    assert seen['pointsman_client_committed_queues_total{group="group",result="result"}'] == 6


def test_every_metric_has_the_prefix_a_base_unit_and_a_meaning(registry: CollectorRegistry) -> None:
    PrometheusMetrics(registry)
    families = list(registry.collect())
    assert len(families) > 20
    for family in families:
        assert family.name.startswith("pointsman_client_")
        assert family.documentation
        assert not family.name.endswith(("_ms", "_millis", "_total"))
        assert ("duration" in family.name or "_age_" in family.name) <= family.name.endswith("_seconds")
