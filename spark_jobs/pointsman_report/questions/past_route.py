"""``route-at``: what the route of a topic was at a moment: what each name server answered, and if they agreed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from pointsman_report.questions.replay import GroupView, Replay, ReplicaView
from pointsman_report.questions.topic_history import Group, Life, Queues, Source, Story, days_before, told_of
from pointsman_report.report.formatting import printable

ROUTE, UNKNOWN_TOPIC, NOBODY_WATCHED = "route", "unknown topic at that time", "nobody watched then"
NOT_READ = "nothing was read of that time"


def rfc3339(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def said_at(moment: datetime, zone: ZoneInfo, *, day: bool = False) -> str:
    """To the second; with the day and the zone's name where a line begins with it."""
    local = moment.astimezone(zone)
    return f"{local:%Y-%m-%d %H:%M:%S %Z}" if day else f"{local:%d %b %H:%M:%S}"


@dataclass(frozen=True, slots=True)
class NodeView:
    """A name server that answered at the moment."""

    node: str
    boot_id: str
    state: str
    """WARMING, READY or DRAINING."""
    last_row_at: datetime
    rows_missing: int


@dataclass(frozen=True, slots=True)
class View:
    """How these name servers saw a broker name."""

    nodes: tuple[str, ...]
    seen: GroupView


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """A broker name that had the topic, or had had it shortly before."""

    group: Group
    views: tuple[View, ...]
    """What most name servers saw comes first."""

    @property
    def agreed(self) -> bool:
        """Whether clients were told the same, whomever they asked."""
        return len({view.seen.offered() for view in self.views}) == 1

    @property
    def is_routed(self) -> bool:
        return any(view.seen.queues is not None for view in self.views)


@dataclass(frozen=True, slots=True)
class RouteAnswer:
    """The route of a topic at a moment."""

    topic: str
    at: datetime
    cluster: str | None
    nodes: tuple[NodeView, ...]
    brokers: tuple[BrokerAnswer, ...]
    last_row_at: datetime | None
    """Of the days that were read, about whomever."""
    of_warehouse: bool

    @property
    def outcome(self) -> str:
        if not self.nodes:
            return NOT_READ if self.last_row_at is None or self.last_row_at < self.at else NOBODY_WATCHED
        return ROUTE if any(broker.is_routed for broker in self.brokers) else UNKNOWN_TOPIC

    @property
    def exit_code(self) -> int:
        agreed = all(broker.agreed for broker in self.brokers)
        return 0 if self.outcome == ROUTE and agreed else 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "cluster": self.cluster,
            "at": rfc3339(self.at),
            "outcome": self.outcome,
            "last_row_at": rfc3339(self.last_row_at),
            "name_servers": [
                {
                    "node": node.node,
                    "boot_id": node.boot_id,
                    "state": node.state,
                    "last_row_at": rfc3339(node.last_row_at),
                    "rows_missing": node.rows_missing,
                }
                for node in self.nodes
            ],
            "brokers": [_broker_as_dict(broker) for broker in self.brokers],
        }

    def text(self, zone: ZoneInfo) -> str:
        lines = [f"Route of {printable(self.topic)} at {said_at(self.at, zone, day=True)} ({rfc3339(self.at)})"]
        if self.outcome != ROUTE:
            lines.append(f"{self.outcome}: {_why_none(self, zone)}")
        for broker in self.brokers:
            lines += _broker_lines(broker, zone)
        lines += [_node_line(node, zone) for node in self.nodes]
        return "\n".join(lines)


def _why_none(answer: RouteAnswer, zone: ZoneInfo) -> str:
    if answer.outcome == NOT_READ:
        return _where_it_ends(answer, zone)
    if answer.outcome == NOBODY_WATCHED:
        return "no name server wrote history at that moment"
    return "no broker that a name server knew had it" if not answer.brokers else "no broker that had it was in a route"


def _where_it_ends(answer: RouteAnswer, zone: ZoneInfo) -> str:
    end, source = answer.last_row_at, "warehouse" if answer.of_warehouse else "history"
    said = "holds nothing of that day and the day before" if end is None else f"ends at {said_at(end, zone, day=True)}"
    cure = "; ask with --history DIR, or run pointsman-report ingest first" if answer.of_warehouse else ""
    return f"the {source} {said}{cure}"


def _broker_as_dict(broker: BrokerAnswer) -> dict[str, Any]:
    cluster, name = broker.group
    return {
        "cluster": cluster,
        "broker_name": name,
        "agreed": broker.agreed,
        "views": [
            {
                "nodes": list(view.nodes),
                "queues": _queues_as_dict(view.seen.queues),
                "write_permission_wiped": view.seen.wiped,
                "topic_deleted": view.seen.hidden,
                "replicas": [
                    {
                        "broker_id": one.broker_id,
                        "addr": one.addr,
                        "state": one.state,
                        "planned": one.planned,
                        "routed": one.is_routed,
                        "since": rfc3339(one.since),
                        "event": one.event,
                        "reason": one.reason,
                        "told_at": rfc3339(one.told_at),
                        "told_by": one.told_by,
                    }
                    for one in view.seen.replicas
                ],
            }
            for view in broker.views
        ],
    }


