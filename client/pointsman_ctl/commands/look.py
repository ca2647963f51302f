"""Look at routes, topics, clusters and brokers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import route_service_pb2
from pointsman_client.core.route import TopicRoute
from pointsman_client.errors import ClusterNotFoundError, NoBrokerUpError, RequestRejectedError, TopicNotFoundError
from pointsman_client.routes.codec import to_topic_route
from pointsman_client.routes.route_document import to_route_document
from pointsman_client.rpc.name_server_link import NameServerLink
from pointsman_ctl import document, node_document, node_table, table
from pointsman_ctl.argument import in_cluster, read_name
from pointsman_ctl.failure import BrokerNotFoundError
from pointsman_ctl.node import NodeAnswer
from pointsman_ctl.question import brokers_of, clusters_of, history_of, topics_of
from pointsman_ctl.settings import Settings, pass_settings
from pointsman_ctl.why_document import to_why_document
from pointsman_ctl.why_view import why_parts


@click.command()
@click.argument("topic", callback=read_name)
@in_cluster
@click.option("--zone", default="", metavar="NAME", help="Only groups of this zone, and those without a master.")
@pass_settings
def route(settings: Settings, topic: str, cluster: str, zone: str) -> None:
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
            enableActingMaster, conditions[], replicas[].{brokerId, brokerAddr,
            haAddr, agentAddr, state, filterServers[]}}; while no broker
          is up absentBrokers[].{cluster, brokerName, brokerId, brokerAddr,
            registered, reason, since}

    \b
    Examples:
      pointsmanctl route orders
      pointsmanctl route orders --cluster DefaultCluster --zone z1
      pointsmanctl --output json route orders | jq '.brokerDatas[].brokerAddrs'
    """

    async def ask(link: NameServerLink, seconds: float) -> TopicRoute:
        answer = await link.call(
            link.routes.GetTopicRoute,
            route_service_pb2.GetTopicRouteRequest(topic=topic, cluster=cluster, zone=zone),
            timeout_seconds=seconds,
            not_found=lambda: TopicNotFoundError(topic, cluster=cluster, zone=zone),
        )
        return to_topic_route(answer.route)

    answer = settings.ask_first(ask)
    settings.show(to_route_document(answer), table.route_parts(answer))
    if answer.absent_brokers:
        raise NoBrokerUpError(topic, answer.absent_brokers)


@click.command()
@in_cluster
@pass_settings
def topics(settings: Settings, cluster: str) -> None:
    """List the names of all topics, one a line.

    A name server that has just started says on standard error that the list may not be whole yet.

    \b
    JSON: topics[], nodeState

    \b
    Examples:
      pointsmanctl topics
      pointsmanctl topics --cluster DefaultCluster | grep '^%RETRY%'
    """
    names, state = settings.ask_first(lambda link, seconds: topics_of(link, seconds, cluster=cluster))
    settings.show(document.to_topics_document(names, state), table.topics_parts(names))
    settings.warn_if_warming(state)


@click.command()
@pass_settings
def clusters(settings: Settings) -> None:
    """Show the clusters and their replica groups.

    A name server that has just started says on standard error that the list may not be whole yet.

    \b
    JSON: nodeState, clusters[].{cluster, brokerDatas[].{as in route}}

    \b
    Examples:
      pointsmanctl clusters
      pointsmanctl -o json clusters | jq '.clusters[].brokerDatas[].conditions'
    """
    answer, state = settings.ask_first(clusters_of)
    settings.show(document.to_clusters_document(answer, state), table.clusters_parts(answer))
    settings.warn_if_warming(state)


@click.command()
@in_cluster
@pass_settings
def brokers(settings: Settings, cluster: str) -> int:
    """Show every broker as each name server sees it.

    REASON is why a broker is not UP, HEARTBEAT the time since its last heartbeat. Below: failing probes, what
    operators set, flapping brokers, and brokers that are GONE unplanned. Queries all servers listed; exits 1 if one
    failed.

    \b
    States:
      UP            heartbeats arrive in time
      SUSPECT       heartbeats are missing or its stream broke; still routed
      PROVISIONAL   from the snapshot, no heartbeat since; still routed
      PROTECTED     expired or failing, but the guard keeps it; still routed
      OUT           registered but not routed: its probe fails

    \b
    JSON: nodes[].{addr, node, nodeState,
            conditions[].{cluster, brokerName, condition},
            guards[].{as in guard}, gone[].{cluster, brokerName, brokerId,
            lastEvent, lastEventAgoSeconds}, brokers[]} or {addr, error};
          brokers[].{cluster, brokerName, brokerId, brokerAddr, state,
            generation, haAddr, agentAddr, zoneName, host, labels,
            brokerVersion, agentVersion, incarnation,
            dataVersion.{stateVersion, timestampMillis, counter}, topicCount,
            bringsTopics, heartbeatIntervalSeconds, expirySeconds,
            registeredAt, silenceSeconds, streamOpen, probe, probeDetail,
            probeEvidence, probeEverPassed, enableActingMaster, reason,
            planned, stateForSeconds, rule, writeWiped, inMaintenance, penalty}

    \b
    Examples:
      pointsmanctl brokers
      pointsmanctl --namesrv ns1:9876,ns2:9876 brokers --cluster DefaultCluster
    """
    nodes = settings.ask_every(lambda link, seconds: brokers_of(link, seconds, cluster=cluster, with_gone=True))
    _raise_if_not_known(nodes, cluster)
    return settings.finish(nodes, document.to_brokers_document(nodes), table.brokers_parts(nodes))


