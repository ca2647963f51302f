"""Brokers as name servers see them: the commands ``brokers``, ``flapping`` and ``watchers``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pointsman.names import printable
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.wire.broker_explanation import silence_text
from pointsman.wire.json_document import MASTER_ID, NO_MASTER, Document, enum_name, to_document
from pointsman.wire.operator_texts import (
    counted,
    duration_text,
    earlier_runs_text,
    evidence_text,
    guard_text,
    reading_text,
    reason_text,
)
from pointsman.wire.wire_time import seconds_of
from pointsman_client import ClusterNotFoundError, RequestRejectedError
from pointsman_ctl.options.command_options import in_cluster, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.name_completion import complete_topics
from pointsman_ctl.output.output_layout import ALARM, WARNING, new_table, node_documents, node_parts, state_cell
from pointsman_ctl.servers.name_servers import NodeBrokers
from pointsman_ctl.servers.server_calls import NodeResponse

FLAPPING_ABOVE = 3_000.0
"""Flap penalty above which a broker counts as flapping: ``suppress_above`` of the name server's rules."""
MAX_DEPARTED = 5
"""Departed brokers that are listed for each node; of the others only the number is shown."""


@click.command()
@in_cluster
@pass_invocation
def brokers(invocation: Invocation, cluster: str) -> int:
    """Show every broker's state at each name server.

    REASON is why a broker is not UP, LAST HEARTBEAT the time since then. Lines below the table show failing probes,
    operator settings, flapping brokers, and brokers that departed unplanned. A server that still reads its history
    after a start is marked: the last two may not be complete. Queries all servers listed; exits 1 if one failed.

    \b
    States:
      UP            heartbeats arrive in time
      SUSPECT       heartbeats are missing or its stream broke; still routed
      PROVISIONAL   from the snapshot, no heartbeat since; still routed
      PROTECTED     expired or failing, protected by the guard; still routed
      OUT           registered but not routed: its probe fails

    \b
    JSON: nodes[].{addr, node, nodeState, earlierRuns,
            conditions[].{cluster, brokerName, condition},
            guards[].{as in guard}, gone[].{as in flapping}, brokers[]}
          or {addr, error};
          brokers[].{cluster, brokerName, brokerId, brokerAddr, state,
            generation, haAddr, agentAddr, zone, host, labels,
            brokerVersion, agentVersion, incarnation,
            dataVersion.{stateVersion, timestampMillis, counter}, topicCount,
            bringsTopics, heartbeatIntervalSeconds, expirySeconds,
            registeredAt, silenceSeconds, streamOpen,
            health.{status, detail, evidence, everPassed}, actingMaster,
            reason, planned, stateForSeconds, rule, writeWiped,
            inMaintenance, penalty, selfRegistered,
            alsoAtAddr[].{cluster, brokerName, brokerId, addr}, observed}

    \b
    Examples:
      pointsmanctl brokers
      pointsmanctl --namesrv ns1:9876,ns2:9876 brokers --cluster DefaultCluster
    """
    nodes = invocation.query_every(
        lambda server, deadline: server.brokers(deadline, cluster=cluster, with_departed=True)
    )
    raise_if_not_known(nodes, cluster)
    return invocation.finish(nodes, node_documents(nodes, to_brokers_document), brokers_parts(nodes))


@click.command()
@in_cluster
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, help="Brokers per server.")
@pass_invocation
def flapping(invocation: Invocation, cluster: str, limit: int) -> int:
    """List flapping brokers, the worst first.

    Every outage adds to a broker's PENALTY. Restarts, address changes, recoveries from SUSPECT and late heartbeats add
    less, and do not count as OUTAGES. The penalty halves every hour and does not affect routes. A broker is FLAPPING
    above 3,000, until it is below 1,000. Departed brokers are listed, too. Queries all servers listed; exits 1 if one
    failed.

    \b
    JSON: nodes[].{addr, node, earlierRuns, scores[].{cluster, brokerName,
            brokerId, penalty, flapping, outages, lastEvent,
            lastEventAgoSeconds}} or {addr, error}

    \b
    Examples:
      pointsmanctl flapping
      pointsmanctl flapping --limit 5
      pointsmanctl -o json flapping | jq '.nodes[].scores[] | select(.flapping)'
    """
    request = admin.ListFlappingRequest(cluster=cluster, limit=limit)
    nodes = invocation.query_every(
        lambda server, deadline: server.call(server.admin.ListFlapping, request, deadline=deadline)
    )
    raise_if_not_known(nodes, cluster)
    return invocation.finish(nodes, node_documents(nodes), node_parts(nodes, flapping_parts))


