"""The command ``doctor``: what is wrong with the fleet, a topic, a broker or a group, and the next step of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import click

from pointsman.wire.json_document import Document
from pointsman_client import PointsmanError
from pointsman_ctl.commands.agent_round import OUT_AND_GONE, AgentChoice, agent_and_broker_round, query_agents
from pointsman_ctl.commands.broker_commands import raise_if_not_known
from pointsman_ctl.commands.fleet_checks import (
    Nodes,
    agent_findings,
    agent_notes,
    best_measured,
    broker_findings,
    difference_findings,
    group_findings,
    measured_notes,
    node_findings,
    not_checked,
    queue_findings,
    reading_notes,
    reported,
    unchecked_findings,
)
from pointsman_ctl.commands.group_commands import query_all_groups, query_group, view_of
from pointsman_ctl.commands.name_checks import (
    broker_notes,
    group_name_findings,
    similar_names,
    topic_findings,
    view_findings,
)
from pointsman_ctl.options.command_options import in_cluster, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.name_completion import complete_all_names
from pointsman_ctl.output.consumer_group_view import group_rows
from pointsman_ctl.output.doctor_view import DoctorFinding, doctor_parts, merged, to_finding_documents
from pointsman_ctl.output.error_report import EXIT_FAILED, ErrorReport
from pointsman_ctl.output.output_layout import node_documents
from pointsman_ctl.servers.node_answers import BROKERS, HISTORY, QUEUES, ROUTES, TOPIC, NodeAnswers, ask_node
from pointsman_ctl.servers.server_calls import NodeResponse


@dataclass(slots=True)
class _Diagnosis:
    """What the checks found."""

    matched: list[str] = field(default_factory=list)
    """What has the given name: topic, broker, group."""
    findings: list[DoctorFinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@click.command()
@click.argument("name", required=False, callback=read_name, shell_complete=complete_all_names)
@in_cluster
@pass_invocation
def doctor(invocation: Invocation, name: str, cluster: str) -> int:
    """Find what is wrong, the worst first, and what to do.

    Checks all name servers listed and the agents of all masters, or only what has NAME: a topic, a broker name, a
    consumer group, or several of these. Each finding has its next step: a command to copy, or a section of
    deploy/runbook.md. Changes nothing. Exits 1 with findings, or if a server failed.

    \b
    Checks without NAME:
      name servers  not responding, not READY, their problems, guards that are
                    on or not AUTO, differing settings and routes
      brokers       not UP, without a master, departed unplanned, flapping,
                    write permission wiped, not registered everywhere
      queues        the findings of `queues`
      groups        the flags of `groups` that need action
    With NAME:
      topic         no broker up, not writable or readable, one broker name
                    left, no master, wiped, an order configuration beyond its
                    queues, missing or differing at a name server, findings of
                    `queues`
      broker        what is checked of brokers above, states that differ; its
                    state at each name server is shown with the rule
      group         members that are stuck, fall behind or differ, findings of
                    `queues`

    The table has at most 10 findings of one kind, JSON has all.

    \b
    JSON: name, matched[], findings[].{severity, kind, subject, text, remedy,
            servers[]}, notes[], nodes[].{addr, node, nodeState}
            or {addr, error}; severity is ALARM or WARNING, matched[] has
          topic, broker and group

    \b
    Examples:
      pointsmanctl doctor
      pointsmanctl --namesrv ns1:9876,ns2:9876 doctor --cluster DefaultCluster
      pointsmanctl doctor orders
      pointsmanctl -o json doctor | jq -r '.findings[].remedy'
    """
    is_compared = len(invocation.name_servers) > 1 and not name
    nodes = invocation.query_every(
        lambda server, deadline: ask_node(server, deadline, cluster=cluster, name=name, is_compared=is_compared)
    )
    found = reported(nodes)
    raise_if_not_known([NodeResponse(addr, each.brokers, each.failures.get(BROKERS)) for addr, each in found], cluster)
    diagnosis = _Diagnosis()
    if found:
        check = _check_name if name else _check_fleet
        diagnosis.notes += reading_notes(found)
        check(invocation, nodes, name, cluster, diagnosis)
    if name and found and not diagnosis.matched:
        return _fail_unknown(invocation, nodes, name, cluster)
    findings = merged(diagnosis.findings)
    document: Document = {
        "name": name or None,
        "matched": diagnosis.matched,
        "findings": to_finding_documents(findings),
        "notes": diagnosis.notes,
        **node_documents(nodes, _to_node),
    }
    parts = doctor_parts(findings, diagnosis.notes, servers=[addr for addr, _ in found])
    return invocation.finish(nodes, document, parts) or (EXIT_FAILED if findings else 0)


def _to_node(answers: NodeAnswers) -> Document:
    return {"node": answers.node, "nodeState": answers.state}


def _check_fleet(invocation: Invocation, nodes: Nodes, _name: str, cluster: str, diagnosis: _Diagnosis) -> None:
    found, live = reported(nodes), best_measured(reported(nodes))
    diagnosis.findings += node_findings(nodes, cluster=cluster)
    diagnosis.findings += broker_findings(found)
    if live is not None:
        diagnosis.findings += queue_findings(live)
    if not any(answers.info.observed for _, answers in found):  # agents measure, and RocketMQ's brokers have none
        diagnosis.notes += measured_notes(live)
    try:
        result, members = query_all_groups(invocation, _agents_of(cluster))
    except PointsmanError as failure:
        diagnosis.findings.append(not_checked("the fleet", "groups", failure))
    else:
        diagnosis.findings += group_findings(group_rows(result.received, members), live)
        diagnosis.findings += agent_findings(result)
        diagnosis.notes += agent_notes(result)
    diagnosis.findings += difference_findings(found)
    diagnosis.findings += unchecked_findings(found, (BROKERS, ROUTES, QUEUES))


def _check_name(invocation: Invocation, nodes: Nodes, name: str, cluster: str, diagnosis: _Diagnosis) -> None:
    found, live = reported(nodes), best_measured(reported(nodes))
    # A guard of the cluster or a name server that is down may be the cause, whatever has the name.
    diagnosis.findings += node_findings(nodes, cluster=cluster)
    parts = {BROKERS, QUEUES}
    if any(answers.route is not None for _, answers in found):
        diagnosis.matched.append("topic")
        diagnosis.findings += topic_findings(name, found, now=datetime.now(UTC))
        diagnosis.findings += queue_findings(live, topic=name) if live is not None else ()
        parts.add(TOPIC)
    if any(answers.history and (answers.history.brokers or answers.history.timeline.events) for _, answers in found):
        diagnosis.matched.append("broker")
        diagnosis.findings += broker_findings(found, broker_name=name)
        diagnosis.findings += view_findings(found)
        diagnosis.notes += broker_notes(found)
        parts.add(HISTORY)
    try:
        result = query_group(invocation, _agents_of(cluster), name, with_queues=True)
    except PointsmanError as failure:
        diagnosis.findings.append(not_checked("the fleet", f"group {name}", failure))
    else:
        view = view_of(result)
        if view.known or view.queues.rows:
            diagnosis.matched.append("group")
            diagnosis.findings += group_name_findings(name, view)
            diagnosis.findings += queue_findings(live, group=name) if live is not None else ()
            diagnosis.findings += agent_findings(result)
            diagnosis.notes += agent_notes(result)
    diagnosis.findings += unchecked_findings(found, parts)


def _fail_unknown(invocation: Invocation, nodes: Nodes, name: str, cluster: str) -> int:
    """Report that nothing has the name, with similar names; return the exit code."""
    found = reported(nodes)
    lists = invocation.query_every(
        lambda server, deadline: server.topics(deadline, cluster=cluster), addrs=[addr for addr, _ in found]
    )
    known = {
        "topic": {topic for each in lists if each.response is not None for topic in each.response.topics},
        "broker": set(_broker_names(nodes)),
        "group": _group_names(invocation, cluster),
    }
    similar = similar_names(name, known)
    hint = f"did you mean {' or '.join(similar)}?" if similar else "see `pointsmanctl topics`, `brokers` and `groups`"
    where = f" in cluster {cluster}" if cluster else ""
    failed = [node.addr for node in nodes if node.response is None]
    silent = f"; not responding: {', '.join(failed)}" if failed else ""
    message = f"no topic, broker name or consumer group is named {name}{where}{silent}"
    return invocation.fail(ErrorReport("NAME_NOT_FOUND", message, hint))


def _agents_of(cluster: str) -> AgentChoice:
    """Return the agents of masters, of those that are not routed, too."""
    return AgentChoice(cluster=cluster, absent=OUT_AND_GONE)


def _broker_names(nodes: Nodes) -> Iterator[str]:
    for _, answers in reported(nodes):
        if answers.brokers is not None:
            yield from (status.identity.broker_name for status in answers.brokers.brokers)
            yield from (score.broker_name for score in answers.brokers.departed)


def _group_names(invocation: Invocation, cluster: str) -> set[str]:
    opened = agent_and_broker_round(invocation, _agents_of(cluster))
    try:
        result = query_agents(opened, lambda server, deadline: server.list_groups(deadline))
    except PointsmanError:
        return set()
    return {each.group for _, response in result.received for each in response.groups}
