"""What nodes say of themselves, as tables: information, flapping, watchers, digests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import RenderableType
from rich.text import Text

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman_client.rpc.wire_time import seconds_of
from pointsman_ctl.digest_difference import DigestDifference
from pointsman_ctl.layout import ALARM, WARNING, failure_line, new_table, node_heading, state_cell
from pointsman_ctl.node import NodeAnswer
from pointsman_ctl.question import NodeDigests
from pointsman_ctl.setting_difference import Setting, SettingDifference
from pointsman_ctl.wording import duration_words, guard_words, node_state_words, printable

InfoNodes = Sequence[NodeAnswer[admin.GetNodeInfoResponse]]


def info_parts(nodes: InfoNodes, *, with_configuration: bool) -> Iterable[RenderableType]:
    """Show what each node says of itself."""
    for position, node in enumerate(nodes):
        info = node.answer
        yield from node_heading(position, node.addr, info.node if info else "")
        if info is None:
            yield failure_line(node)
            continue
        facts = new_table("FACT", "VALUE")
        facts.add_row("version", printable(info.version))
        facts.add_row("state", state_cell(node_state_words(info.state)))
        facts.add_row("boot", f"{info.boot:016x}")
        facts.add_row("uptime", duration_words(seconds_of(info.uptime)))
        if info.provisional_brokers:
            facts.add_row("not heard since restart", str(info.provisional_brokers))
        for name, size in sorted(info.sizes.items()):
            facts.add_row(printable(name).replace("_", " "), str(size))
        yield facts
        yield from _complaints(info)
        for guard in info.guards:
            yield Text(guard_words(guard), style=ALARM if guard.active else "")
        if with_configuration and info.configuration:
            yield ""
            for line in info.configuration.rstrip().splitlines():
                yield Text(printable(line), style="dim")


def health_parts(nodes: InfoNodes) -> Iterable[RenderableType]:
    """Show in a line what each node may be asked."""
    for node in nodes:
        if node.answer is None:
            yield failure_line(node)
            continue
        state = node_state_words(node.answer.state)
        yield Text(f"{node.addr} ").append_text(state_cell(state)).append(_progress(node.answer))
        yield from _complaints(node.answer)


def _progress(info: admin.GetNodeInfoResponse) -> str:
    """Without a snapshot nobody knows how many brokers are to come."""
    if info.state != broker_pb2.NODE_STATE_WARMING or not info.provisional_brokers or "brokers" not in info.sizes:
        return ""
    brokers = info.sizes["brokers"]
    return f": {brokers - info.provisional_brokers} of {brokers} brokers heard"


def _complaints(info: admin.GetNodeInfoResponse) -> Iterable[RenderableType]:
    return [Text(f"COMPLAINT: {printable(complaint)}", style=ALARM) for complaint in info.complaints]


def flapping_parts(nodes: Sequence[NodeAnswer[admin.ListFlappingResponse]]) -> Iterable[RenderableType]:
    """Show each node's penalties, the highest first."""
    for position, node in enumerate(nodes):
        yield from node_heading(position, node.addr, node.answer.node if node.answer else "")
        if node.answer is None:
            yield failure_line(node)
        elif not node.answer.scores:
            yield Text("no broker flapped")
        else:
            right = ("ID", "PENALTY", "OUTAGES", "AGO")
            table = new_table("CLUSTER", "BROKER", "ID", "PENALTY", "OUTAGES", "LAST EVENT", "AGO", "", right=right)
            for score in node.answer.scores:
                table.add_row(
                    score.cluster,
                    score.broker_name,
                    str(score.broker_id),
                    f"{score.penalty:.0f}",
                    str(score.outages),
                    printable(score.last_event),
                    duration_words(seconds_of(score.last_event_ago)),
                    Text("FLAPPING", style=ALARM) if score.flapping else "",
                )
            yield table


def watchers_parts(nodes: Sequence[NodeAnswer[admin.ListWatchersResponse]]) -> Iterable[RenderableType]:
    """Show who watches a topic at each node."""
    for position, node in enumerate(nodes):
        answer = node.answer
        yield from node_heading(position, node.addr, answer.node if answer else "")
        if answer is None:
            yield failure_line(node)
            continue
        if answer.watchers:
            table = new_table(
                "CLIENT", "SINCE", "TOPICS", "WAITING", "LAG", right=("SINCE", "TOPICS", "WAITING", "LAG")
            )
            for watcher in answer.watchers:
                table.add_row(
                    printable(watcher.peer),
                    duration_words(seconds_of(watcher.age)),
                    str(watcher.topics),
                    str(watcher.pending),
                    duration_words(seconds_of(watcher.lag)) if watcher.pending else "-",
                )
            yield table
        more = f", the oldest {len(answer.watchers)} shown" if len(answer.watchers) < answer.total else ""
        yield Text(f"{answer.total} watcher{'s' if answer.total != 1 else ''}{more}", style="dim")


def difference_parts(
    addrs: tuple[str, str],
    sides: tuple[NodeDigests, NodeDigests],
    difference: DigestDifference,
    settings: Sequence[SettingDifference],
) -> Iterable[RenderableType]:
    """Show the topics and settings on which two nodes differ, and what excuses it."""
    first, second = addrs
    found = [(topic, "differs") for topic in difference.differing]
    found += [(topic, f"only at {first}") for topic in difference.only_first]
    found += [(topic, f"only at {second}") for topic in difference.only_second]
    if found:
        table = new_table("TOPIC", "DIFFERENCE")
        for topic, words in sorted(found):
            table.add_row(printable(topic), words)
        yield table
    ours, theirs = len(sides[0].digests), len(sides[1].digests)
    counts = f"{ours} topic{'s' if ours != 1 else ''} at {first}, {theirs} at {second}"
    words = f"{len(found)} differ{'s' if len(found) == 1 else ''}" if found else "equal"
    yield Text(f"{counts}: {words}", style=WARNING if found else "green")
    if settings:
        table = new_table("SETTING", *(f"AT {addr}" for addr in addrs))
        for each in settings:
            table.add_row(printable(each.label), *(_setting_words(each.at[addr]) for addr in addrs))
        yield table
    settled = sides[0].settings.keys() | sides[1].settings.keys()
    words = f"{len(settings)} of {len(settled)} differ" if settings else f"{len(settled)} equal"
    if settled:
        yield Text(f"settings of operators: {words}", style=WARNING if settings else "green")
    for addr, side in zip(addrs, sides, strict=True):
        if side.state == broker_pb2.NODE_STATE_WARMING:
            yield Text(f"{addr} is WARMING: it may not have heard of every broker yet", style=WARNING)


def _setting_words(setting: Setting | None) -> str:
    if setting is None:
        return "not set"
    rest = "" if setting.remaining_seconds is None else f" for {duration_words(setting.remaining_seconds)}"
    return f"{printable(setting.value) or 'set'}{rest}"