@click.command()
@click.argument("broker", callback=read_name)
@in_cluster
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Events from each server.")
@pass_settings
def why(settings: Settings, broker: str, cluster: str, limit: int) -> int:
    """Show BROKER's state on each server, why, its outages.

    For each replica: its state, the RULE that gave it, and the evidence. Then the timeline, oldest first: what each
    event changed in the routes, and how long each outage lasted. Works for brokers that are GONE, too. Queries all
    servers listed; exits 1 if one failed, or if none remembers the broker.

    \b
    JSON: brokerName, nodes[].{addr, node, brokers[].{as in brokers},
            guards[].{as in guard}, outages[], events[]} or {addr, error};
          outages[].{cluster, brokerName, brokerId, beganAt, beginKnown,
            endedAt, seconds, planned, plannedSeconds, newProcess};
          events[].{eventAt, event, reason, cluster, brokerName, brokerId,
            brokerAddr, generation, incarnation, silenceSeconds, state,
            planned, seq, detail}

    \b
    Examples:
      pointsmanctl why broker-a
      pointsmanctl --namesrv ns1:9876,ns2:9876 why broker-a --limit 5
      pointsmanctl -o json why broker-a | jq '.nodes[].outages'
    """
    nodes = settings.ask_every(lambda link, seconds: history_of(link, seconds, cluster=cluster, broker_name=broker))
    if all(node.answer is not None and not (node.answer.brokers or node.answer.timeline.events) for node in nodes):
        raise BrokerNotFoundError(broker, cluster)
    return settings.finish(
        nodes, to_why_document(broker, nodes, limit=limit), why_parts(nodes, limit=limit, now=datetime.now(UTC))
    )


@click.command()
@in_cluster
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, help="Brokers from each server.")
@pass_settings
def flapping(settings: Settings, cluster: str, limit: int) -> int:
    """Show which brokers come and go, the worst first.

    Each time out of the routes adds to a broker's PENALTY, and so, without being one of the OUTAGES, does each restart,
    move, return from suspicion and late beat. It halves with each hour, and routes do not depend on it. A broker is
    FLAPPING from above 3,000 until below 1,000. Brokers that are gone are listed, too. Asks all servers listed; exits 1
    if one did not answer.

    \b
    JSON: nodes[].{addr, node, scores[].{cluster, brokerName, brokerId, penalty,
            flapping, outages, lastEvent, lastEventAgoSeconds}}
          or {addr, error}

    \b
    Examples:
      pointsmanctl flapping
      pointsmanctl flapping --limit 5
      pointsmanctl -o json flapping | jq '.nodes[].scores[] | select(.flapping)'
    """
    request = admin.ListFlappingRequest(cluster=cluster, limit=limit)
    nodes = settings.ask_every(
        lambda link, seconds: link.call(link.admin.ListFlapping, request, timeout_seconds=seconds)
    )
    _raise_if_not_known(nodes, cluster)
    return settings.finish(nodes, node_document.to_flapping_document(nodes), node_table.flapping_parts(nodes))


@click.command()
@click.argument("topic", callback=read_name)
@pass_settings
def watchers(settings: Settings, topic: str) -> int:
    """Show which clients watch TOPIC at each server.

    WAITING is the number of changes that a client has not read yet, LAG how long the oldest of them waits. Asks all
    servers listed; exits 1 if one did not answer.

    \b
    JSON: topic, nodes[].{addr, node, total, watchers[].{peer, ageSeconds,
            topics, pending, lagSeconds}} or {addr, error}

    \b
    Examples:
      pointsmanctl watchers orders
      pointsmanctl -o json watchers orders | jq '.nodes[].total'
    """
    request = admin.ListWatchersRequest(topic=topic)
    nodes = settings.ask_every(
        lambda link, seconds: link.call(link.admin.ListWatchers, request, timeout_seconds=seconds)
    )
    whole = node_document.to_watchers_document(topic, nodes)
    return settings.finish(nodes, whole, node_table.watchers_parts(nodes))


def _raise_if_not_known(nodes: Sequence[NodeAnswer[object]], cluster: str) -> None:
    failures = [node.failure for node in nodes if isinstance(node.failure, RequestRejectedError)]
    if len(failures) == len(nodes) and {failure.details.code for failure in failures} == {ClusterNotFoundError.code}:
        raise ClusterNotFoundError(cluster)


COMMANDS = (route, topics, clusters, brokers, why, flapping, watchers)
