"""The route of a topic at a moment, as returned by each name server."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from pointsman.history.replay import GroupView, Replay, ReplicaView
from pointsman.history.topic_history import Group, HistoryRow, NameServerRun, Queues, TopicHistory
from pointsman.names import printable

ROUTE, UNKNOWN_TOPIC, NO_DATA = "route", "unknown topic at that time", "no data for that time"
NOT_READ = "no history was read for that time"


def rfc3339(moment: datetime | None) -> str | None:
    """Format a time in UTC with milliseconds."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_time(moment: datetime, zone: ZoneInfo, *, day: bool = False) -> str:
    """Format a time to the second; ``day``: with the year and the zone's name."""
    local = moment.astimezone(zone)
    return f"{local:%Y-%m-%d %H:%M:%S %Z}" if day else f"{local:%d %b %H:%M:%S}"


@dataclass(frozen=True, slots=True)
class NodeView:
    """A name server that was running at the moment."""

    node: str
    boot_id: str
    state: str
    """WARMING, READY or DRAINING."""
    last_row_at: datetime
    rows_missing: int
    rows_back_at: datetime | None = None
    """If rows of that moment are missing, the time of the first one after it."""


@dataclass(frozen=True, slots=True)
class View:
    """A broker name as seen by these name servers."""

    nodes: tuple[str, ...]
    seen: GroupView


@dataclass(frozen=True, slots=True)
class BrokerRoute:
    """The route entry of a broker name that had the topic at the moment or shortly before."""

    group: Group
    views: tuple[View, ...]
    """The view of most name servers comes first."""

    @property
    def agreed(self) -> bool:
        """Whether all name servers whose view is known returned the same to clients."""
        return len({view.seen.offered() for view in self.views if view.seen.is_known}) <= 1

    @property
    def is_routed(self) -> bool:
        return any(view.seen.queues is not None for view in self.views)


@dataclass(frozen=True, slots=True)
class RouteResult:
    """The route of a topic at a moment."""

    topic: str
    at: datetime
    cluster: str | None
    nodes: tuple[NodeView, ...]
    brokers: tuple[BrokerRoute, ...]
    last_row_at: datetime | None
    """Time of the last row of the days read, of any broker."""
    of_tables: bool = False
    """Whether it was read from a warehouse ..."""
    of_files: bool = True
    """... and from raw history files."""

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> RouteResult:
        """Read what `as_dict` returns, after a way as JSON: numbers may be floats."""
        return cls(
            document["topic"],
            datetime.fromisoformat(document["at"]),
            document["cluster"],
            tuple(_node_of(node) for node in document["name_servers"]),
            tuple(
                BrokerRoute(
                    (broker["cluster"], broker["broker_name"]),
                    tuple(View(tuple(view["nodes"]), _group_view_of(view)) for view in broker["views"]),
                )
                for broker in document["brokers"]
            ),
            _moment(document["last_row_at"]),
        )

    @property
    def outcome(self) -> str:
        if not self.nodes:
            return NOT_READ if self.last_row_at is None or self.last_row_at < self.at else NO_DATA
        if any(broker.is_routed for broker in self.brokers):
            return ROUTE
        return UNKNOWN_TOPIC if all(node.rows_back_at is None for node in self.nodes) else NO_DATA

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
                    "rows_back_at": rfc3339(node.rows_back_at),
                }
                for node in self.nodes
            ],
            "brokers": [_broker_as_dict(broker) for broker in self.brokers],
        }

    def text(self, zone: ZoneInfo) -> str:
        lines = [f"Route of {printable(self.topic)} at {format_time(self.at, zone, day=True)} ({rfc3339(self.at)})"]
        if self.outcome != ROUTE:
            lines.append(f"{self.outcome}: {explanation_of(self, zone)}")
        for broker in self.brokers:
            lines += _broker_lines(broker, zone)
        lines += [_node_line(node, zone) for node in self.nodes]
        return "\n".join(lines)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _node_of(node: Mapping[str, Any]) -> NodeView:
    missing, back_at = int(node["rows_missing"]), _moment(node["rows_back_at"])
    return NodeView(
        node["node"], node["boot_id"], node["state"], datetime.fromisoformat(node["last_row_at"]), missing, back_at
    )


def _group_view_of(view: Mapping[str, Any]) -> GroupView:
    queues = view["queues"]
    return GroupView(
        None if queues is None else (int(queues["read_queues"]), int(queues["write_queues"]), int(queues["perm"])),
        tuple(
            ReplicaView(
                int(one["broker_id"]),
                one["addr"],
                one["state"],
                one["planned"],
                _moment(one["since"]),
                one["event"],
                one["reason"],
                datetime.fromisoformat(one["recorded_at"]),
                one["recorded_by"],
            )
            for one in view["replicas"]
        ),
        wiped=view["write_permission_wiped"],
        hidden=view["topic_deleted"],
        is_known=view["known"],
    )


