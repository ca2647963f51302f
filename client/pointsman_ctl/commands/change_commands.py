"""Administration of brokers, topics and name servers: write permissions, deletion, eviction, drain."""

from __future__ import annotations

import click

from pointsman.names import printable
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.wire.json_document import enum_name
from pointsman_ctl.commands.server_changes import Outcome, change_every, cluster_of
from pointsman_ctl.options.command_options import (
    ReplicaTarget,
    by_option,
    confirm,
    in_cluster,
    read_name,
    read_replica_target,
    yes_option,
)
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.name_completion import (
    complete_broker_names,
    complete_clusters,
    complete_replicas,
    complete_topics,
)
from pointsman_ctl.servers.name_servers import PointsmanNameServer

_of_cluster = click.option(
    "--cluster",
    callback=read_name,
    shell_complete=complete_clusters,
    metavar="NAME",
    help="The broker's cluster; required only if several have the name.",
)


@click.command()
@click.argument("broker", callback=read_name, shell_complete=complete_broker_names)
@_of_cluster
@by_option
@pass_invocation
def wipe_write_perm(invocation: Invocation, broker: str, cluster: str, by: str) -> int:
    """Stop writes to BROKER: remove its write permission.

    Producers use other brokers, consumers still read from it. The change survives a restart of the name server and an
    upgrade of the broker's agent. Sent to all servers listed; exits 1 if one failed. Repeating it is safe.

    \b
    It ends with the first of:
      add-write-perm
      drain-broker, when it unregisters the broker
      probe redis: the next start of the broker
      probe tcp, http, grpc, exec: the probe fails and passes again, or the
        agent stops after a last probe that failed
      no probe: the agent stops and stop.unprobed is "unregister"
      a broker on RocketMQ's wire: the next change of its topics other than
        one new topic, or its registration after an absence

    \b
    JSON: nodes[].{addr, changed, cluster, topicCount} or {addr, error}

    \b
    Examples:
      pointsmanctl wipe-write-perm broker-a --cluster c1
      pointsmanctl --namesrv ns1:9876,ns2:9876 wipe-write-perm broker-a
    """
    return _set_write_perm(invocation, broker, cluster, by, writable=False)


@click.command()
@click.argument("broker", callback=read_name, shell_complete=complete_broker_names)
@_of_cluster
@by_option
@pass_invocation
def add_write_perm(invocation: Invocation, broker: str, cluster: str, by: str) -> int:
    """Allow writes to BROKER again.

    Reverts wipe-write-perm. Topics that the broker itself registers as read-only stay read-only. Sent to all servers
    listed; exits 1 if one failed. Repeating it is safe.

    \b
    JSON: nodes[].{addr, changed, cluster, topicCount} or {addr, error}

    \b
    Examples:
      pointsmanctl add-write-perm broker-a --cluster c1
      pointsmanctl --namesrv ns1:9876,ns2:9876 add-write-perm broker-a
    """
    return _set_write_perm(invocation, broker, cluster, by, writable=True)


def _set_write_perm(invocation: Invocation, broker: str, cluster: str, by: str, *, writable: bool) -> int:
    cluster = cluster_of(invocation, broker, cluster=cluster)
    request = admin.SetWritePermRequest(cluster=cluster, broker_name=broker, writable=writable, by=by)

    async def change(server: PointsmanNameServer, deadline: float) -> Outcome:
        response = await server.call(server.admin.SetWritePerm, request, deadline=deadline)
        state = "is writable" if writable else "has no write permission"
        already = "" if response.changed else " (already)"
        text = f"{cluster}/{broker} {state}{already}; topics: {response.topic_count}"
        return Outcome(text, response.changed, {"cluster": cluster, "topicCount": response.topic_count})

    return change_every(invocation, change)


