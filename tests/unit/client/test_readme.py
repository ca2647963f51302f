"""The client's README against the code: settings with their defaults, metrics, errors, names in Redis, code blocks."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

import pointsman_client
from pointsman.wire.group_topics import MAX_GROUP_LENGTH, RETRY_DELAYS_SECONDS
from pointsman_client import errors, sync
from pointsman_client.client import NameServerClient
from pointsman_client.consumer.agents.agent_coordination import agent_coordination
from pointsman_client.consumer.consumer_options import MAX_BATCH, MAX_CONCURRENCY
from pointsman_client.consumer.pull_consumer import PullConsumer
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.consumer.start_offset import ConsumeFrom
from pointsman_client.core.allocation import STRATEGIES, to_strategy
from pointsman_client.core.fault_strategy import NEWER_FAULT_RULES
from pointsman_client.core.rebalance import MessageModel
from pointsman_client.core.retry_rules import MAX_RECONSUME_TIMES, SUSPEND_SECONDS
from pointsman_client.core.send_outcome import RETRY_RESPONSE_CODES
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.producer.producer import Producer
from pointsman_client.prometheus import PREFIX, PrometheusMetrics
from pointsman_client.rpc.links import open_channel
from pointsman_client.transports import entry
from pointsman_client.transports.redis_streams import RedisStreamsTransport
from pointsman_ctl.command_line import cli

README = (Path(__file__).parents[3] / "client" / "README.md").read_text(encoding="utf-8")
REQUIRED = "required"
NAMES = {
    "ConsumeFrom": ConsumeFrom,
    "MessageModel": MessageModel,
    "NEWER_FAULT_RULES": NEWER_FAULT_RULES,
    "RETRY_RESPONSE_CODES": RETRY_RESPONSE_CODES,
    "agent_coordination": agent_coordination,
    "open_channel": open_channel,
}
"""What defaults in the tables are written with."""


def section(heading: str) -> str:
    """The text under a heading, with its subsections."""
    level = heading.partition(" ")[0]
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", README, re.DOTALL | re.MULTILINE)
    assert found is not None, heading
    return found[1]


def rows(text: str) -> Iterator[list[str]]:
    """The cells of the tables' rows, without their heads."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("| ") and not lines[min(number + 1, len(lines) - 1)].startswith("|---"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


def documented(heading: str, face: str = "") -> dict[str, object]:
    """The settings of a table with their defaults; ``face`` leaves out those of another one."""
    found: dict[str, object] = {}
    for setting, _, default, _ in rows(section(heading)):
        remark = re.search(r"\((\w+)\)$", setting)
        if remark is not None and remark[1] != face:
            continue
        names, defaults = code(setting), code(default) or [default]
        if len(names) > 1 and len(defaults) == 1:
            defaults *= len(names)
        for name, value in zip(names, defaults, strict=True):
            assert name not in found, f"{name} stands twice under {heading}"
            found[name] = REQUIRED if value == REQUIRED else eval(value, NAMES)
    return found


def actual(constructor: Callable[..., object]) -> dict[str, object]:
    return {
        parameter.name: REQUIRED if parameter.default is inspect.Parameter.empty else parameter.default
        for parameter in inspect.signature(constructor).parameters.values()
    }


@pytest.mark.parametrize(
    ("constructor", "heading", "face"),
    [
        (NameServerClient, "### NameServerClient", ""),
        (Producer, "### Producer", ""),
        (PushConsumer, "### PushConsumer and PullConsumer", "push"),
        (PullConsumer, "### PushConsumer and PullConsumer", "pull"),
        (RedisStreamsTransport, "### RedisStreamsTransport", ""),
    ],
)
def test_every_setting_stands_in_its_table_with_its_true_default(
    constructor: Callable[..., object], heading: str, face: str
) -> None:
    assert documented(heading, face) == actual(constructor)


@pytest.mark.parametrize("name", ["NameServerClient", "Producer", "PushConsumer", "PullConsumer"])
def test_the_facade_has_one_setting_more_and_the_readme_names_it_with_its_default(name: str) -> None:
    blocking, ours = actual(getattr(sync, name)), actual(getattr(pointsman_client, name))
    ours.pop("open_channel", None)

    assert blocking == ours | {"call_timeout_seconds": 60.0}
    assert "`call_timeout_seconds` (60.0)" in README