def explanation_of(result: RouteResult, zone: ZoneInfo) -> str:
    """Explain an outcome other than a route."""
    if result.outcome == NOT_READ:
        return _extent_text(result, zone)
    if result.outcome == NO_DATA:
        return "no name server was writing history at that moment, or its rows are missing"
    return "no known broker had it" if not result.brokers else "no broker that had it was routed"


def _extent_text(result: RouteResult, zone: ZoneInfo) -> str:
    end, source = result.last_row_at, "warehouse" if result.of_tables else "history"
    extent = (
        "has no rows of that day and the day before" if end is None else f"ends at {format_time(end, zone, day=True)}"
    )
    if not result.of_tables:
        return f"the {source} {extent}"
    if result.of_files:
        return f"the {source}, with the files that it has not read, {extent}"
    return f"the {source} {extent}; use --history DIR to read the name servers' files too"


def _broker_as_dict(broker: BrokerRoute) -> dict[str, Any]:
    cluster, name = broker.group
    return {
        "cluster": cluster,
        "broker_name": name,
        "agreed": broker.agreed,
        "views": [
            {
                "nodes": list(view.nodes),
                "known": view.seen.is_known,
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
                        "recorded_at": rfc3339(one.recorded_at),
                        "recorded_by": one.recorded_by,
                    }
                    for one in view.seen.replicas
                ],
            }
            for view in broker.views
        ],
    }


def _queues_as_dict(queues: Queues | None) -> dict[str, int] | None:
    return None if queues is None else dict(zip(("read_queues", "write_queues", "perm"), queues, strict=True))


def _broker_lines(broker: BrokerRoute, zone: ZoneInfo) -> list[str]:
    name = printable("/".join(broker.group))
    head = name if broker.agreed else f"{name}: the name servers disagreed"
    lines = [head]
    for view in broker.views:
        seen = view.seen
        notes = [" (write permission wiped)"] * seen.wiped + [" (topic deleted until its next version)"] * seen.hidden
        nodes = ", ".join(map(printable, view.nodes))
        if not seen.is_known:
            lines.append(f"  unknown, because rows are missing: {nodes}")
            continue
        lines.append(f"  {_queues_text(seen.queues)}{''.join(notes)}, according to {nodes}")
        for one in seen.replicas:
            because = f"{one.event}, {one.reason}" if one.reason else one.event
            routed = "" if one.is_routed else "not routed, "
            text = f"{routed}{_state_text(one)}, {_since_text(one, zone)}"
            text += f" (last row: {because}, {printable(one.recorded_by)} at {format_time(one.recorded_at, zone)})"
            lines.append(f"    {one.broker_id}  {printable(one.addr or '?')}  {text}")
    return lines


_STATES = {"GONE": "removed", "OUT": "probe fails"}


def _state_text(one: ReplicaView) -> str:
    planned = " as planned" if one.state == "GONE" else " (planned)"
    return f"{_STATES.get(one.state, one.state)}{planned if one.planned else ''}"


def _since_text(one: ReplicaView, zone: ZoneInfo) -> str:
    if one.since is None:
        return "since an unknown time (the name server was restarted)"
    return f"since {format_time(one.since, zone)}"


def _queues_text(queues: Queues | None) -> str:
    if queues is None:
        return "no queues in the route"
    read, write, perm = queues
    allowed = "".join(letter if perm & bit else "-" for letter, bit in (("r", 4), ("w", 2)))
    return f"{read} read and {write} write queues, {allowed}"


def _node_line(node: NodeView, zone: ZoneInfo) -> str:
    lost = f"; {node.rows_missing} earlier rows are lost" if node.rows_missing else ""
    back = "" if node.rows_back_at is None else f", next row {format_time(node.rows_back_at, zone)}: rows are missing"
    last = format_time(node.last_row_at, zone)
    return f"name server {printable(node.node)}: {node.state}, last row {last}{back}{lost}"


