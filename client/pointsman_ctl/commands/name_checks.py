"""The checks of ``pointsmanctl doctor NAME``: of one topic, broker name or consumer group. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches

from google.protobuf.json_format import MessageToDict

from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman.wire.broker_explanation import gone_since, position_of_status
from pointsman.wire.json_document import MASTER_ID, enum_name
from pointsman.wire.operator_texts import names_text, time_text
from pointsman.wire.outage_timeline import Position
from pointsman.wire.topic_diagnosis import TopicHolder, topic_problems, wiped_problems
from pointsman.wire.wire_time import seconds_of
from pointsman_ctl.commands.fleet_checks import command, group_remedy, group_severity, state_text
from pointsman_ctl.output.consumer_group_view import GroupView, group_disagreements
from pointsman_ctl.output.doctor_view import ALARM, WARNING, DoctorFinding, section
from pointsman_ctl.output.group_queue_view import standings
from pointsman_ctl.output.route_difference import route_difference
from pointsman_ctl.servers.node_answers import TOPIC, NodeAnswers

MAX_SIMILAR = 3
BEFORE_SECONDS = 60.0
"""Before a broker left the routes: the route to compare with."""
Route = route_service_pb2.TopicRoute
Found = Sequence[tuple[str, NodeAnswers]]


# --- a topic --------------------------------------------------------------------------------------------------


def topic_findings(topic: str, found: Found, *, now: datetime) -> Iterator[DoctorFinding]:
    """Yield what is wrong with a topic at each name server, and where their routes differ.

    A broker name that only another name server has in the route counts as one that is not up. Which of the others had
    the topic, a route does not show: those that are not routed are named beside the last one. ``now``: UTC.
    """
    see = command("route", topic)
    holders_at = {addr: _holders(answers) for addr, answers in found if answers.route is not None}
    names = sorted({name for holders in holders_at.values() for name in holders})
    routes = {addr: answers.route for addr, answers in found if answers.route is not None}
    for addr, answers in found:
        if answers.route is None:
            continue
        here = holders_at[addr]
        holders = [here.get(name) or TopicHolder(name, False, False, 0, 0, 0) for name in names]
        for problem in topic_problems(holders):
            text = problem.text
            if problem.kind == "NO_BROKER" and answers.route.absent_brokers:
                text += f"; {_absent_text(answers.route)}"
            broker = problem.broker.rpartition("/")[2]
            remedy = f"{command('why', broker) if broker else see}; {section('PointsmanBrokersLost')}"
            severity = ALARM if problem.is_alarm else WARNING
            yield DoctorFinding(severity, problem.kind, f"topic {topic}", text, remedy, (addr,))
        if len(names) == 1 and here and (unrouted := _unrouted(answers, names[0].partition("/")[0])):
            lost = list(unrouted)
            text = f"one broker name is in the routes: {names[0]}. Not routed, and may have it: {names_text(lost)}"
            before = now - timedelta(seconds=max(unrouted.values()) + BEFORE_SECONDS)
            then = command("route", topic, "--at", f"{before:%Y-%m-%dT%H:%M:%SZ}")
            remedy = f"{then} shows its brokers before; {command('why', lost[0].partition('/')[2])}"
            yield DoctorFinding(WARNING, "ONE_LEFT", f"topic {topic}", text, remedy, (addr,))
        for problem in wiped_problems(holders):
            cluster, _, broker = problem.broker.partition("/")
            remedy = f"{command('add-write-perm', broker, '--cluster', cluster)} restores it"
            subject = f"topic {topic} on {problem.broker}"
            yield DoctorFinding(WARNING, problem.kind, subject, problem.text, remedy, (addr,))
        for broker, configured, existing in _surpluses(answers.route):
            text = (
                f"its order configuration has {configured} queues on {broker}, which has {existing}: "
                "clients ignore the surplus"
            )
            remedy = f"{command('order-topic', 'list')}; then `pointsmanctl order-topic set`, or add queues there"
            yield DoctorFinding(WARNING, "ORDER_SURPLUS", f"topic {topic} on {broker}", text, remedy, (addr,))
    yield from _route_differences(topic, found, routes)


def _surpluses(route: Route) -> Iterator[tuple[str, int, int]]:
    """Yield the broker names in the route with more queues in the order configuration than they have, and both."""
    existing: dict[str, int] = {}
    for queues in route.queue_datas:
        existing[queues.broker_name] = max(queues.write_queue_nums, existing.get(queues.broker_name, 0))
    for part in filter(None, route.order_topic_conf.split(";")):
        broker, _, configured = part.partition(":")
        if broker in existing and configured.isdecimal() and int(configured) > existing[broker]:
            yield broker, int(configured), existing[broker]


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
                text = f"{other} differs from {first}: {names_text(lines, separator='; ')}"
                remedy = f"{command('diff', first, other)}; {see}"
                yield DoctorFinding(WARNING, "ROUTES_DIFFER", f"topic {topic}", text, remedy)


def _holders(answers: NodeAnswers) -> dict[str, TopicHolder]:
    """Return the broker names in the route."""
    route, listed = answers.route or Route(), answers.brokers
    masters = {
        (data.cluster, data.broker_name)
        for data in route.broker_datas
        if any(replica.broker_id == MASTER_ID for replica in data.replicas)
    }
    wiped = {
        (status.identity.cluster, status.identity.broker_name)
        for status in (listed.brokers if listed is not None else ())
        if status.write_wiped
    }
    return {
        f"{queues.cluster}/{queues.broker_name}": TopicHolder(
            f"{queues.cluster}/{queues.broker_name}",
            is_up=True,
            has_master=(queues.cluster, queues.broker_name) in masters,
            perm=queues.perm,
            read_queues=queues.read_queue_nums,
            write_queues=queues.write_queue_nums,
            is_wiped=(queues.cluster, queues.broker_name) in wiped,
        )
        for queues in route.queue_datas
    }


def _unrouted(answers: NodeAnswers, cluster: str) -> dict[str, float]:
    """Return the broker names of a cluster without a routed replica, with the seconds since the last one left."""
    seconds: dict[str, float] = {}
    routed = set[str]()
    if answers.brokers is None:
        return seconds
    for score in answers.brokers.departed:
        if score.cluster == cluster:
            seconds[f"{cluster}/{score.broker_name}"] = seconds_of(score.last_event_ago)
    for status in answers.brokers.brokers:
        name = f"{status.identity.cluster}/{status.identity.broker_name}"
        if status.state != broker_pb2.BROKER_STATE_OUT:
            routed.add(name)
        elif status.identity.cluster == cluster:
            seconds[name] = seconds_of(status.state_for)
    return {name: ago for name, ago in sorted(seconds.items()) if name not in routed}


def _absent_text(route: Route) -> str:
    named = [
        f"{each.identity.cluster}/{each.identity.broker_name}/{each.identity.broker_id} ({each.reason or 'unknown'})"
        for each in route.absent_brokers
    ]
    return f"not routed: {names_text(named)}"


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
