"""The checks of ``pointsmanctl doctor NAME``: of one topic, broker name or consumer group. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from google.protobuf.json_format import MessageToDict

from pointsman.v1 import route_service_pb2
from pointsman.wire.broker_explanation import gone_since, position_of_status
from pointsman.wire.json_document import MASTER_ID, enum_name
from pointsman.wire.operator_texts import time_text
from pointsman.wire.outage_timeline import Position
from pointsman.wire.topic_diagnosis import TopicHolder, topic_problems, wiped_problems
from pointsman_ctl.commands.fleet_checks import command, group_remedy, group_severity, state_text
from pointsman_ctl.output.consumer_group_view import GroupView, group_disagreements
from pointsman_ctl.output.doctor_view import ALARM, WARNING, DoctorFinding, section
from pointsman_ctl.output.group_queue_view import standings
from pointsman_ctl.output.route_difference import route_difference
from pointsman_ctl.servers.node_answers import TOPIC, NodeAnswers

MAX_NAMED = 3
MAX_SIMILAR = 3
Route = route_service_pb2.TopicRoute
Found = Sequence[tuple[str, NodeAnswers]]


# --- a topic --------------------------------------------------------------------------------------------------


def topic_findings(topic: str, found: Found) -> Iterator[DoctorFinding]:
    """Yield what is wrong with a topic at each name server, and where their routes differ.

    A broker name that only another name server has in the route counts as one that is not up.
    """
    see = command("route", topic)
    routes = {addr: answers.route for addr, answers in found if answers.route is not None}
    wiped = {
        f"{status.identity.cluster}/{status.identity.broker_name}"
        for _, answers in found
        for status in (answers.brokers.brokers if answers.brokers is not None else ())
        if status.write_wiped
    }
    names = sorted({name for route in routes.values() for name in _holders(route, wiped)})
    for addr, route in routes.items():
        here = _holders(route, wiped)
        holders = [here.get(name) or TopicHolder(name, False, False, 0, 0, 0) for name in names]
        for problem in topic_problems(holders):
            text = problem.text
            if problem.kind == "NO_BROKER" and route.absent_brokers:
                text += f"; {_absent_text(route)}"
            broker = problem.broker.rpartition("/")[2]
            remedy = f"{command('why', broker) if broker else see}; {section('PointsmanBrokersLost')}"
            severity = ALARM if problem.is_alarm else WARNING
            yield DoctorFinding(severity, problem.kind, f"topic {topic}", text, remedy, (addr,))
        for problem in wiped_problems(holders):
            cluster, _, broker = problem.broker.partition("/")
            remedy = f"{command('add-write-perm', broker, '--cluster', cluster)} restores it"
            yield DoctorFinding(
                WARNING, problem.kind, f"topic {topic} on {problem.broker}", problem.text, remedy, (addr,)
            )
    yield from _route_differences(topic, found, routes)


def _route_differences(topic: str, found: Found, routes: Mapping[str, Route]) -> Iterator[DoctorFinding]:
    see = section("PointsmanNameServersDiffer")
    for addr, answers in found:
        if answers.route is None and answers.state == "READY" and TOPIC not in answers.failures and routes:
            text = f"it is unknown at {addr}, but not at {', '.join(routes)}"
            remedy = f"{command('diff', next(iter(routes)), addr)}; {section('PointsmanAgentPartlyRegistered')}"
            yield DoctorFinding(ALARM, "TOPIC_MISSING", f"topic {topic} at {addr}", text, remedy)
    if len(routes) > 1:
        first, *others = routes
        for other in others:
            lines = route_difference(routes[first], routes[other])
            if lines:
                more = f" and {len(lines) - MAX_NAMED} more" if len(lines) > MAX_NAMED else ""
                text = f"{other} differs from {first}: {'; '.join(lines[:MAX_NAMED])}{more}"
                remedy = f"{command('diff', first, other)}; {see}"
                yield DoctorFinding(WARNING, "ROUTES_DIFFER", f"topic {topic}", text, remedy)


def _holders(route: Route, wiped: Iterable[str]) -> dict[str, TopicHolder]:
    masters = {
        (data.cluster, data.broker_name)
        for data in route.broker_datas
        if any(replica.broker_id == MASTER_ID for replica in data.replicas)
    }
    return {
        name: TopicHolder(
            name,
            is_up=True,
            has_master=(queues.cluster, queues.broker_name) in masters,
            perm=queues.perm,
            read_queues=queues.read_queue_nums,
            write_queues=queues.write_queue_nums,
            is_wiped=name in wiped,
        )
        for queues in route.queue_datas
        for name in (f"{queues.cluster}/{queues.broker_name}",)
    }


def _absent_text(route: Route) -> str:
    named = [
        f"{each.identity.cluster}/{each.identity.broker_name}/{each.identity.broker_id} ({each.reason or 'unknown'})"
        for each in route.absent_brokers[:MAX_NAMED]
    ]
    left = len(route.absent_brokers) - MAX_NAMED
    return f"not routed: {', '.join(named)}" + (f" and {left} more" if left > 0 else "")


# --- a broker name --------------------------------------------------------------------------------------------


def view_findings(found: Found) -> Iterator[DoctorFinding]:
    """Yield the replicas of a broker name whose state differs between name servers."""
    states: dict[Position, dict[str, str]] = {}
    for addr, answers in found:
        for status in answers.history.brokers if answers.history is not None else ():
            states.setdefault(position_of_status(status), {})[addr] = enum_name(status, "state")
    for (cluster, name, broker_id), at in states.items():
        if len(set(at.values())) > 1:
            text = ", ".join(f"{state} at {addr}" for addr, state in at.items())
            remedy = f"{command('why', name)}; {section('PointsmanAgentPartlyRegistered')}"
            yield DoctorFinding(WARNING, "STATES_DIFFER", f"{cluster}/{name}/{broker_id}", text, remedy)


def broker_notes(found: Found) -> Iterator[str]:
    """Yield the state of each replica of a broker name at each name server, with rule and reason."""
    for addr, answers in found:
        history = answers.history
        if history is None:
            continue
        for status in history.brokers:
            cluster, name, broker_id = position_of_status(status)
            state = enum_name(status, "state")
            text = state_text(status, history.guards.get(cluster))
            yield f"{cluster}/{name}/{broker_id} at {addr}: {state} {text}"
        here = set(map(position_of_status, history.brokers))
        for position, event in history.timeline.latest.items():
            if event.state == "GONE" and position not in here:
                reason = str(MessageToDict(event.detail).get("gone_reason") or event.reason)
                planned = ", planned" if event.planned else ""
                since = f"since {time_text(gone_since(event))} (UTC)"
                yield f"{'/'.join(map(str, position))} at {addr}: GONE {since}; reason {reason}{planned}"


# --- a consumer group -----------------------------------------------------------------------------------------


def group_name_findings(group: str, view: GroupView) -> Iterator[DoctorFinding]:
    """Yield what is wrong with the queues and the members of a group, as its agents report it."""
    for flag, sentence in (*standings(view.queues), *group_disagreements(view)):
        kind = flag.replace(" ", "_")
        yield DoctorFinding(group_severity(flag), kind, f"group {group}", sentence, group_remedy(group, flag))
    unread = sum(row.lag or 0 for row in view.queues.rows)
    if not view.members and unread:
        text = f"it has no members, and {unread} unread messages"
        remedy = group_remedy(group, "NO MEMBERS")
        yield DoctorFinding(ALARM, "NO_MEMBERS", f"group {group}", text, remedy)


# --- an unknown name ------------------------------------------------------------------------------------------


def similar_names(name: str, known: Mapping[str, Iterable[str]]) -> list[str]:
    """Return similar names with what each is, the most similar first; ``known``: names by kind."""
    kinds: dict[str, list[str]] = {}
    for kind, names in known.items():
        for each in names:
            kinds.setdefault(each, []).append(kind)
    close = get_close_matches(name, kinds, n=MAX_SIMILAR)
    return [f"{kind} {each}" for each in close for kind in dict.fromkeys(kinds[each])][:MAX_SIMILAR]