@click.command()
@click.argument("topic", callback=read_name, shell_complete=complete_topics)
@in_cluster
@click.option("--force", is_flag=True, help="Hide the topic even though brokers have it.")
@yes_option
@by_option
@pass_invocation
def delete_topic(invocation: Invocation, topic: str, cluster: str, force: bool, yes: bool, by: str) -> int:
    """Delete TOPIC from the name servers.

    Rejected while brokers have the topic; the error names them: delete it there first. With --force the topic is hidden
    until each of them registers another set of topics. Its clients lose their route immediately, so you must confirm
    (without a terminal: --yes). Sent to all servers listed; exits 1 if one failed or if none knew the topic.

    \b
    JSON: nodes[].{addr, changed, hiddenOn[]} or {addr, error}

    \b
    Examples:
      pointsmanctl delete-topic orders
      pointsmanctl delete-topic orders --cluster c1 --force --yes
    """
    if force:
        where = f"in cluster {cluster}" if cluster else "in every cluster"
        confirm(f"Hide topic {topic} {where}, so that its clients lose their route?", yes=yes)
    request = admin.DeleteTopicRequest(topic=topic, cluster=cluster, force=force, by=by)

    async def change(server: PointsmanNameServer, deadline: float) -> Outcome:
        response = await server.call(server.admin.DeleteTopic, request, deadline=deadline)
        hidden = [printable(name) for name in response.hidden_on]
        held = f"; hidden on {', '.join(hidden)} until they register another set of topics" if hidden else ""
        return Outcome(f"topic {topic} deleted{held}", facts={"hiddenOn": list(response.hidden_on)})

    return change_every(invocation, change, absent=f"topic {topic} did not exist")


@click.command()
@click.argument("broker", callback=read_replica_target, shell_complete=complete_replicas, metavar="CLUSTER/BROKER/ID")
@by_option
@pass_invocation
def evict(invocation: Invocation, broker: ReplicaTarget, by: str) -> int:
    """Retire one broker that will not return.

    One that is still registered, e.g. because the guard is on, leaves the routes; a running agent registers it again
    with its next heartbeat. One that is GONE no longer counts as down: from now on its absence is planned, and spends
    no error budget in the report. Sent to all servers listed; exits 1 if one failed or if none knew it.

    \b
    JSON: nodes[].{addr, changed, brokerAddr} or {addr, error}

    \b
    Examples:
      pointsmanctl evict c1/broker-a/1
      pointsmanctl --namesrv ns1:9876,ns2:9876 evict DefaultCluster/broker-a/0
    """
    request = admin.EvictBrokerRequest(
        cluster=broker.cluster, broker_name=broker.broker_name, broker_id=broker.broker_id, by=by
    )

    async def change(server: PointsmanNameServer, deadline: float) -> Outcome:
        response = await server.call(server.admin.EvictBroker, request, deadline=deadline)
        addr = response.identity.addr
        return Outcome(f"{broker} at {printable(addr)} evicted", facts={"brokerAddr": addr})

    return change_every(invocation, change, absent=f"{broker} is not known")


@click.command()
@click.option("--undo", is_flag=True, help="Accept clients again.")
@yes_option
@by_option
@pass_invocation
def drain(invocation: Invocation, undo: bool, yes: bool, by: str) -> int:
    """Move the clients of a name server to others.

    Use it before you stop the server: it rejects route queries and ends watches, while brokers still register and send
    heartbeats. Select the server with --namesrv. With several listed, clients may be left without a server, so you
    must confirm (without a terminal: --yes). --undo accepts clients again.

    \b
    JSON: nodes[].{addr, changed, nodeState} or {addr, error}

    \b
    Examples:
      pointsmanctl --namesrv ns1:9876 drain
      pointsmanctl --namesrv ns1:9876 drain --undo
    """
    if not undo and len(invocation.name_servers) > 1:
        confirm(f"Drain all {len(invocation.name_servers)} name servers listed?", yes=yes)
    request = admin.SetDrainRequest(draining=not undo, by=by)

    async def change(server: PointsmanNameServer, deadline: float) -> Outcome:
        before = await server.node_info(deadline)
        response = await server.call(server.admin.SetDrain, request, deadline=deadline)
        state = enum_name(response, "state")
        was_draining = before.state == broker_pb2.NODE_STATE_DRAINING
        changed = was_draining is undo
        return Outcome(f"is {state}" if changed else f"is {state} (already)", changed, {"nodeState": state})

    return change_every(invocation, change)
