"""Routes as JSON documents with RocketMQ's keys, written by the client and by ``pointsmanctl`` alike. Pure.

64-bit numbers that a JavaScript reader would round (boot) are text.
"""

from __future__ import annotations

from pointsman_client.core.route import AbsentBroker, BrokerData, Revision, TopicRoute

Document = dict[str, object]

NO_MASTER = "NO_MASTER"
NO_BROKER = "NO_BROKER"


def to_route_document(route: TopicRoute) -> Document:
    """Render a route as RocketMQ's ``TopicRouteData`` does, with what Pointsman knows beyond it."""
    return {
        "topic": route.topic,
        "orderTopicConf": route.order_topic_conf,
        "queueDatas": [
            {
                "cluster": data.cluster,
                "brokerName": data.broker_name,
                "readQueueNums": data.read_queue_nums,
                "writeQueueNums": data.write_queue_nums,
                "perm": data.perm,
                "topicSysFlag": data.topic_sys_flag,
            }
            for data in route.queue_datas
        ],
        "brokerDatas": [to_broker_data_document(data) for data in route.broker_datas],
        "filterServerTable": {
            replica.addr: list(replica.filter_servers)
            for data in route.broker_datas
            for replica in data.replicas
            if replica.filter_servers
        },
        "revision": to_revision_document(route.revision),
        **({"absentBrokers": [_absent(broker) for broker in route.absent_brokers]} if route.absent_brokers else {}),
    }


def _absent(broker: AbsentBroker) -> Document:
    return {
        "cluster": broker.cluster,
        "brokerName": broker.broker_name,
        "brokerId": broker.broker_id,
        "brokerAddr": broker.addr,
        "registered": broker.is_registered,
        "reason": broker.reason,
        "since": None if broker.since is None else f"{broker.since:%Y-%m-%dT%H:%M:%S}Z",
    }


def to_revision_document(revision: Revision) -> Document:
    """Render when an answer was made."""
    return {"boot": f"{revision.boot:016x}", "counter": revision.counter, "digest": revision.digest.hex()}


def to_broker_data_document(data: BrokerData) -> Document:
    """Render a replica group; JSON has only text as keys, so broker ids are text as in RocketMQ's own output."""
    return {
        "cluster": data.cluster,
        "brokerName": data.broker_name,
        "brokerAddrs": {str(replica.broker_id): replica.addr for replica in data.replicas},
        "zoneName": data.zone,
        "enableActingMaster": data.acting_master,
        "conditions": group_conditions(data),
        "replicas": [
            {
                "brokerId": replica.broker_id,
                "brokerAddr": replica.addr,
                "haAddr": replica.ha_addr,
                "agentAddr": replica.agent_addr,
                "state": str(replica.state),
                "filterServers": list(replica.filter_servers),
            }
            for replica in data.replicas
        ],
    }


def group_conditions(data: BrokerData) -> list[str]:
    """Return the conditions of a group as routes show it."""
    if not data.replicas:
        return [NO_BROKER]
    return [] if data.master else [NO_MASTER]
