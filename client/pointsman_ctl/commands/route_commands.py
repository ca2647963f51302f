"""Routes: the commands ``route``, ``topics`` and ``clusters``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pointsman.group_topics import is_group_topic
from pointsman.names import printable
from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman.wire.json_document import (
    MASTER_ID,
    Document,
    enum_name,
    to_broker_data_document,
    to_document,
    to_route_document,
)
from pointsman.wire.operator_texts import logical_queues_text, perm_text, utc_of
from pointsman_client import AbsentBroker, NoBrokerUpError
from pointsman_ctl.commands.past_commands import past_route
from pointsman_ctl.options.command_options import in_cluster, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.moment_options import at_option
from pointsman_ctl.options.name_completion import complete_topics
from pointsman_ctl.output.error_report import EXIT_OK
from pointsman_ctl.output.output_layout import ALARM, WARNING, new_table, state_cell


@click.command()
@click.argument("topic", callback=read_name, shell_complete=complete_topics)
@in_cluster
@click.option("--zone", default="", metavar="NAME", help="Only brokers of this zone, and those without a master.")
@at_option
@pass_invocation
def route(invocation: Invocation, topic: str, cluster: str, zone: str, at: datetime | None) -> int:
    """Show the queues and brokers of TOPIC.

    Queries the first server in the list that responds. PERM: r readable, w writable. WEIGHT: messages for each queue
    while others get one, shown if it is not 1 everywhere. A broker name without a broker of id 0 has NO MASTER: it can
    be read but not written. If all brokers of the topic are down, it shows why and since when, and exits 1. The JSON
    has the keys of RocketMQ's TopicRouteData, and more.

    With --at, the route as all servers listed returned it at that time, from their history, side by side; exits 1 if
    there was none, they disagreed, or a server failed. JSON then: as of `pointsman-report route-at`, and nodes[].

    \b
    JSON: topic, orderTopicConf, filterServerTable,
          revision.{boot, counter, digest},
          queueDatas[].{cluster, brokerName, readQueueNums, writeQueueNums,
            perm, topicSysFlag, queueWeight},
          brokerDatas[].{cluster, brokerName, brokerAddrs, zoneName,
            enableActingMaster, conditions[], replicas[].{brokerId, addr,
            haAddr, agentAddr, state, filterServers[]}},
          absentBrokers[].{cluster, brokerName, brokerId, brokerAddr,
            isRegistered, reason, since}, empty while a broker is up,
          staticTopicMappings[].{cluster, brokerName, scope, totalQueues,
            epoch, dirty, logicalQueueIds[], physicalQueueIds[]}

    \b
    Examples:
      pointsmanctl route orders
      pointsmanctl route orders --cluster DefaultCluster --zone z1
      pointsmanctl --namesrv ns1:9876,ns2:9876 route orders --at 2026-11-27T03:12Z
      pointsmanctl --output json route orders | jq '.brokerDatas[].brokerAddrs'
    """
    if at is not None:
        if zone:
            raise click.UsageError("--zone is not for --at: the history has the routes of all zones")
        return past_route(invocation, topic, cluster, at)
    response = invocation.query_first(
        lambda server, deadline: server.route(topic, deadline, cluster=cluster, zone=zone)
    )
    invocation.show(to_route_document(response), route_parts(response))
    if response.absent_brokers:
        raise NoBrokerUpError(topic, [_absent(broker) for broker in response.absent_brokers])
    return EXIT_OK


@click.command()
@in_cluster
@click.option("--system", "with_system", is_flag=True, help="List retry topics and dead letters of groups, too.")
@pass_invocation
def topics(invocation: Invocation, cluster: str, *, with_system: bool) -> None:
    """List topic names, one per line.

    Without the retry topics (%RETRY%GROUP) and dead letters (%DLQ%GROUP) of consumer groups. Queries the first server
    in the list that responds. A WARMING server adds a warning that the list may be incomplete.

    \b
    JSON: topics[], nodeState

    \b
    Examples:
      pointsmanctl topics
      pointsmanctl topics --cluster DefaultCluster --system | grep '^%DLQ%'
    """
    response = invocation.query_first(lambda server, deadline: server.topics(deadline, cluster=cluster))
    document = to_document(response)
    del document["nextPageToken"]
    document["topics"] = shown = [each for each in response.topics if with_system or not is_group_topic(each)]
    # Nothing else, so that the output can be piped.
    invocation.show(document, map(Text, shown))
    invocation.warn_if_warming(response.node_state)


@click.command()
@pass_invocation
def clusters(invocation: Invocation) -> None:
    """List clusters and their brokers.

    Queries the first server in the list that responds. A WARMING server adds a warning that the list may be incomplete.

    \b
    JSON: nodeState, clusters[].{cluster, brokerDatas[].{as in route}}

    \b
    Examples:
      pointsmanctl clusters
      pointsmanctl -o json clusters | jq '.clusters[].brokerDatas[].conditions'
    """
    response = invocation.query_first(lambda server, deadline: server.clusters(deadline))
    invocation.show(to_clusters_document(response), clusters_parts(response.clusters))
    invocation.warn_if_warming(response.node_state)


def _absent(broker: route_service_pb2.AbsentBroker) -> AbsentBroker:
    who = broker.identity
    since = utc_of(broker.since) if broker.HasField("since") else None
    return AbsentBroker(
        who.cluster, who.broker_name, who.broker_id, who.addr, broker.is_registered, broker.reason, since
    )


def to_clusters_document(response: route_service_pb2.GetClusterInfoResponse) -> Document:
    """Render the clusters and the state of the server."""
    return {
        "nodeState": enum_name(response, "node_state"),
        "clusters": [
            {
                "cluster": cluster.cluster,
                "brokerDatas": [to_broker_data_document(data) for data in cluster.broker_datas],
            }
            for cluster in response.clusters
        ],
    }


def route_parts(route: route_service_pb2.TopicRoute) -> Iterable[RenderableType]:
    """Show the queues and brokers of a topic, or why none of its brokers is up."""
    if route.absent_brokers:
        table = new_table("CLUSTER", "BROKER", "ID", "ADDR", "STATE", "REASON", "SINCE", right=("ID",))
        for broker in map(_absent, route.absent_brokers):
            state = "OUT" if broker.is_registered else "GONE"
            since = f"{broker.since:%Y-%m-%dT%H:%M:%SZ}" if broker.since else "-"
            who = (broker.cluster, broker.broker_name, str(broker.broker_id), broker.addr)
            table.add_row(*map(printable, who), state, printable(broker.reason) or "-", since)
        yield table
        return
    if not (route.queue_datas or route.broker_datas):
        yield Text("no broker in this cluster and zone has the topic; others have it", style=WARNING)
        return
    numbers = ("READ QUEUES", "WRITE QUEUES")
    # Few topics have weights: the column appears with them.
    weighted = any(data.queue_weight > 1 for data in route.queue_datas)
    columns = ("WEIGHT",) if weighted else ()
    queues = new_table("CLUSTER", "BROKER", *numbers, "PERM", *columns, right=(*numbers, *columns))
    for data in route.queue_datas:
        counts = (str(data.read_queue_nums), str(data.write_queue_nums))
        weight = (str(data.queue_weight or 1),) if weighted else ()
        queues.add_row(data.cluster, data.broker_name, *counts, perm_text(data.perm), *weight)
    yield queues
    yield ""
    yield _group_table(route.broker_datas)
    if route.order_topic_conf:
        yield ""
        yield Text(f"order topic: {printable(route.order_topic_conf)}")
    if route.static_topic_mappings:
        yield ""
        yield from _static_topic_parts(route.static_topic_mappings)


def _static_topic_parts(mappings: Sequence[broker_pb2.StaticTopicMapping]) -> Iterable[RenderableType]:
    total = max(mapping.total_queues for mapping in mappings)
    yield Text(f"static topic of {total} logical queues, which clients address instead of those above")
    table = new_table("CLUSTER", "BROKER", "LOGICAL>PHYSICAL QUEUE", "EPOCH", right=("EPOCH",))
    for mapping in mappings:
        table.add_row(mapping.cluster, printable(mapping.broker_name), logical_queues_text(mapping), str(mapping.epoch))
    yield table


def clusters_parts(clusters: Sequence[route_service_pb2.ClusterData]) -> Iterable[RenderableType]:
    """Show the clusters and their groups."""
    if not clusters:
        yield Text("no broker is registered")
        return
    yield _group_table([data for cluster in clusters for data in cluster.broker_datas])


def _group_table(groups: Sequence[broker_pb2.BrokerData]) -> Table:
    has_zones = any(data.zone for data in groups)
    table = new_table("CLUSTER", "BROKER", "ID", "ADDR", "STATE", *(("ZONE",) if has_zones else ()), right=("ID",))
    for data in groups:
        for condition in _conditions(data):
            table.add_row(data.cluster, data.broker_name, "0", "-", Text(condition, style=ALARM))
        for replica in data.replicas:
            zone = (printable(data.zone),) if has_zones else ()
            name = (data.cluster, data.broker_name, str(replica.broker_id))
            table.add_row(*name, printable(replica.addr), state_cell(enum_name(replica, "state")), *zone)
    return table


def _conditions(data: broker_pb2.BrokerData) -> Iterable[str]:
    if not data.replicas:
        yield "NO BROKER"
    elif all(replica.broker_id != MASTER_ID for replica in data.replicas):
        yield f"NO MASTER, {data.replicas[0].broker_id} ACTING" if data.acting_master else "NO MASTER"
