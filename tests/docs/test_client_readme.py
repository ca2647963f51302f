"""The README of the client against the code: metrics, and the Python in it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary

import pointsman_client
from pointsman_client import sync
from pointsman_client.labelled_metrics import Ages, LabelledMetrics
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.prometheus import PrometheusMetrics

HERE = Path(__file__).parents[2] / "client"
README = (HERE / "README.md").read_text(encoding="utf-8")


def test_every_metric_of_the_adapter_is_named_with_its_labels() -> None:
    metrics: dict[str, list[str]] = {}

    class Named(PrometheusMetrics):
        def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
            metrics[f"{name}_total"] = list(labels)
            return super()._counter(name, meaning, *labels)

        def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
            metrics[name] = list(labels)
            return super()._gauge(name, meaning, *labels)

        def _histogram(self, name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
            metrics[name] = list(labels)
            return super()._histogram(name, meaning, buckets, *labels)

        def _summary(self, name: str, meaning: str, *labels: str) -> Summary:
            metrics[name] = list(labels)
            return super()._summary(name, meaning, *labels)

        def _ages(self, name: str, meaning: str, *labels: str) -> Ages:
            metrics[name] = list(labels)
            return super()._ages(name, meaning, *labels)

    Named(CollectorRegistry())
    table = README[README.index("## Metrics") : README.index("## Figures")]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE)

    assert {name: labels.split(", ") for name, labels in rows} == metrics


def test_the_adapter_counts_every_method_of_the_hook() -> None:
    """A method that the adapter omits would be a metric missing in the README."""
    hooks = {name for name, each in vars(MetricsHook).items() if inspect.isfunction(each)}

    assert hooks == {name for name, each in vars(LabelledMetrics).items() if inspect.isfunction(each)} & hooks


@pytest.mark.parametrize(
    "name", ["NameServerClient", "Producer", "TransactionProducer", "PushConsumer", "PullConsumer"]
)
def test_a_blocking_class_has_one_more_setting(name: str) -> None:
    """As the page of the client's settings shows it."""
    blocking, asynchronous = (
        {each.name: each.default for each in inspect.signature(getattr(module, name)).parameters.values()}
        for module in (sync, pointsman_client)
    )
    asynchronous.pop("open_channel", None)

    assert blocking == asynchronous | {"call_timeout_seconds": 60.0}


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.splitlines()[0][:60])
def test_the_python_compiles_and_its_imports_work(block: str) -> None:
    compile(block, "README.md", "exec")
    imports: list[ast.stmt] = [node for node in ast.parse(block).body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), "README.md", "exec"), {})
