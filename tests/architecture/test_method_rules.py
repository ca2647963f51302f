"""Every method of every service has its rule in one table."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from pointsman.daemon.access.access import ADMINS, ANY_ROLE, BROKERS, CLIENTS, VIEWERS, Limit, Rules
from pointsman_agent.drain import agent_servicer
from pointsman_agent.groups import group_servicer
from pointsman_agent.offsets import servicer as offset_servicer
from pointsman_agent.queue_locks import queue_lock_servicer
from pointsman_agent.topic_changes import topic_servicer
from pointsman_namesrv.rpc import node_server

TABLES = {
    table[0].name: table
    for table in (
        (node_server.ROUTE, node_server.ROUTE_RULES),
        (node_server.REGISTRATION, node_server.REGISTRATION_RULES),
        (node_server.ADMIN, node_server.ADMIN_RULES),
        (agent_servicer.SERVICE, agent_servicer.RULES),
        (group_servicer.SERVICE, group_servicer.RULES),
        (offset_servicer.SERVICE, offset_servicer.RULES),
        (queue_lock_servicer.SERVICE, queue_lock_servicer.RULES),
        (topic_servicer.SERVICE, topic_servicer.RULES),
    )
}


@pytest.mark.parametrize("service", TABLES)
def test_every_method_has_a_rule(service: str) -> None:
    descriptor: ServiceDescriptor
    rules: Rules
    descriptor, rules = TABLES[service]
    assert set(rules) == {method.name for method in descriptor.methods}


def test_every_service_of_the_wire_has_a_table() -> None:
    files = (node_server.ROUTE, *(descriptor for descriptor, _ in TABLES.values()))
    package = {
        service
        for descriptor in files
        for service in descriptor.file.services_by_name
        if descriptor.file.package == "pointsman.v1"
    }
    assert set(TABLES) == package


def test_routes_are_for_every_role_and_changes_for_admins() -> None:
    assert set(node_server.ROUTE_RULES.values()) == {ANY_ROLE}
    reads = {name for name in node_server.ADMIN_RULES if name.startswith(("List", "Get"))}
    others = {name: rule for name, rule in node_server.ADMIN_RULES.items() if rule != ADMINS and name not in reads}
    assert {name: rule.roles for name, rule in others.items()} == {
        "SetWritePerm": BROKERS.roles,
        "RecordChange": CLIENTS.roles,
    }
    assert agent_servicer.RULES["Drain"] == ADMINS
    assert group_servicer.RULES["PinGroup"] == group_servicer.RULES["PinQueue"] == ADMINS


def test_a_viewer_may_call_what_reads_and_nothing_else() -> None:
    for name, (_, rules) in TABLES.items():
        readable = {method for method, rule in rules.items() if VIEWERS.roles <= rule.roles}
        assert {method for method in readable if not method.startswith(("List", "Get"))} <= {"WatchTopicRoutes"}, name
    reads = {name for name in node_server.ADMIN_RULES if name.startswith(("List", "Get"))}
    assert {name for name, rule in node_server.ADMIN_RULES.items() if VIEWERS.roles <= rule.roles} == reads


def test_the_limits_are_on_registrations_and_on_calls_of_operators() -> None:
    limited = {
        (service, name): rule.limit
        for service, (_, rules) in TABLES.items()
        for name, rule in rules.items()
        if rule.limit
    }
    registers = {("RegistrationService", name) for name in ("RegisterBroker", "UpdateTopics")}
    assert {place for place, limit in limited.items() if limit is Limit.REGISTRATIONS} == registers
    operators = {("AdminService", name) for name in node_server.ADMIN_RULES}
    operators |= {("TopicService", name) for name in ("WriteTopic", "RemoveTopic", "RemoveQueues")}
    operators |= {("AgentService", "Drain"), *(("ConsumerGroupService", name) for name in ("PinGroup", "PinQueue"))}
    assert {place for place, limit in limited.items() if limit is Limit.ADMIN_CALLS} == operators


def test_clients_have_groups_locks_and_offsets() -> None:
    for _, rules in (TABLES["ConsumerGroupService"], TABLES["QueueLockService"], TABLES["OffsetService"]):
        for name, rule in rules.items():
            assert name in {"PinGroup", "PinQueue"} or CLIENTS.roles <= rule.roles