@click.command()
@click.argument("topic", callback=read_name, shell_complete=complete_topics)
@pass_invocation
def watchers(invocation: Invocation, topic: str) -> int:
    """List the clients that watch TOPIC at each server.

    PENDING is the number of changes that the client has not read yet, LAG the age of the oldest of them. Queries all
    servers listed; exits 1 if one failed.

    \b
    JSON: topic, nodes[].{addr, node, total, watchers[].{peer, ageSeconds,
            topics, pending, lagSeconds}} or {addr, error}

    \b
    Examples:
      pointsmanctl watchers orders
      pointsmanctl -o json watchers orders | jq '.nodes[].total'
    """
    request = admin.ListWatchersRequest(topic=topic)
    nodes = invocation.query_every(
        lambda server, deadline: server.call(server.admin.ListWatchers, request, deadline=deadline)
    )
    return invocation.finish(nodes, {"topic": topic, **node_documents(nodes)}, node_parts(nodes, watchers_parts))


def raise_if_not_known(nodes: Sequence[NodeResponse[object]], cluster: str) -> None:
    """Raise ClusterNotFoundError if no server knows the cluster."""
    failures = [node.failure for node in nodes if isinstance(node.failure, RequestRejectedError)]
    if len(failures) == len(nodes) and {failure.details.code for failure in failures} == {ClusterNotFoundError.code}:
        raise ClusterNotFoundError(cluster)


def is_flapping(status: broker_pb2.BrokerStatus) -> bool:
    """Whether a broker is flapping; a single restart or outage is not enough."""
    return round(status.penalty, 6) > FLAPPING_ABOVE


def missing_masters(brokers: Iterable[broker_pb2.BrokerStatus]) -> list[tuple[str, str]]:
    """Return (cluster, broker name) of each group without a master in the routes, sorted."""
    groups: dict[tuple[str, str], bool] = {}
    for status in brokers:
        key = (status.identity.cluster, status.identity.broker_name)
        is_routed_master = status.identity.broker_id == MASTER_ID and status.state != broker_pb2.BROKER_STATE_OUT
        groups[key] = groups.get(key, False) or is_routed_master
    return sorted(key for key, has_master in groups.items() if not has_master)


def brokers_by_state(brokers: Iterable[broker_pb2.BrokerStatus]) -> dict[str, int]:
    """Count brokers by state, in the order of the states."""
    counts = Counter((status.state, enum_name(status, "state")) for status in brokers)
    return {state: counts[number, state] for number, state in sorted(counts)}


def to_brokers_document(response: NodeBrokers) -> Document:
    """Render a node's brokers."""
    return {
        "node": response.node,
        "nodeState": enum_name(response.info, "state"),
        "earlierRuns": enum_name(response.info, "earlier_runs"),
        "brokers": list(map(to_document, response.brokers)),
        "conditions": [
            {"cluster": cluster, "brokerName": broker_name, "condition": NO_MASTER}
            for cluster, broker_name in missing_masters(response.brokers)
        ],
        "guards": list(map(to_document, response.info.guards)),
        "gone": list(map(to_document, response.departed)),
    }


def brokers_parts(nodes: Sequence[NodeResponse[NodeBrokers]]) -> Iterable[RenderableType]:
    """Show the brokers of each node, then problems and operator settings, then their number."""

    def state(response: NodeBrokers) -> str:
        name = enum_name(response.info, "state")
        return "" if name == "READY" else name

    return node_parts(nodes, _brokers_of_node, state=state)


def _brokers_of_node(response: NodeBrokers) -> Iterable[RenderableType]:
    if missing := reading_text(response.info):
        yield Text(missing, style="dim")
    if response.brokers:
        yield _status_table(response.brokers)
        yield from _remarks(response.brokers)
    else:
        yield Text("no broker is listed" if response.info.observed else "no broker is registered")
    if response.info.observed:
        yield from (Text(printable(problem), style=WARNING) for problem in response.info.complaints)
    yield from _departed(response.departed, word="NO LONGER LISTED" if response.info.observed else "DEPARTED")
    clusters = {status.identity.cluster for status in response.brokers}
    yield from guard_lines(guard for guard in response.info.guards if guard.cluster in clusters)
    if response.brokers:
        yield Text(_summary(response.brokers), style="dim")


def guard_lines(guards: Iterable[admin.GuardStatus], *, prefix: str = "") -> Iterable[RenderableType]:
    """Show the guards that are active or not in the mode AUTO."""
    for guard in guards:
        if guard.active or guard.mode != admin.GUARD_MODE_AUTO:
            yield Text(f"{prefix}{guard_text(guard)}", style=ALARM if guard.active else WARNING)