def _queues_as_dict(queues: Queues | None) -> dict[str, int] | None:
    return None if queues is None else dict(zip(("read_queues", "write_queues", "perm"), queues, strict=True))


def _broker_lines(broker: BrokerAnswer, zone: ZoneInfo) -> list[str]:
    name = printable("/".join(broker.group))
    head = name if broker.agreed else f"{name}: the name servers did not agree"
    lines = [head]
    for view in broker.views:
        seen = view.seen
        notes = [" (write permission wiped)"] * seen.wiped + [" (topic deleted, until its next version)"] * seen.hidden
        lines.append(f"  {_said_queues(seen.queues)}{''.join(notes)}, said {', '.join(map(printable, view.nodes))}")
        for one in seen.replicas:
            because = f"{one.event}, {one.reason}" if one.reason else one.event
            routed = "" if one.is_routed else "not in the route, "
            told = f"{routed}{_said_state(one)}, {_said_since(one, zone)}"
            told += f" (last row: {because}, {printable(one.told_by)} at {said_at(one.told_at, zone)})"
            lines.append(f"    {one.broker_id}  {printable(one.addr or '?')}  {told}")
    return lines


_STATES = {"GONE": "removed", "OUT": "its probe fails"}


def _said_state(one: ReplicaView) -> str:
    planned = " as planned" if one.state == "GONE" else " (planned)"
    return f"{_STATES.get(one.state, one.state)}{planned if one.planned else ''}"


def _said_since(one: ReplicaView, zone: ZoneInfo) -> str:
    if one.since is None:
        return "since when is not known: the name server was restarted"
    return f"since {said_at(one.since, zone)}"


def _said_queues(queues: Queues | None) -> str:
    if queues is None:
        return "no queues in the route"
    read, write, perm = queues
    allowed = "".join(letter if perm & bit else "-" for letter, bit in (("r", 4), ("w", 2)))
    return f"{read} read and {write} write queues, {allowed}"


def _node_line(node: NodeView, zone: ZoneInfo) -> str:
    lost = f"; {node.rows_missing} rows before that are lost" if node.rows_missing else ""
    return f"name server {printable(node.node)}: {node.state}, last row {said_at(node.last_row_at, zone)}{lost}"


def route_at(source: Source, topic: str, at: datetime, *, cluster: str | None) -> RouteAnswer:
    """Answer from the rows of the moment's day and of the day before."""
    at = at.astimezone(UTC)
    days = days_before(at)
    events, windows = source.events(*days), source.windows(*days)
    story = told_of(events, topic, at=at, until=_end_of_day(at), cluster=cluster, windows=windows)
    return route_of(story, topic, at, cluster=cluster, of_warehouse=source.is_warehouse)


def route_of(story: Story, topic: str, at: datetime, *, cluster: str | None, of_warehouse: bool = False) -> RouteAnswer:
    """Play each name server's rows up to the moment, and put side by side what they make."""
    lives = _answering(story.lives, at)
    played = {life: _played(story, topic, life, at) for life in lives}
    keys = sorted({key for replay in played.values() for key in replay.groups if key[1]})
    brokers = tuple(BrokerAnswer(key, _views(key, played)) for key in keys)
    nodes = tuple(NodeView(life.node, life.boot_id, life.state(at), life.last_at, life.missing) for life in lives)
    return RouteAnswer(topic, at, cluster, nodes, brokers, story.last_row_at, of_warehouse)


def _views(key: Group, played: dict[Life, Replay]) -> tuple[View, ...]:
    by_shape: dict[tuple[object, ...], View] = {}
    for life, replay in played.items():
        seen = replay.view(key)
        known = by_shape.get(seen.shape())
        nodes = () if known is None else known.nodes
        by_shape[seen.shape()] = View((*nodes, life.node), seen if known is None else known.seen.joined(seen))
    return tuple(sorted(by_shape.values(), key=lambda view: (-len(view.nodes), view.nodes)))


def _answering(lives: list[Life], at: datetime) -> list[Life]:
    """The lives that answered; of one node the latest. Who still warmed up counts where nobody else was there."""
    latest: dict[str, Life] = {}
    for life in lives:
        if life.watched(at):
            latest[life.node] = max(latest.get(life.node, life), life, key=lambda one: one.first_at)
    ready = [life for life in latest.values() if life.state(at) != "WARMING"]
    return sorted(ready or latest.values(), key=lambda life: life.node)


def _played(story: Story, topic: str, life: Life, at: datetime) -> Replay:
    of_life = [row for row in story.rows if (row.node, row.boot_id) == (life.node, life.boot_id) and row.at <= at]
    own = sorted(of_life, key=lambda row: row.seq)
    before = None
    if any(row.event == "CHECKPOINT" and row.reason == "START" for row in own):
        earlier = [one for one in story.lives if one.node == life.node and one.first_at < life.first_at]
        previous = max(earlier, key=lambda one: one.first_at, default=None)
        before = None if previous is None else _played(story, topic, previous, at)
    return Replay(topic, before).play(own)


def _end_of_day(at: datetime) -> datetime:
    return at.replace(hour=23, minute=59, second=59, microsecond=999_999)