def route_of(history: TopicHistory, topic: str, at: datetime, *, cluster: str | None) -> RouteResult:
    """Replay each name server's rows up to the moment, and compare the results."""
    runs = _serving(history.runs, at)
    replays = {run: _replayed(history, topic, run, at) for run in runs}
    keys = sorted({key for replay in replays.values() for key in replay.groups if key[1]})
    following = {run: _following(history, run, at) for run in runs if run.hole_to_at is not None}
    brokers = tuple(BrokerRoute(key, _views(key, replays, following)) for key in keys)
    nodes = tuple(
        NodeView(run.node, run.boot_id, run.state(at), run.last_at, run.missing, run.hole_to_at) for run in runs
    )
    return RouteResult(topic, at, cluster, nodes, brokers, history.last_row_at)


Following = dict[tuple[Group, int], HistoryRow]
"""The first row about each replica after the moment."""


def _following(history: TopicHistory, run: NameServerRun, at: datetime) -> Following:
    found: Following = {}
    later = (row for row in history.rows if (row.node, row.boot_id) == (run.node, run.boot_id) and row.at > at)
    for row in sorted(later, key=lambda row: row.seq):
        if row.broker_id is not None and row.state is not None:
            found.setdefault((row.group, row.broker_id), row)
    return found


def _seen(key: Group, run: NameServerRun, replay: Replay, following: Following | None) -> GroupView:
    """The view of a name server; unknown if a state of it may have changed in missing rows."""
    if following is not None:
        group = replay.groups.get(key)
        replicas = {} if group is None else group.replicas
        is_known = all(run.knows(one.last, following.get((key, one.broker_id))) for one in replicas.values())
        if not is_known or not replicas:
            return GroupView(None, (), is_known=False)
    return replay.view(key)


def _views(
    key: Group, replays: dict[NameServerRun, Replay], following: dict[NameServerRun, Following]
) -> tuple[View, ...]:
    return _side_by_side((run.node, _seen(key, run, replay, following.get(run))) for run, replay in replays.items())


def _side_by_side(seen_by: Iterable[tuple[str, GroupView]]) -> tuple[View, ...]:
    """The different views of a broker name, each with the name servers that had it."""
    by_shape: dict[tuple[object, ...], View] = {}
    for node, seen in seen_by:
        known = by_shape.get(seen.shape())
        nodes = () if known is None else known.nodes
        by_shape[seen.shape()] = View((*nodes, node), seen if known is None else known.seen.joined(seen))
    return tuple(sorted(by_shape.values(), key=lambda view: (-len(view.nodes), view.nodes)))


def merged(results: Sequence[RouteResult]) -> RouteResult:
    """Return the answers of several name servers to one question side by side, as if one history had all their rows."""
    nodes = {node.node: node for result in results for node in result.nodes}
    ready = sorted(name for name, node in nodes.items() if node.state != "WARMING") or sorted(nodes)
    seen: dict[Group, dict[str, GroupView]] = defaultdict(dict)
    for broker in (broker for result in results for broker in result.brokers):
        for view in broker.views:
            seen[broker.group] |= dict.fromkeys(view.nodes, view.seen)
    # A name server that does not name a broker did not know it, unless its rows of that time are missing.
    unnamed = {name: GroupView(None, (), is_known=nodes[name].rows_back_at is None) for name in ready}
    brokers = tuple(
        BrokerRoute(group, _side_by_side((name, views.get(name, unnamed[name])) for name in ready))
        for group, views in sorted(seen.items())
        if not views.keys().isdisjoint(ready)
    )
    first = results[0]
    last_row_at = max((each.last_row_at for each in results if each.last_row_at is not None), default=None)
    return RouteResult(first.topic, first.at, first.cluster, tuple(nodes[name] for name in ready), brokers, last_row_at)


def _serving(runs: list[NameServerRun], at: datetime) -> list[NameServerRun]:
    """The runs that served at the moment, the latest of each node. Runs in warm-up count only if no other was ready."""
    latest: dict[str, NameServerRun] = {}
    for run in runs:
        if run.watched(at):
            latest[run.node] = max(latest.get(run.node, run), run, key=lambda one: one.first_at)
    ready = [run for run in latest.values() if run.state(at) != "WARMING"]
    return sorted(ready or latest.values(), key=lambda run: run.node)


def _replayed(history: TopicHistory, topic: str, run: NameServerRun, at: datetime) -> Replay:
    of_run = [row for row in history.rows if (row.node, row.boot_id) == (run.node, run.boot_id) and row.at <= at]
    own = sorted(of_run, key=lambda row: row.seq)
    before = None
    if any(row.event == "CHECKPOINT" and row.reason == "START" for row in own):
        earlier = [one for one in history.runs if one.node == run.node and one.first_at < run.first_at]
        previous = max(earlier, key=lambda one: one.first_at, default=None)
        before = None if previous is None else _replayed(history, topic, previous, at)
    return Replay(topic, before).play(own)
