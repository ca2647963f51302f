"""Topics, queues and lags of the fleet as tables, and what to do about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pointsman.names import printable
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.wire.operator_texts import counted, duration_text, rate_text
from pointsman.wire.wire_time import seconds_of
from pointsman_ctl.output.output_layout import ALARM, WARNING, new_table

MAX_PROBLEMS = 10
"""Brokers without a measurement that are named."""


def fleet_queue_parts(found: admin.ListLiveQueuesResponse, *, is_hot: bool, limit: int) -> Iterable[RenderableType]:
    """Show the tables, the findings, and which brokers are not in them.

    ``is_hot``: only what has a finding. ``limit``: rows of each table.
    """
    topics = [each for each in found.topics if each.findings or not is_hot]
    hot = {(each.cluster, each.topic) for each in topics}
    queues = [each for each in found.queues if not is_hot or (each.cluster, each.topic) in hot]
    groups = {(each.cluster, each.group, each.topic) for each in found.groups if each.findings}
    lags = [each for each in found.lags if not is_hot or (each.cluster, each.group, each.topic) in groups]
    for table in (_topics(topics[:limit]), _queues(queues[:limit]), _lags(lags[:limit])):
        if table.row_count:
            yield table
            yield ""
    findings = [finding for topic in found.topics for finding in topic.findings]
    findings += [finding for group in found.groups for finding in group.findings]
    for finding in findings:
        yield Text(printable(f"{finding.kind.replace('_', ' ').upper()}: {finding.text}"), style=ALARM)
        yield Text(printable(f"  To do: {finding.remedy}"))
    if is_hot and not findings:
        yield Text("no queue is hot, and no group needs action")
    yield from _measured(found.brokers, found.measured_broker_count, found.broker_count)


def _topics(topics: Iterable[admin.LiveTopic]) -> Table:
    numbers = ("QUEUES", "IDLE", "IN/S", "SKEW", "DEPTH")
    table = new_table("CLUSTER", "TOPIC", *numbers, right=numbers)
    for each in topics:
        table.add_row(
            each.cluster,
            printable(each.topic),
            str(each.queue_count),
            str(each.idle_queue_count),
            rate_text(each.put_rate),
            Text(f"{each.skew:.1f}", style=ALARM if each.findings else "") if each.skew else "-",
            str(each.depth),
        )
    return table


def _queues(queues: Iterable[admin.LiveQueue]) -> Table:
    numbers = ("QUEUE", "IN/S", "DEPTH", "BYTES")
    table = new_table("CLUSTER", "BROKER", "TOPIC", *numbers, right=numbers)
    for each in queues:
        size = str(each.bytes) if each.bytes else "-"
        name = (each.cluster, each.broker_name, printable(each.topic), str(each.queue_id))
        table.add_row(*name, rate_text(each.put_rate), str(each.depth), size)
    return table


def _lags(lags: Iterable[admin.LiveLag]) -> Table:
    numbers = ("QUEUE", "LAG", "OLDEST")
    table = new_table("CLUSTER", "BROKER", "GROUP", "TOPIC", *numbers, right=numbers)
    for each in lags:
        oldest = duration_text(seconds_of(each.oldest_unread)) if each.HasField("oldest_unread") else "-"
        name = (each.cluster, each.broker_name, printable(each.group), printable(each.topic), str(each.queue_id))
        table.add_row(*name, str(each.lag), oldest)
    return table


def _measured(brokers: Sequence[admin.LiveBroker], measured: int, count: int) -> Iterator[Text]:
    without = [each for each in brokers if each.problem]
    for each in without[:MAX_PROBLEMS]:
        yield Text(f"NOT MEASURED: {each.cluster}/{each.broker_name}: {printable(each.problem)}", style=WARNING)
    if count - measured > MAX_PROBLEMS:
        yield Text(f"NOT MEASURED: {count - measured - MAX_PROBLEMS} more", style=WARNING)
    ages = [seconds_of(each.age) for each in brokers if not each.problem]
    oldest = f", the oldest {duration_text(max(ages))} ago" if ages else ""
    yield Text(f"{measured} of {counted(count, 'broker')} measured{oldest}", style="dim")