def test_every_metric_of_the_adapter_is_named_with_its_labels() -> None:
    registry = CollectorRegistry()
    adapter = PrometheusMetrics(registry)
    metrics = {}
    for family in registry.collect():
        name = family.name.removeprefix(PREFIX) + ("_total" if family.type == "counter" else "")
        own = next((each for each in vars(adapter).values() if getattr(each, "_name", None) == family.name), None)
        metrics[name] = list(own._labelnames) if own is not None else ["topic"]

    found = {code(name)[0]: labels.split(", ") for name, labels, _ in rows(section("## Metrics"))}

    assert found == metrics


def test_every_error_is_named_and_none_that_is_not_there() -> None:
    there = {
        name
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, errors.PointsmanError) and each.__module__ == errors.__name__
    }

    named = set(re.findall(r"\b\w+Error\b", section("## Errors"))) - {"ValueError", "RuntimeError", "TimeoutError"}

    assert named == there


def test_every_strategy_is_named_with_its_constructor_and_rocketmqs_name() -> None:
    found = {}
    for constructor, names, *_ in rows(section("## Strategies")):
        if constructor != "pinned":
            ours, rocketmqs = code(names)
            found[ours] = code(constructor)[0].partition("(")[0]
            assert to_strategy_class(rocketmqs) is STRATEGIES[ours]

    assert found == {name: getattr(make, "__name__", "") for name, make in STRATEGIES.items()}
    assert set(found.values()) <= set(pointsman_client.__all__)


def to_strategy_class(name: str) -> type:
    return type(to_strategy(name, rooms=[]) if name == "MACHINE_ROOM" else to_strategy(name))


def test_the_fields_of_an_entry_are_those_of_the_format() -> None:
    fields = re.findall(r"^``(\w+)``", entry.__doc__ or "", re.MULTILINE)
    table = section("## In Redis").partition("| field | content |")[2]

    found = [name for cells in rows("| field" + table) for name in code(cells[0]) if len(cells) == 2]

    assert sorted(found) == sorted(fields)


def test_the_delays_and_bounds_in_the_text_are_those_of_the_code() -> None:
    seconds = [10, 30, *(60 * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)), 3600, 7200]
    assert list(RETRY_DELAYS_SECONDS) == seconds
    assert "after 10 s, 30 s, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30 min, 1 h, 2 h. After 16 such tries" in README
    assert MAX_RECONSUME_TIMES == len(seconds) == 16
    assert f"rests {SUSPEND_SECONDS:g} s" in README
    assert f"listener calls at once, 1 to {MAX_CONCURRENCY}" in README
    assert f"messages of one pull, 1 to {MAX_BATCH:,}" in README
    assert f"of groups to {MAX_GROUP_LENGTH}" in README


def test_the_hook_is_described_by_what_the_adapter_counts() -> None:
    """A hook's method that the adapter forgot would be a metric that the README cannot have."""
    hooks = {name for name, each in vars(MetricsHook).items() if inspect.isfunction(each)}

    assert hooks == {name for name, each in vars(PrometheusMetrics).items() if inspect.isfunction(each)} & hooks


def test_the_commands_that_it_names_are_there() -> None:
    """``pointsmanctl order-topic`` and the like; what stands behind them is of the commands' own tests."""
    assert set(re.findall(r"pointsmanctl ([a-z][a-z-]*)", README)) <= cli.commands.keys()


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.splitlines()[0][:60])
def test_the_python_of_the_readme_compiles_and_imports_what_there_is(block: str) -> None:
    compile(block, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    imports: list[ast.stmt] = [node for node in ast.parse(block).body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), "README.md", "exec"), {})


def test_links_lead_to_headings_and_files_that_are_there() -> None:
    text = re.sub(r"^```.*?^```", "", README, flags=re.DOTALL | re.MULTILINE)
    headings = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    links = re.findall(r"\]\(([^)]+)\)", text)

    assert links
    assert [link for link in links if link.startswith("#") and link[1:] not in headings] == []
    here = Path(__file__).parents[3] / "client"
    assert [link for link in links if not link.startswith("#") and not (here / link).exists()] == []