def _remarks(brokers: Sequence[broker_pb2.BrokerStatus]) -> Iterable[RenderableType]:
    for cluster, broker_name in missing_masters(brokers):
        yield Text(f"NO MASTER in {cluster}/{broker_name}: not writable", style=ALARM)
    for status in brokers:
        if status.health.status == broker_pb2.PROBE_STATUS_FAILING:
            detail = printable(status.health.detail) or "no detail"
            yield Text(f"PROBE FAILED of {_who(status)}: {detail} ({evidence_text(status.health)})", style=ALARM)
    yield from _remark("WRITE WIPED", brokers, lambda status: status.write_wiped, _group_name)
    yield from _remark("IN MAINTENANCE", brokers, lambda status: status.in_maintenance, _who)
    flappers = sorted(filter(is_flapping, brokers), key=lambda status: -status.penalty)
    if flappers:
        named = (f"{_who(status)} ({status.penalty:.0f})" for status in flappers)
        yield Text(f"FLAP PENALTY: {', '.join(named)}", style=WARNING)


def _departed(gone: Sequence[admin.FlapScore], *, word: str) -> Iterable[RenderableType]:
    if gone:
        named = [
            f"{score.cluster}/{score.broker_name} {score.broker_id} "
            f"({printable(score.last_event)} {duration_text(seconds_of(score.last_event_ago))} ago)"
            for score in gone[:MAX_DEPARTED]
        ]
        more = f" and {len(gone) - MAX_DEPARTED} more: see `pointsmanctl flapping`" if len(gone) > MAX_DEPARTED else ""
        yield Text(f"{word}: {', '.join(named)}{more}", style=ALARM)


def _remark(
    word: str,
    brokers: Iterable[broker_pb2.BrokerStatus],
    has: Callable[[broker_pb2.BrokerStatus], bool],
    name: Callable[[broker_pb2.BrokerStatus], str],
) -> Iterable[RenderableType]:
    names = dict.fromkeys(name(status) for status in brokers if has(status))
    if names:
        yield Text(f"{word}: {', '.join(names)}", style=WARNING)


def _group_name(status: broker_pb2.BrokerStatus) -> str:
    return f"{status.identity.cluster}/{status.identity.broker_name}"


def _who(status: broker_pb2.BrokerStatus) -> str:
    return f"{_group_name(status)} {status.identity.broker_id}"


def _summary(brokers: Sequence[broker_pb2.BrokerStatus]) -> str:
    clusters = len({status.identity.cluster for status in brokers})
    counts = ", ".join(f"{count} {state}" for state, count in brokers_by_state(brokers).items())
    return f"{counted(len(brokers), 'broker')} in {counted(clusters, 'cluster')}: {counts}"


def _status_table(brokers: Sequence[broker_pb2.BrokerStatus]) -> Table:
    has_reasons = any(status.reason for status in brokers)
    reason = ("REASON",) if has_reasons else ()
    table = new_table(
        *("CLUSTER", "BROKER", "ID", "ADDR", "STATE", *reason, "LAST HEARTBEAT", "TOPICS"),
        right=("ID", "LAST HEARTBEAT", "TOPICS"),
    )
    for status in brokers:
        table.add_row(
            status.identity.cluster,
            status.identity.broker_name,
            str(status.identity.broker_id),
            status.identity.addr,
            state_cell(enum_name(status, "state")),
            *((reason_text(status),) if has_reasons else ()),
            silence_text(status),
            str(status.topic_count),
        )
    return table


def flapping_parts(response: admin.ListFlappingResponse) -> Iterable[RenderableType]:
    """Show a node's penalties, the highest first."""
    if missing := earlier_runs_text(enum_name(response, "earlier_runs")):
        yield Text(missing, style="dim")
    if not response.scores:
        yield Text("no broker has a flap penalty")
        return
    right = ("ID", "PENALTY", "OUTAGES", "EVENT AGE")
    table = new_table("CLUSTER", "BROKER", "ID", "PENALTY", "OUTAGES", "LAST EVENT", "EVENT AGE", "STATUS", right=right)
    for score in response.scores:
        table.add_row(
            score.cluster,
            score.broker_name,
            str(score.broker_id),
            f"{score.penalty:.0f}",
            str(score.outages),
            printable(score.last_event),
            duration_text(seconds_of(score.last_event_ago)),
            Text("FLAPPING", style=ALARM) if score.flapping else "-",
        )
    yield table


def watchers_parts(response: admin.ListWatchersResponse) -> Iterable[RenderableType]:
    """Show the clients that watch a topic at a node."""
    if response.watchers:
        right = ("AGE", "TOPICS", "PENDING", "LAG")
        table = new_table("CLIENT", *right, right=right)
        for watcher in response.watchers:
            table.add_row(
                printable(watcher.peer),
                duration_text(seconds_of(watcher.age)),
                str(watcher.topics),
                str(watcher.pending),
                duration_text(seconds_of(watcher.lag)) if watcher.pending else "-",
            )
        yield table
    more = f", the oldest {len(response.watchers)} shown" if len(response.watchers) < response.total else ""
    yield Text(f"{counted(response.total, 'watcher')}{more}", style="dim")
