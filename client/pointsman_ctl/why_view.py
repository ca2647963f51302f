"""``pointsmanctl why`` for operators: the state of each replica with its rule and evidence, then the timeline. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from google.protobuf.json_format import MessageToDict
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman_client.routes.codec import to_broker_state
from pointsman_client.rpc.wire_time import seconds_of, utc_of
from pointsman_ctl.layout import ALARM, STATE_STYLES, failure_line, node_heading
from pointsman_ctl.node import NodeAnswer
from pointsman_ctl.question import BrokerHistory
from pointsman_ctl.timeline import NOT_ROUTED, Outage, Position, TimelineEvent
from pointsman_ctl.wording import (
    change_words,
    detail_words,
    duration_words,
    evidence_words,
    explanation,
    guard_mode_words,
    outage_words,
    printable,
    reason_words,
    time_words,
)

_FACT_WIDTH = len("heartbeat")


def why_parts(nodes: Sequence[NodeAnswer[BrokerHistory]], *, limit: int, now: datetime) -> Iterable[RenderableType]:
    """Show what each node knows of a broker name; of its events the last ``limit``.

    ``now``: by this machine's clock, UTC, for the length of what still lasts.
    """
    for position, node in enumerate(nodes):
        yield from node_heading(position, node.addr, node.answer.node if node.answer else "")
        if node.answer is None:
            yield failure_line(node)
            continue
        yield from _replicas(node.answer, now)
        yield ""
        events = node.answer.timeline.events[-limit:]
        if events:
            yield from _event_lines(events)
        else:
            yield Text("no event of it is remembered here")


def _replicas(history: BrokerHistory, now: datetime) -> Iterable[RenderableType]:
    for status in history.brokers:
        yield from _replica(status, history, now)
    here = {_position(status) for status in history.brokers}
    gone = {
        position: event
        for position, event in history.timeline.latest.items()
        if event.state == "GONE" and position not in here
    }
    for position, event in gone.items():
        since = time_words(utc_of(event.event_at))
        yield _heading(position, event.identity.addr, "GONE", f"since {since} (UTC)")
        planned = ", planned" if event.planned else ""
        yield _fact("reason", f"{printable(event.event)} {printable(event.reason)}{planned}")
        yield from _outage(history.timeline.outage_of(position), now)
    if not history.brokers and not gone:
        yield Text("no replica of it is registered here")


def _replica(status: broker_pb2.BrokerStatus, history: BrokerHistory, now: datetime) -> Iterable[RenderableType]:
    position, state = _position(status), str(to_broker_state(status.state))
    since = f"for {duration_words(seconds_of(status.state_for))}" if status.HasField("state_for") else "since unknown"
    yield _heading(position, status.identity.addr, state, since)
    yield _fact("rule", printable(status.rule) or "unknown")
    if status.reason:
        yield _fact("reason", reason_words(status))
    yield _fact(
        "heartbeat",
        f"{duration_words(seconds_of(status.silence))} ago; "
        f"sent every {duration_words(seconds_of(status.heartbeat_interval))}, "
        f"expires after {duration_words(seconds_of(status.expiry))}",
    )
    yield _fact(
        "stream", "open" if status.stream_open else "broken" if status.reason == "STREAM_BROKEN" else "not open"
    )
    yield _fact("probe", _probe_words(status.health))
    yield from _outage(history.timeline.outage_of(position), now)
    guard = history.guards.get(status.identity.cluster)
    if status.state == broker_pb2.BROKER_STATE_PROTECTED and guard is not None:
        active = f"active for {duration_words(seconds_of(guard.active_for))}" if guard.active else "no longer active"
        counts = f"{guard.lost} lost, {guard.up} up, baseline {guard.baseline}"
        yield _fact("guard", f"{guard_mode_words(guard.mode)}, {active}: {counts}")
    if status.in_maintenance:
        yield _fact("window", "a maintenance window is open for it")


def _outage(outage: Outage | None, now: datetime) -> Iterable[RenderableType]:
    if outage is None:
        return
    if outage.ended_at is not None:
        yield _fact("outage", f"{outage_words(outage)}; back at {time_words(outage.ended_at)} (UTC)")
        return
    before, least = ("", "") if outage.is_begin_known else ("before ", "at least ")
    planned = "planned" if outage.is_planned else "unplanned"
    lasts = duration_words(max(0.0, (now - outage.began_at).total_seconds()))
    yield _fact("outage", f"for {least}{lasts}, since {before}{time_words(outage.began_at)} (UTC), {planned}")


def _probe_words(health: broker_pb2.BrokerHealth) -> str:
    if health.status == broker_pb2.PROBE_STATUS_UNSPECIFIED:
        return "none"
    words = broker_pb2.ProbeStatus.Name(health.status).removeprefix("PROBE_STATUS_").lower()
    if health.status == broker_pb2.PROBE_STATUS_FAILING:
        words += f", {evidence_words(health)}"
        if health.HasField("ever_passed"):
            words += ", passed before" if health.ever_passed else ", never passed"
    return words + (f": {printable(health.detail)}" if health.detail else "")


def _position(status: broker_pb2.BrokerStatus) -> Position:
    return status.identity.cluster, status.identity.broker_name, status.identity.broker_id


def _heading(position: Position, addr: str, state: str, since: str) -> Text:
    cluster, broker_name, broker_id = position
    heading = Text(f"{cluster}/{broker_name} {broker_id} at {printable(addr)}: ")
    return heading.append(state, style=ALARM if state in NOT_ROUTED else STATE_STYLES.get(state, "")).append(
        f" {since}"
    )


def _fact(name: str, value: str) -> RenderableType:
    return Padding(Text(f"{name.ljust(_FACT_WIDTH)}  {value}"), (0, 0, 0, 4), expand=False)


def _event_lines(events: Sequence[TimelineEvent]) -> Iterable[RenderableType]:
    rows = [("TIME (UTC)", "EVENT", "REASON", "ID", "STATE"), *(_row(step.event) for step in events)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    yield _line(rows[0], widths, style="bold")
    for row, step in zip(rows[1:], events, strict=True):
        yield _line(row, widths, style=STATE_STYLES.get(step.event.state, "") if step.event.state != "UP" else "")
        # An event of a whole group has no address.
        where = ", ".join(filter(None, (step.event.identity.cluster, printable(step.event.identity.addr))))
        sentence = _sentence(step)
        yield Padding(Text(f"{where}: {sentence}" if sentence else where, style="dim"), (0, 0, 0, 4), expand=False)


def _row(event: admin.BrokerEvent) -> tuple[str, ...]:
    return (
        time_words(utc_of(event.event_at)),
        printable(event.event),
        printable(event.reason) or "-",
        str(event.identity.broker_id) if event.identity.addr else "-",
        printable(event.state) or "-",
    )


def _sentence(step: TimelineEvent) -> str:
    event = step.event
    silence = (
        f"last heartbeat {duration_words(seconds_of(event.interval))} before" if event.HasField("interval") else ""
    )
    parts = (
        explanation(event.event, event.reason),
        change_words(step),
        silence,
        detail_words(MessageToDict(event.detail)),
    )
    return "; ".join(part for part in parts if part)


def _line(row: Sequence[str], widths: Sequence[int], *, style: str) -> Text:
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
    return Text("  ".join(cells), style=style)
