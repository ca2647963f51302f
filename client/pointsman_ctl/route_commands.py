"""Where topics are: the commands ``route``, ``topics`` and ``clusters``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman.wire.json_document import (
    MASTER_ID,
    Document,
    enum_name,
    to_broker_data_document,
    to_document,
    to_route_document,
)
from pointsman_client import AbsentBroker, NoBrokerUpError
from pointsman_ctl.answer_layout import ALARM, WARNING, new_table, state_cell
from pointsman_ctl.command_options import in_cluster, read_name
from pointsman_ctl.invocation import Invocation, pass_invocation
from pointsman_ctl.name_server_queries import clusters_of, route_of, topics_of
from pointsman_ctl.operator_texts import perm_words, printable, utc_of


@click.command()
@click.argument("topic", callback=read_name)
@in_cluster
@click.option("--zone", default="", metavar="NAME", help="Only groups of this zone, and those without a master.")
@pass_invocation
def route(invocation: Invocation, topic: str, cluster: str, zone: str) -> None:
    """Show where TOPIC is: its queues and their brokers.

    PERM says what clients may do: r read, w write. A group without a broker of id 0 has NO MASTER: it can be read and
    not be written. A topic whose brokers are all down has an empty route: it shows why each is down and since when, and
    exits 1. With --output json the keys are those of RocketMQ's TopicRouteData, and more.

    \b
    JSON: topic, orderTopicConf, filterServerTable,
          revision.{boot, counter, digest},
          queueDatas[].{cluster, brokerName, readQueueNums, writeQueueNums,
            perm, topicSysFlag},
          brokerDatas[].{cluster, brokerName, brokerAddrs, zoneName,
            enableActingMaster, conditions[], replicas[].{brokerId, addr,
            haAddr, agentAddr, state, filterServers[]}},
          absentBrokers[].{cluster, brokerName, brokerId, brokerAddr,
            isRegistered, reason, since}, empty while a broker is up

    \b
    Examples:
      pointsmanctl route orders
      pointsmanctl route orders --cluster DefaultCluster --zone z1
      pointsmanctl --output json route orders | jq '.brokerDatas[].brokerAddrs'
    """

    answer = invocation.ask_first(
        lambda server, deadline: route_of(server, deadline, topic, cluster=cluster, zone=zone)
    )
    invocation.show(to_route_document(answer), route_parts(answer))
    if answer.absent_brokers:
        raise NoBrokerUpError(topic, [_absent(broker) for broker in answer.absent_brokers])


@click.command()
@in_cluster
@pass_invocation
def topics(invocation: Invocation, cluster: str) -> None:
    """List the names of all topics, one a line.

    A name server that has just started says on standard error that the list may not be whole yet.

    \b
    JSON: topics[], nodeState

    \b
    Examples:
      pointsmanctl topics
      pointsmanctl topics --cluster DefaultCluster | grep '^%RETRY%'
    """
    answer = invocation.ask_first(lambda server, deadline: topics_of(server, deadline, cluster=cluster))
    document = to_document(answer)
    del document["nextPageToken"]
    # One a line and nothing else, so that they can be piped on.
    invocation.show(document, map(Text, answer.topics))
    invocation.warn_if_warming(answer.node_state)


@click.command()
@pass_invocation
def clusters(invocation: Invocation) -> None:
    """Show the clusters and their replica groups.

    A name server that has just started says on standard error that the list may not be whole yet.

    \b
    JSON: nodeState, clusters[].{cluster, brokerDatas[].{as in route}}

    \b
    Examples:
      pointsmanctl clusters
      pointsmanctl -o json clusters | jq '.clusters[].brokerDatas[].conditions'
    """
    answer = invocation.ask_first(clusters_of)
    invocation.show(to_clusters_document(answer), clusters_parts(answer.clusters))
    invocation.warn_if_warming(answer.node_state)


def _absent(broker: route_service_pb2.AbsentBroker) -> AbsentBroker:
    who = broker.identity
    since = utc_of(broker.since) if broker.HasField("since") else None
    return AbsentBroker(
        who.cluster, who.broker_name, who.broker_id, who.addr, broker.is_registered, broker.reason, since
    )


def to_clusters_document(answer: route_service_pb2.GetClusterInfoResponse) -> Document:
    """Render the clusters, and whether the server knew all."""
    return {
        "nodeState": enum_name(answer, "node_state"),
        "clusters": [
            {
                "cluster": cluster.cluster,
                "brokerDatas": [to_broker_data_document(data) for data in cluster.broker_datas],
            }
            for cluster in answer.clusters
        ],
    }


def route_parts(route: route_service_pb2.TopicRoute) -> Iterable[RenderableType]:
    """Show where a topic is, or why none of its brokers is up."""
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
        yield Text("brokers have it, but none in the cluster and zone that was asked for", style=WARNING)
        return
    queues = new_table("CLUSTER", "BROKER", "READ", "WRITE", "PERM", right=("READ", "WRITE"))
    for data in route.queue_datas:
        counts = (str(data.read_queue_nums), str(data.write_queue_nums))
        queues.add_row(data.cluster, data.broker_name, *counts, perm_words(data.perm))
    yield queues
    yield ""
    yield _group_table(route.broker_datas)
    if route.order_topic_conf:
        yield ""
        yield Text(f"order topic: {printable(route.order_topic_conf)}")


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
        yield f"NO MASTER, {data.replicas[0].broker_id} ACTS" if data.acting_master else "NO MASTER"


COMMANDS = (route, topics, clusters)
