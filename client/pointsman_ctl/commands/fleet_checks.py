"""The checks of ``pointsmanctl doctor`` over a fleet: answers in, findings out. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import grpc

from pointsman.names import is_observed
from pointsman.queue_findings import ALARMS
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.wire.broker_explanation import position_of_status, replica_facts, since_text
from pointsman.wire.json_document import enum_name
from pointsman.wire.operator_texts import counted, duration_text, guard_text, names_text, reading_text, utc_of
from pointsman.wire.outage_timeline import Position
from pointsman.wire.wire_time import seconds_of
from pointsman_client import NameServerFailedError, PointsmanError, RequestRejectedError
from pointsman_ctl.commands.agent_round import QueryResult
from pointsman_ctl.commands.broker_commands import is_flapping, missing_masters
from pointsman_ctl.output.consumer_group_view import GroupRow
from pointsman_ctl.output.doctor_view import ALARM, WARNING, DoctorFinding, section
from pointsman_ctl.output.error_report import failure_text
from pointsman_ctl.output.node_difference import digest_difference, setting_differences, setting_text
from pointsman_ctl.servers.found_agents import MissingBroker
from pointsman_ctl.servers.name_servers import NodeBrokers
from pointsman_ctl.servers.node_answers import NodeAnswers
from pointsman_ctl.servers.server_calls import NodeResponse

SHOWN_FACTS = frozenset({"rule", "reason", "stream", "probe", "outage", "guard", "window", "conflict"})
"""Of those that ``why`` prints."""
Nodes = Sequence[NodeResponse[NodeAnswers]]
_OF_STATE = {
    "OUT": section("PointsmanBrokersUnhealthy"),
    "PROTECTED": section("PointsmanExpiryGuardActive"),
}


@dataclass(frozen=True, slots=True)
class _OfFlag:
    """What a flag of a group means, and where to go."""

    severity: str
    text: str
    heading: str
    same_as: str = ""
    """The finding of a name server about the same."""


_FLAGS: Mapping[str, _OfFlag] = {
    "STUCK": _OfFlag(ALARM, "in a queue a member is stuck", "PointsmanQueueStuck", "stuck"),
    "NO MEMBERS": _OfFlag(ALARM, "it has unread messages, and no member", "PointsmanGroupWithoutMembers", "no_members"),
    "CONFLICT": _OfFlag(ALARM, "members differ in what must be equal", "PointsmanGroupSettingsDiffer"),
    "BEHIND": _OfFlag(WARNING, "in a queue more arrives than it reads", "PointsmanGroupLagGrows", "falling_behind"),
    "DIFFERS": _OfFlag(WARNING, "agents know different members", "PointsmanAgentNotRegistered"),
}


def command(*words: str) -> str:
    """Return a command to copy, quoted for a shell."""
    return f"`{shlex.join(('pointsmanctl', *words))}`"


def reported(nodes: Nodes) -> list[tuple[str, NodeAnswers]]:
    """Return the name servers that responded, by address."""
    return [(node.addr, node.response) for node in nodes if node.response is not None]


# --- name servers ---------------------------------------------------------------------------------------------


def node_findings(nodes: Nodes, *, cluster: str) -> Iterator[DoctorFinding]:
    """Yield what is wrong with the name servers themselves, and with the guards."""
    for node in nodes:
        if node.failure is not None:
            kind = "NOT_RESPONDING" if isinstance(node.failure, NameServerFailedError) else "REJECTED"
            heading = "PointsmanObservedServerDown" if is_observed(node.addr) else "PointsmanNameServerDown"
            remedy = f"{command('health')}; {section(heading)}"
            yield DoctorFinding(ALARM, kind, node.addr, failure_text(node.failure), remedy)
    found = reported(nodes)
    is_any_ready = any(answers.state == "READY" for _, answers in found)
    for addr, answers in found:
        if answers.state != "READY":
            heading = "PointsmanNameServerNotReady" if is_any_ready else "PointsmanNoNameServerReady"
            severity = WARNING if is_any_ready else ALARM
            text = f"it is {answers.state}"
            yield DoctorFinding(severity, "NOT_READY", addr, text, f"{command('health')}; {section(heading)}", (addr,))
        # Those of an observer are brokers that are missing at a name server: findings about brokers.
        for problem in answers.info.complaints if not answers.info.observed else ():
            remedy = f"{command('--namesrv', addr, 'info')}; {section('Name servers')}"
            yield DoctorFinding(ALARM, "PROBLEM", addr, problem, remedy)
        for guard in answers.info.guards:
            if cluster in {"", guard.cluster}:
                yield from _guard_findings(addr, guard)


def _guard_findings(addr: str, guard: admin.GuardStatus) -> Iterator[DoctorFinding]:
    is_set = guard.mode != admin.GUARD_MODE_AUTO
    text = f"it{guard_text(guard).removeprefix(f'GUARD of {guard.cluster}')}"
    undo = f"{command('guard', 'auto', '--cluster', guard.cluster)} ends it; {command('changes')} shows who set it"
    # With HOLD it is active even if no broker is lost.
    if guard.active and (guard.lost or not is_set):
        text += "; its brokers stay in the routes"
        see = f"{command('brokers', '--cluster', guard.cluster)}; {section('PointsmanExpiryGuardActive')}"
        yield DoctorFinding(ALARM, "GUARD_ON", guard.cluster, text, f"{see}; {undo}" if is_set else see, (addr,))
    elif is_set:
        yield DoctorFinding(WARNING, "GUARD_SET", guard.cluster, text, undo, (addr,))


def reading_notes(found: Sequence[tuple[str, NodeAnswers]]) -> Iterator[str]:
    """Yield the name servers that still read their history."""
    for addr, answers in found:
        if missing := reading_text(answers.info):
            yield f"{addr}: {missing}"


def unchecked_findings(found: Sequence[tuple[str, NodeAnswers]], parts: Iterable[str]) -> Iterator[DoctorFinding]:
    """Yield the parts that a name server did not report, though it was asked: of an older one, or in time."""
    wanted = frozenset(parts)
    for addr, answers in found:
        for part, failure in answers.failures.items():
            if part in wanted:
                yield not_checked(addr, part, failure)


def not_checked(subject: str, part: str, failure: PointsmanError) -> DoctorFinding:
    """Return the finding that a part could not be checked."""
    status = failure.status if isinstance(failure, (NameServerFailedError, RequestRejectedError)) else None
    if status is grpc.StatusCode.UNIMPLEMENTED:
        remedy = f"upgrade it: {section('Procedures')}"
    elif status is grpc.StatusCode.NOT_FOUND:
        # Another name server knows the cluster.
        remedy = section("PointsmanAgentPartlyRegistered")
    else:
        remedy = f"{command('health')}; then repeat this command"
    return DoctorFinding(WARNING, "NOT_CHECKED", f"{part} of {subject}", failure_text(failure), remedy)


def difference_findings(found: Sequence[tuple[str, NodeAnswers]]) -> Iterator[DoctorFinding]:
    """Yield the operator settings and routes on which name servers differ; routes of those that are READY."""
    sides = {addr: answers.digests for addr, answers in found if answers.digests is not None}
    if len(sides) < 2:
        return
    addrs = list(sides)
    differ, see = command("diff", addrs[0], addrs[1]), section("PointsmanNameServersDiffer")
    for setting in setting_differences({addr: side.settings for addr, side in sides.items()}):
        values = ", ".join(f"{setting_text(value)} at {addr}" for addr, value in setting.at.items())
        remedy = f"set it again at all name servers; {differ}; {see}"
        yield DoctorFinding(WARNING, "SETTING_DIFFERS", setting.label, values, remedy)
    ready = [addr for addr, side in sides.items() if side.state == "READY"]
    for first, other in ((ready[0], other) for other in ready[1:]):
        difference = digest_difference(sides[first], sides[other])
        topics = sorted({*difference.differing, *difference.only_first, *difference.only_second})
        if topics:
            text = f"{counted(len(topics), 'topic')} differ{'s' if len(topics) == 1 else ''}: "
            text += f"{names_text(topics)}; after a change it lasts some seconds"
            remedy = f"{command('diff', first, other)}; {see}"
            yield DoctorFinding(WARNING, "ROUTES_DIFFER", f"{first} and {other}", text, remedy)


# --- brokers --------------------------------------------------------------------------------------------------


def broker_findings(found: Sequence[tuple[str, NodeAnswers]], *, broker_name: str = "") -> Iterator[DoctorFinding]:
    """Yield what is wrong with the brokers, or with those of one name, at each name server."""

    def is_chosen(name: str) -> bool:
        return broker_name in {"", name}

    lists = [(addr, answers, answers.brokers) for addr, answers in found if answers.brokers is not None]
    for addr, _, listed in lists:
        mine = [status for status in listed.brokers if is_chosen(status.identity.broker_name)]
        guards = {guard.cluster: guard for guard in listed.info.guards}
        for cluster, name in missing_masters(mine):
            remedy = f"{_why(name)}; {section('PointsmanBrokersLost')}"
            yield DoctorFinding(
                ALARM, "NO_MASTER", f"{cluster}/{name}", "no master in the routes: not writable", remedy, (addr,)
            )
        for status in mine:
            yield from _status_findings(addr, status, guards.get(status.identity.cluster))
        for score in listed.departed:
            if is_chosen(score.broker_name) and not listed.info.observed:
                yield _departed(addr, score)
            elif is_chosen(score.broker_name):
                yield _no_longer_listed(addr, score, lists)
    yield from _unregistered(lists, is_chosen)
    if lists and not broker_name and not any(listed.brokers or listed.departed for _, _, listed in lists):
        text = "no name server has a broker"
        yield DoctorFinding(WARNING, "NO_BROKERS", "", text, section("PointsmanAgentNotRegistered"))


def state_text(status: broker_pb2.BrokerStatus, guard: admin.GuardStatus | None) -> str:
    """Explain the state of a replica in one line, as ``why`` does in several."""
    # Outages are not shown, so the time is not used.
    facts = replica_facts(status, None, guard, utc_of(status.registered_at))
    named = "; ".join(f"{name} {text}" for name, text in facts if name in SHOWN_FACTS)
    return f"{since_text(status)}; {named}"


def _status_findings(
    addr: str, status: broker_pb2.BrokerStatus, guard: admin.GuardStatus | None
) -> Iterator[DoctorFinding]:
    who = status.identity
    group, replica = f"{who.cluster}/{who.broker_name}", f"{who.cluster}/{who.broker_name}/{who.broker_id}"
    state, why = enum_name(status, "state"), _why(who.broker_name)
    if status.state != broker_pb2.BROKER_STATE_UP:
        severity = ALARM if state == "OUT" and not status.planned else WARNING
        remedy = "; ".join(filter(None, (why, _OF_STATE.get(state, ""))))
        yield DoctorFinding(severity, state, replica, state_text(status, guard), remedy, (addr,))
    if status.write_wiped:
        add = command("add-write-perm", who.broker_name, "--cluster", who.cluster)
        text = "an operator wiped its write permission"
        remedy = f"{command('changes', '--broker', who.broker_name)} shows who; {add} restores it"
        yield DoctorFinding(WARNING, "WRITE_WIPED", group, text, remedy, (addr,))
    if is_flapping(status):
        text = f"its flap penalty is {status.penalty:.0f}"
        remedy = f"{why}; {section('PointsmanBrokersFlapping')}"
        yield DoctorFinding(WARNING, "FLAPPING", replica, text, remedy, (addr,))
    for other in status.also_at_addr:
        text = f"{other.cluster}/{other.broker_name}/{other.broker_id} is registered at its address {who.addr} too"
        yield DoctorFinding(
            WARNING, "ADDRESS_CONFLICT", replica, text, f"{why}; {section('PointsmanAddressConflict')}", (addr,)
        )


def _departed(addr: str, score: admin.FlapScore) -> DoctorFinding:
    replica = f"{score.cluster}/{score.broker_name}/{score.broker_id}"
    text = f"unplanned: {score.last_event} {duration_text(seconds_of(score.last_event_ago))} ago"
    remedy = f"{_why(score.broker_name)}; {section('PointsmanBrokersLost')}; if it does not return: "
    return DoctorFinding(ALARM, "DEPARTED", replica, text, remedy + command("evict", replica), (addr,))


def _no_longer_listed(
    addr: str, score: admin.FlapScore, lists: Sequence[tuple[str, NodeAnswers, NodeBrokers]]
) -> DoctorFinding:
    """Return the finding about a broker that an observed name server ceased to list: it may be up for the others."""
    replica = f"{score.cluster}/{score.broker_name}/{score.broker_id}"
    ago, why = duration_text(seconds_of(score.last_event_ago)), _why(score.broker_name)
    others = [each for each, _, listed in lists if _position_of_score(score) in map(position_of_status, listed.brokers)]
    if others:
        text = f"not listed since {ago} ago, but listed at {', '.join(others)}"
        remedy = f"{why}; {section('PointsmanObservedBrokersMissing')}"
        return DoctorFinding(WARNING, "MISSING", f"{replica} at {addr}", text, remedy, (addr,))
    text = f"no name server that responds lists it, since {ago} ago"
    return DoctorFinding(ALARM, "DEPARTED", replica, text, f"{why}; {section('PointsmanBrokersLost')}", (addr,))


def _unregistered(
    lists: Sequence[tuple[str, NodeAnswers, NodeBrokers]], is_chosen: Callable[[str], bool]
) -> Iterator[DoctorFinding]:
    """Yield the brokers that some name servers have and others, which are READY and did not lose them, do not."""
    at: dict[Position, list[str]] = {}
    for addr, _, listed in lists:
        for status in listed.brokers:
            if is_chosen(status.identity.broker_name):
                at.setdefault(position_of_status(status), []).append(addr)
    for position, addrs in at.items():
        without = [
            addr
            for addr, answers, listed in lists
            if answers.state == "READY"
            and addr not in addrs
            and position not in map(_position_of_score, listed.departed)
        ]
        if without:
            cluster, name, broker_id = position
            replica, where = f"{cluster}/{name}/{broker_id}", f"at {', '.join(without)}, but at {', '.join(addrs)}"
            if any(listed.info.observed for _, _, listed in lists):
                remedy = f"{_why(name)}; {section('PointsmanObservedBrokersMissing')}"
                yield DoctorFinding(WARNING, "MISSING", replica, f"not listed {where}", remedy)
                continue
            remedy = f"{_why(name)}; {section('PointsmanAgentPartlyRegistered')}"
            yield DoctorFinding(WARNING, "NOT_REGISTERED", replica, f"not registered {where}", remedy)


def _position_of_score(score: admin.FlapScore) -> Position:
    return score.cluster, score.broker_name, score.broker_id


def _why(broker_name: str) -> str:
    return command("why", broker_name)


# --- queues and groups ----------------------------------------------------------------------------------------


def best_measured(found: Sequence[tuple[str, NodeAnswers]]) -> admin.ListLiveQueuesResponse | None:
    """Return the queues at the name server that has the measurements of most brokers."""
    known = [answers.queues for _, answers in found if answers.queues is not None]
    return max(known, key=lambda each: each.measured_broker_count, default=None)


def queue_findings(live: admin.ListLiveQueuesResponse, *, topic: str = "", group: str = "") -> Iterator[DoctorFinding]:
    """Yield the findings of ``queues``: all, of one topic with its groups, or of one group."""
    for each in live.topics:
        if topic in {"", each.topic} and not group:
            yield from _live_findings(each.findings, each.topic)
    for of_group in live.groups:
        if topic in {"", of_group.topic} and group in {"", of_group.group}:
            yield from _live_findings(of_group.findings, f"{of_group.group} in {of_group.topic}")


def _live_findings(findings: Iterable[admin.QueueFinding], subject: str) -> Iterator[DoctorFinding]:
    for each in findings:
        severity = ALARM if each.kind in ALARMS else WARNING
        yield DoctorFinding(severity, each.kind.upper(), subject, each.text, each.remedy)


def group_findings(rows: Iterable[GroupRow], live: admin.ListLiveQueuesResponse | None) -> Iterator[DoctorFinding]:
    """Yield the flags of groups that need action; what a name server found in more words is left to it."""
    named = {(of.group, each.kind) for of in (live.groups if live is not None else ()) for each in of.findings}
    for row in rows:
        for flag in row.flags:
            of_flag = _FLAGS.get(flag)
            if of_flag is not None and (row.group, of_flag.same_as) not in named:
                kind, remedy = flag.replace(" ", "_"), group_remedy(row.group, flag)
                yield DoctorFinding(of_flag.severity, kind, row.group, of_flag.text, remedy)


def group_remedy(group: str, flag: str) -> str:
    """Return the next step for a flag of a group."""
    of_flag = _FLAGS.get(flag)
    show = command("group", group, "--queues")
    return f"{show}; {section(of_flag.heading)}" if of_flag is not None else show


def group_severity(flag: str) -> str:
    """Return the severity of a flag of a group."""
    of_flag = _FLAGS.get(flag)
    return WARNING if of_flag is None else of_flag.severity


def agent_findings(result: QueryResult[object]) -> Iterator[DoctorFinding]:
    """Yield the agents and brokers that should have reported their groups and did not."""
    rocketmq = {agent.addr for agent in result.found.agents if agent.is_rocketmq}
    for each in filter(_should_report, result.missing):
        text, subject = f"its groups are not checked: {each.why}", f"{each.name} at {each.addr}"
        if each.addr in rocketmq:
            remedy = f"{command('groups')}; {section('PointsmanBrokersUnhealthy')}"
            yield DoctorFinding(WARNING, "BROKER_NOT_RESPONDING", subject, text, remedy)
        else:
            remedy = f"{command('groups', '--agent', each.addr)}; {section('PointsmanAgentDown')}"
            yield DoctorFinding(WARNING, "AGENT_NOT_RESPONDING", subject, text, remedy)


def agent_notes(result: QueryResult[object]) -> Iterator[str]:
    """Yield what is not known of groups, because no agent can be queried for it or its broker is down."""
    for node in result.name_servers:
        if node.response is not None and node.response.absent.left_out:
            count = counted(node.response.absent.left_out, "broker")
            yield f"groups not checked at {count} that {node.addr} does not list: give --cluster"
    others = [each for each in result.missing if not _should_report(each)]
    if others:
        yield f"groups not checked at {names_text([f'{each} ({each.reason})' for each in others])}"


def _should_report(missing: MissingBroker) -> bool:
    """Whether the agent of a routed broker was queried; the others are findings about brokers, or have no agent."""
    return bool(missing.addr) and not missing.state


def measured_notes(live: admin.ListLiveQueuesResponse | None) -> Iterator[str]:
    """Yield how many brokers' queues are measured, if not all are."""
    if live is not None and live.measured_broker_count < live.broker_count:
        count = counted(live.broker_count, "broker")
        yield f"queues measured at {live.measured_broker_count} of {count}; see {command('queues')}"
