"""What agents know of consumer groups, as tables: groups, members, locks, offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_client.rpc.wire_time import seconds_of, utc_of
from pointsman_ctl.agent_question import AgentGroups, AgentLocks
from pointsman_ctl.agents import Agent
from pointsman_ctl.group_view import GroupRow, GroupView, MemberRow
from pointsman_ctl.layout import ALARM, WARNING, new_table
from pointsman_ctl.offset_view import GroupTotal, OffsetRow
from pointsman_ctl.wording import duration_words, printable

MOST_HOSTS = 2
"""Of one member, that a table names."""

_FLAG_STYLES = {"CONFLICT": ALARM, "DIFFERS": ALARM, "PINNED": "magenta", "WARMING": WARNING, "DRAINING": "magenta"}


def groups_parts(answers: Sequence[tuple[Agent, AgentGroups]], rows: Sequence[GroupRow]) -> Iterable[RenderableType]:
    """Show one row a group, and which agents do not know everybody yet."""
    if not rows:
        yield Text(f"no consumer group has members at {_count(len(answers), 'agent')}")
    else:
        table = new_table("GROUP", "MEMBERS", "AGENTS", "MODEL", "TOPICS", "", right=("MEMBERS", "AGENTS"))
        for row in rows:
            table.add_row(
                printable(row.group),
                str(row.members) if row.is_exact else f">={row.members}",
                f"{len(row.agents)}/{len(answers)}",
                "/".join(row.models),
                printable(" ".join(row.topics)) or "-",
                _flags(row.flags),
            )
        yield table
    for word, state in (("WARMING", wire.GROUP_STATE_WARMING), ("DRAINING", wire.GROUP_STATE_DRAINING)):
        agents = [str(agent) for agent, answer in answers if answer.state == state]
        if agents:
            yield Text(f"{word}: {', '.join(agents)}", style=_FLAG_STYLES[word])


def group_parts(view: GroupView) -> Iterable[RenderableType]:
    """Show the members of a group, and below them what is wrong or set."""
    table = new_table("MEMBER", "PEER", "SINCE (UTC)", "SILENT", "AGENTS", "READS", "", right=("SILENT", "AGENTS"))
    for row in view.members:
        table.add_row(
            printable(row.client_id),
            printable(_peer_words(row.peers)),
            f"{utc_of(row.joined_first.joined_at):%Y-%m-%d %H:%M:%S}",
            duration_words(row.silent_seconds),
            f"{len(row.at)}/{len(view.known)}",
            printable(", ".join(map(_subscription_words, row.subscriptions))) or "-",
            _flags(_member_flags(row)),
        )
    yield table
    yield from _disagreements(view)
    if len(view.models) > 1:
        yield Text(f"CONFLICT: members share messages as {' and as '.join(view.models)}", style=ALARM)
    if any(row.is_conflicting for row in view.members):
        words = "CONFLICT: members read other topics or tags than the one that joined first, so some messages are lost"
        yield Text(words, style=ALARM)
    yield from _agent_remarks(view)
    where = f"at {len(view.known)} of {_count(len(view.known) + len(view.unknown_at), 'agent')}"
    yield Text(f"{_count(len(view.members), 'member')}, {'/'.join(view.models)}, {where}", style="dim")


def locks_parts(answers: Sequence[tuple[Agent, AgentLocks]]) -> Iterable[RenderableType]:
    """Show one row a lock."""
    if not any(answer.locks for _, answer in answers):
        yield Text("no queue is locked")
        return
    table = new_table("GROUP", "TOPIC", "BROKER", "QUEUE", "HELD BY", "RENEWED", "", right=("QUEUE", "RENEWED"))
    found = [(lock, agent, answer.lifetime) for agent, answer in answers for lock in answer.locks]
    found.sort(key=lambda row: (row[0].group, row[0].queue.topic, row[1].name, row[0].queue.queue_id))
    for lock, agent, lifetime in found:
        age = seconds_of(lock.renewed_ago)
        table.add_row(
            printable(lock.group),
            printable(lock.queue.topic),
            agent.name,
            str(lock.queue.queue_id),
            printable(lock.client_id),
            duration_words(age),
            Text("EXPIRED", style=WARNING) if age > lifetime else "",
        )
    yield table


def offsets_parts(rows: Sequence[OffsetRow], totals: Sequence[GroupTotal], *, folded: int) -> Iterable[RenderableType]:
    """Show one row a queue, how many queues are not shown, and below them one row a group."""
    if not totals:
        yield Text("no offset is committed")
        return
    numbers = ("QUEUE", "COMMITTED", "MAX", "LAG")
    table = new_table("GROUP", "TOPIC", "BROKER", *numbers, "", right=numbers)
    for row in rows:
        committed = row.progress.committed
        table.add_row(
            printable(row.progress.group),
            printable(committed.topic),
            row.agent.name,
            str(committed.queue_id),
            str(committed.offset),
            _number(row.max_offset),
            _number(row.lag),
            Text("BEYOND END", style=ALARM) if row.is_beyond_end else "",
        )
    if rows:
        yield table
    if folded:
        yield Text(f"{_count(folded, 'empty queue')} of retry topics not shown: --retry", style="dim")
    yield ""
    in_all = new_table("GROUP", "QUEUES", "LAG", "", right=("QUEUES", "LAG"))
    for total in totals:
        known = total.queues - total.without_end
        rest = f"and {_count(total.without_end, 'queue')} whose end is not known" if total.without_end else ""
        in_all.add_row(printable(total.group), str(total.queues), str(total.lag) if known else "-", rest)
    yield in_all


def _disagreements(view: GroupView) -> Iterator[Text]:
    lacks: dict[Agent, list[str]] = {}
    for row in view.members:
        for agent in row.missing_at:
            lacks.setdefault(agent, []).append(printable(row.client_id))
    for agent, client_ids in lacks.items():
        yield Text(f"DIFFERS: {agent} does not know {', '.join(client_ids)}", style=ALARM)


def _agent_remarks(view: GroupView) -> Iterator[Text]:
    pins: dict[str, list[Agent]] = {}
    for agent, membership in view.pins:
        to = printable(", ".join(membership.pinned_client_ids)) or "nobody who is a member there"
        until = f"{utc_of(membership.pinned_until):%Y-%m-%d %H:%M:%S} UTC"
        pins.setdefault(f"PINNED to {to} until {until}", []).append(agent)
    for words, agents in pins.items():
        yield Text(f"{words}: {_listed(agents)}", style=_FLAG_STYLES["PINNED"])
    for agent, group in view.known:
        told = set(group.membership.client_ids)
        late = told ^ {member.client_id for member in group.members}
        if late:
            names = printable(", ".join(sorted(late)))
            yield Text(f"HELD DOWN: members at {agent} are not told of {names} yet", style=WARNING)
    states = (
        ("WARMING", wire.GROUP_STATE_WARMING, "may not have heard of every member yet"),
        ("DRAINING", wire.GROUP_STATE_DRAINING, "sends its consumers elsewhere"),
    )
    for word, state, words in states:
        for agent, group in view.known:
            if group.membership.state == state:
                yield Text(f"{word}: {agent} {words}", style=_FLAG_STYLES[word])
    if view.unknown_at:
        yield Text(f"nobody is in it at {_listed(view.unknown_at)}", style="dim")


def _member_flags(row: MemberRow) -> Iterator[str]:
    if row.is_conflicting:
        yield "CONFLICT"
    if row.missing_at:
        yield "DIFFERS"
    if not row.is_connected:
        yield "DISCONNECTED"


def _flags(flags: Iterable[str]) -> Text:
    return Text(" ").join(Text(flag, style=_FLAG_STYLES.get(flag, WARNING)) for flag in flags)


def _peer_words(peers: Sequence[str]) -> str:
    if len(peers) == 1:
        return peers[0]
    # It has a connection to each broker, so ports say little.
    hosts = list(dict.fromkeys(peer.rpartition(":")[0] for peer in peers))
    more = f" and {len(hosts) - MOST_HOSTS} more" if len(hosts) > MOST_HOSTS else ""
    return " ".join(hosts[:MOST_HOSTS]) + more


def _subscription_words(subscription: tuple[str, str]) -> str:
    topic, expression = subscription
    return topic if expression in {"", "*"} else f"{topic} ({expression})"


def _listed(agents: Iterable[Agent]) -> str:
    return ", ".join(map(str, agents))


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
