"""Every metric has its line in the README, and none has a label of unbounded values."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.metrics_core import Metric

from pointsman_namesrv.node_metrics import Metrics

README = (Path(__file__).parents[3] / "namesrv" / "README.md").read_text(encoding="utf-8")
BOUNDED_LABELS = {
    "cluster",
    "state",
    "role",
    "event",
    "reason",
    "result",
    "method",
    "code",
    "cause",
    "limit",
    "quantile",
    "peer",
}


def ours() -> list[Metric]:
    return [metric for metric in Metrics().registry.collect() if metric.name.startswith("pointsman_namesrv_")]


def name_of(metric: Metric) -> str:
    """As it is scraped."""
    return {"counter": f"{metric.name}_total", "info": f"{metric.name}_info"}.get(metric.type, metric.name)


def test_each_metric_is_explained() -> None:
    assert len(ours()) > 30
    assert [name_of(metric) for metric in ours() if f"`{name_of(metric)}" not in README] == []
    assert [name_of(metric) for metric in ours() if not metric.documentation] == []


def test_labels_are_of_bounded_sets() -> None:
    metrics = vars(Metrics()).values()
    labels = {
        label for metric in metrics for names in ("_labelnames", "label_names") for label in getattr(metric, names, ())
    }
    assert labels <= BOUNDED_LABELS


def test_totals_used_as_rates_add_up_over_labels() -> None:
    metrics = Metrics()
    metrics.beats.labels("OK").inc(2)
    metrics.beats.labels("UNKNOWN_BROKER").inc()
    assert metrics.totals()["heartbeats_total"] == 3


def test_the_guard_of_a_removed_cluster_has_no_label() -> None:
    metrics = Metrics()

    def shown() -> dict[str, float]:
        return {
            sample.labels["cluster"]: sample.value
            for metric in metrics.guard_active.collect()
            for sample in metric.samples
        }

    metrics.show_guard(["a", "b"], ["b"], ["a", "b", "quiet"])
    assert shown() == {"a": 1, "b": 2}
    metrics.show_guard([], [], ["a", "quiet"])
    assert shown() == {"a": 0}
    metrics.show_guard([], [], [])
    metrics.show_guard([], [], [])
    assert shown() == {}
