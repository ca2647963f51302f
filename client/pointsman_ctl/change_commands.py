"""Change what brokers and topics are allowed: write permissions, deletion, eviction, drain."""

from __future__ import annotations

import click

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.wire.json_document import enum_name
from pointsman_ctl.command_options import (
    ReplicaTarget,
    by_option,
    confirm,
    in_cluster,
    read_name,
    read_replica_target,
    yes_option,
)
from pointsman_ctl.invocation import Invocation, pass_invocation
from pointsman_ctl.name_server_queries import node_info_of
from pointsman_ctl.operator_texts import printable
from pointsman_ctl.server_calls import Server
from pointsman_ctl.server_changes import Done, change_every, cluster_of

_of_cluster = click.option(
    "--cluster",
    callback=read_name,
    metavar="NAME",
    help="The broker's cluster; needed only if the name stands in several.",
)


@click.command()
@click.argument("broker", callback=read_name)
@_of_cluster
@by_option
@pass_invocation
def wipe_write_perm(invocation: Invocation, broker: str, cluster: str, by: str) -> int:
    """Take the write permission off all topics of BROKER.

    Producers go elsewhere, consumers read on: what to do before a broker is stopped. It survives a restart of the name
    server and an upgrade of the broker's agent. Sent to all servers listed; exits 1 if one failed, and may be repeated.

    \b
    It ends with the first of:
      add-write-perm
      drain-broker, when it unregisters the broker
      probe redis: the broker's next process
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
@click.argument("broker", callback=read_name)
@_of_cluster
@by_option
@pass_invocation
def add_write_perm(invocation: Invocation, broker: str, cluster: str, by: str) -> int:
    """Give the write permission back to all topics of BROKER.

    Undoes wipe-write-perm; a topic that its broker itself holds read-only stays so. Sent to all servers listed; exits 1
    if one failed, and may be repeated.

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

    async def change(server: Server, deadline: float) -> Done:
        answer = await server.call(server.admin.SetWritePerm, request, deadline=deadline)
        state = "may be written" if writable else "is wiped of its write permission"
        already = "" if answer.changed else ", as it was already"
        words = f"{cluster}/{broker} {state}{already}; topics: {answer.topic_count}"
        return Done(words, answer.changed, {"cluster": cluster, "topicCount": answer.topic_count})

    return change_every(invocation, change)


@click.command()
@click.argument("topic", callback=read_name)
@in_cluster
@click.option("--force", is_flag=True, help="Hide it although brokers hold it.")
@yes_option
@by_option
@pass_invocation
def delete_topic(invocation: Invocation, topic: str, cluster: str, force: bool, yes: bool, by: str) -> int:
    """Delete TOPIC from the name servers.

    While brokers hold the topic it is refused, and the answer names them: delete it there first. With --force it is
    hidden until each of them brings another set of topics; its clients lose their route at once, so you are asked
    whether you mean it (without a terminal, --yes is needed). Sent to all servers listed; exits 1 if one failed, and
    may be repeated.

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

    async def change(server: Server, deadline: float) -> Done:
        answer = await server.call(server.admin.DeleteTopic, request, deadline=deadline)
        hidden = [printable(name) for name in answer.hidden_on]
        held = f"; hidden on {', '.join(hidden)} until they bring another set of topics" if hidden else ""
        return Done(f"topic {topic} deleted{held}", facts={"hiddenOn": list(answer.hidden_on)})

    return change_every(invocation, change, absent=f"had no topic {topic}")


@click.command()
@click.argument("broker", callback=read_replica_target, metavar="CLUSTER/BROKER/ID")
@by_option
@pass_invocation
def evict(invocation: Invocation, broker: ReplicaTarget, by: str) -> int:
    """Remove one registration at once.

    For a broker that is gone for good while its registration stays, as under a guard. An agent that lives registers
    again with its next beat. Sent to all servers listed; exits 1 if one failed or if none had it.

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

    async def change(server: Server, deadline: float) -> Done:
        answer = await server.call(server.admin.EvictBroker, request, deadline=deadline)
        addr = answer.identity.addr
        return Done(f"{broker} at {printable(addr)} evicted", facts={"brokerAddr": addr})

    return change_every(invocation, change, absent=f"had no {broker}")


@click.command()
@click.option("--undo", is_flag=True, help="Take clients again.")
@yes_option
@by_option
@pass_invocation
def drain(invocation: Invocation, undo: bool, yes: bool, by: str) -> int:
    """Send a name server's clients to other name servers.

    Before it is stopped: route queries are refused there and watches end; brokers go on registering and beating. Name
    the one to drain with --namesrv: with several listed nobody may be left to answer, so you are asked whether you mean
    it (without a terminal, --yes is needed). --undo takes clients again.

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

    async def change(server: Server, deadline: float) -> Done:
        before = await node_info_of(server, deadline)
        answer = await server.call(server.admin.SetDrain, request, deadline=deadline)
        state = enum_name(answer, "state")
        was_draining = before.state == broker_pb2.NODE_STATE_DRAINING
        changed = was_draining is undo
        return Done(f"is {state}" if changed else f"is {state}, as it was already", changed, {"nodeState": state})

    return change_every(invocation, change)


COMMANDS = (wipe_write_perm, add_write_perm, delete_topic, evict, drain)
