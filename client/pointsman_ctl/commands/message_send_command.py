"""The command ``messages send``: messages of an operator, with the groups that receive them named before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import click
from google.protobuf.struct_pb2 import Value
from rich.console import RenderableType
from rich.text import Text

from pointsman.names import printable
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.wire.json_document import Document
from pointsman.wire.operator_texts import counted
from pointsman_client import (
    InvalidInputError,
    Message,
    NoWritableQueueError,
    OutgoingMessage,
    PointsmanError,
    QueueUnavailableError,
)
from pointsman_ctl.commands.agent_round import OUT_AND_GONE, AgentChoice, agent_and_broker_round
from pointsman_ctl.commands.planned_change import record_change
from pointsman_ctl.options.command_options import Consent, change_options, confirm, in_cluster, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.message_options import QueueChoice, chosen_queues, queues_option
from pointsman_ctl.options.name_completion import complete_topics
from pointsman_ctl.output.error_report import EXIT_OK, nodes_failed, queues_failed
from pointsman_ctl.output.message_view import BodyForm, body_text, queue_document
from pointsman_ctl.output.output_layout import ALARM, new_table, node_document
from pointsman_ctl.servers.agent_queries import AgentServer
from pointsman_ctl.servers.rocketmq_broker import RocketmqBroker
from pointsman_ctl.servers.stored_messages import HeldQueue, outgoing
from pointsman_ctl.servers.topic_brokers import topic_broker

MAX_COUNT = 100_000
MAX_RATE = 10_000.0
MAX_BODY_BYTES = 64 * 1024 * 1024


def _read_property(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    found = dict[str, str]()
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"property must be NAME=VALUE, got {value!r}")
        if name in found:
            raise click.BadParameter(f"property {name!r} is given twice")
        found[name] = text
    return found


def _read_body(body: str | None, file: Path | None) -> bytes:
    if body is not None and file is None:
        # What the shell passes is bytes, not always UTF-8.
        return body.encode(errors="surrogateescape")
    if file is None or body is not None:
        raise click.UsageError("give --body or --file, one of both")
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BODY_BYTES + 1)
    except OSError as error:
        raise click.UsageError(f"--file: {file} cannot be read: {error.strerror}") from None
    if len(content) > MAX_BODY_BYTES:
        raise click.UsageError(f"--file: {file} is larger than {MAX_BODY_BYTES} bytes")
    return content


@click.command()
@click.argument("topic", callback=read_name, shell_complete=complete_topics)
@click.option("--body", metavar="TEXT", help="The body.")
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the body.",
)
@click.option("--key", "keys", multiple=True, metavar="KEY", help="A lookup key. Repeatable.")
@click.option("--tag", default="", metavar="TAG", help="Its tag.")
@click.option(
    "--property",
    "properties",
    multiple=True,
    callback=_read_property,
    metavar="NAME=VALUE",
    help="A further property. Repeatable.",
)
@queues_option
@click.option(
    "--sharding-key", default="", metavar="KEY", help="The queue of this key, as of a producer's send_by_key."
)
@click.option("--count", type=click.IntRange(1, MAX_COUNT), default=1, show_default=True, help="Number of messages.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0.001, max=MAX_RATE),
    metavar="N",
    help="Messages per second.  [default: one after the other]",
)
@in_cluster
@change_options
@pass_invocation
def send(
    invocation: Invocation,
    topic: str,
    *,
    body: str | None,
    file: Path | None,
    keys: tuple[str, ...],
    tag: str,
    properties: dict[str, str],
    choices: tuple[QueueChoice, ...],
    sharding_key: str,
    count: int,
    rate: float | None,
    cluster: str,
    consent: Consent,
) -> int:
    """Send messages to TOPIC; show queue, offset and latency of each.

    Without --queue or --sharding-key to the writable queues in turn. If groups consume the topic, they are named, and
    you must confirm: their members will process the messages. A group counts if it has a member that subscribes to the
    topic, or an offset in it. No message is sent a second time: one without a response may be stored or not. The
    history of each name server has the change. Exits 1 if a message was not sent; the others are.

    The queue of --sharding-key is that of producers with the default map (HashRing).

    \b
    JSON: plan.{topic, count, bodyBytes, queues[], groups[], unknown[]}, dryRun,
          recorded[].{addr, node, inHistory} or {addr, error},
          messages[].{queue.{topic, cluster, brokerName, queueId}, messageId,
            status, queueOffset, latencySeconds} or {queue, messageId, error};
          unknown[]: brokers whose groups are not known

    \b
    Examples:
      pointsmanctl messages send orders --body 'order 4711 paid' --key 4711
      pointsmanctl messages send orders --body x --queue broker-a/3 --yes
      pointsmanctl messages send orders --body x --count 100 --rate 10 --dry-run
    """
    message = _message(topic, _read_body(body, file), tag, keys, properties)
    if sharding_key and (choices or cluster):
        raise click.UsageError("--sharding-key cannot be combined with --queue or --cluster")
    plan = asyncio.run(_plan(invocation, message, cluster, choices, sharding_key, count))
    if not invocation.is_json:
        invocation.show({}, plan.parts())
    if consent.dry_run:
        invocation.show({"plan": plan.document(), "dryRun": True, "recorded": [], "messages": []}, [])
        return EXIT_OK
    if plan.groups.names or plan.groups.unknown:
        confirm(plan.question(), yes=consent.yes)
    recorded = record_change(invocation, plan.record(), by=consent.by)
    failures = {each.addr: each.failure for each in recorded if each.failure is not None}
    addrs = [each.addr for each in recorded]
    if failures and len(failures) == len(recorded):
        return invocation.fail(nodes_failed(failures, of=addrs, is_change=True))
    sent = list[Sent]()
    try:
        asyncio.run(_send(invocation, plan, rate, sent))
    finally:
        # Also of a run that is interrupted.
        document: Document = {
            "plan": plan.document(),
            "dryRun": False,
            "recorded": [node_document(each, lambda answer: {"inHistory": answer.in_history}) for each in recorded],
            "messages": [each.document() for each in sent],
        }
        invocation.show(document, _sent_parts(sent))
    failed = {each.held.name: each.failure for each in sent if each.failure is not None}
    if failed:
        return invocation.fail(queues_failed(failed))
    return invocation.fail(nodes_failed(failures, of=addrs, is_change=True)) if failures else EXIT_OK


def _message(topic: str, body: bytes, tag: str, keys: Sequence[str], properties: dict[str, str]) -> Message:
    try:
        return Message(topic, body, tag, tuple(keys), properties)
    except InvalidInputError as error:
        raise click.UsageError(printable(str(error))) from None


@dataclass(frozen=True, slots=True)
class TopicGroups:
    """What consumes a topic."""

    names: tuple[str, ...]
    """Sorted."""
    unknown: tuple[str, ...] = ()
    """Brokers whose groups are not known, CLUSTER/BROKER/ID or an address, sorted."""


@dataclass(frozen=True, slots=True)
class SendPlan:
    """What is about to be sent."""

    message: Message
    count: int
    queues: Sequence[HeldQueue]
    """They get messages in turn."""
    groups: TopicGroups

    def parts(self) -> Iterator[RenderableType]:
        """Render for people."""
        message = self.message
        where = self.queues[0].name if len(self.queues) == 1 else counted(len(self.queues), "queue")
        yield Text(
            printable(f"{counted(self.count, 'message')} of {len(message.body)} bytes to {where} of {message.topic}")
        )
        yield Text(f"body: {body_text(message.body, BodyForm.SHORT)}")
        yield Text(printable(f"groups that receive it: {', '.join(self.groups.names) or 'none'}"))
        if self.groups.unknown:
            yield Text(printable(f"groups are not known at {', '.join(self.groups.unknown)}"), style=ALARM)

    def question(self) -> str:
        """Ask."""
        who = ", ".join(self.groups.names) or f"groups that are not known ({', '.join(self.groups.unknown)})"
        return printable(f"Send {counted(self.count, 'message')} to {self.message.topic}, received by {who}?")

    def document(self) -> Document:
        """Render for scripts."""
        return {
            "topic": self.message.topic,
            "count": self.count,
            "bodyBytes": len(self.message.body),
            "queues": [queue_document(each.queue) for each in self.queues],
            "groups": list(self.groups.names),
            "unknown": list(self.groups.unknown),
        }

    def record(self) -> admin.RecordChangeRequest:
        """Return the row of the history."""
        clusters = {each.queue.cluster for each in self.queues}
        topic = self.message.topic
        return admin.RecordChangeRequest(
            what=f"messages sent to {topic}",
            cluster=clusters.pop() if len(clusters) == 1 else "",
            broker_names=sorted({each.queue.broker_name for each in self.queues})[:1_000],
            topic=topic,
            after=Value(string_value=f"{self.count} of {len(self.message.body)} bytes"),
        )


@dataclass(frozen=True, slots=True)
class Sent:
    """One message, and what became of it."""

    held: HeldQueue
    message_id: str
    seconds: float
    status: str = ""
    offset: int | None = None
    failure: PointsmanError | None = None

    def document(self) -> Document:
        """Render for scripts."""
        of_message = {"queue": queue_document(self.held.queue), "messageId": self.message_id}
        if self.failure is not None:
            return {**of_message, "error": queues_failed({self.held.name: self.failure}).to_document()}
        latency = round(self.seconds, 6)
        return {**of_message, "status": self.status, "queueOffset": self.offset, "latencySeconds": latency}


async def _plan(
    invocation: Invocation,
    message: Message,
    cluster: str,
    choices: Sequence[QueueChoice],
    sharding_key: str,
    count: int,
) -> SendPlan:
    topic = message.topic
    async with invocation.stored_messages() as stored:
        queues = await stored.queues(topic, cluster)
        if sharding_key:
            place = await stored.queue_of_key(topic, sharding_key)
            chosen = [each for each in queues if each.queue == place]
        else:
            chosen = chosen_queues(topic, queues, choices)
    writable = [each for each in chosen if each.is_writable]
    if not writable and (sharding_key or choices) and chosen:
        raise QueueUnavailableError(str(chosen[0].queue), "it has no write permission, or its broker has no master")
    if not writable:
        raise NoWritableQueueError(topic, "its brokers have no master, or no write permission for it")
    return SendPlan(message, count, writable[:count], await groups_of_topic(invocation, topic, cluster))


async def groups_of_topic(invocation: Invocation, topic: str, cluster: str = "") -> TopicGroups:
    """Return the groups with a member that subscribes to the topic, or with an offset in it.

    Raises NameServersUnavailableError, and ClusterNotFoundError when no name server knows the cluster.
    """

    async def query(server: AgentServer | RocketmqBroker, deadline: float) -> set[str]:
        return {each.group for each in await topic_broker(server).groups(topic, deadline)}

    choice = AgentChoice(cluster=cluster, absent=OUT_AND_GONE)
    async with agent_and_broker_round(invocation, choice) as asking:
        result = await asking.query(query)
    names = sorted(set().union(*(found for _, found in result.received)))
    return TopicGroups(tuple(names), tuple(sorted(each.name for each in result.missing)))


async def _send(invocation: Invocation, plan: SendPlan, rate: float | None, sent: list[Sent]) -> None:
    """Send one message after the other; ``sent`` has what became of each, also if it is interrupted."""
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    async with invocation.stored_messages() as stored:
        for number, held in zip(range(plan.count), cycle(plan.queues), strict=False):
            if rate is not None:
                await asyncio.sleep(max(0.0, started_at + number / rate - loop.time()))
            each: OutgoingMessage = outgoing(plan.message)
            begun_at = time.perf_counter()
            try:
                receipt = await stored.send(held, [each])
            except PointsmanError as failure:
                sent.append(Sent(held, each.message_id, time.perf_counter() - begun_at, failure=failure))
            else:
                seconds = time.perf_counter() - begun_at
                sent.append(Sent(held, each.message_id, seconds, receipt.status.value, receipt.queue_offsets[0]))


def _sent_parts(sent: Sequence[Sent]) -> Iterable[RenderableType]:
    table = new_table("QUEUE", "OFFSET", "ID", "STATUS", "MS", right=("OFFSET", "MS"))
    for each in sent:
        status = Text("FAILED", style=ALARM) if each.failure is not None else Text(each.status)
        offset = "-" if each.offset is None else str(each.offset)
        table.add_row(printable(each.held.name), offset, each.message_id, status, f"{1_000 * each.seconds:.1f}")
    yield table
    latencies = sorted(each.seconds for each in sent if each.failure is None)
    if len(latencies) > 1:
        median, most = latencies[len(latencies) // 2], latencies[-1]
        failed = len(sent) - len(latencies)
        yield Text(
            f"{len(latencies)} sent, {failed} failed; median {1_000 * median:.1f} ms, at most {1_000 * most:.1f} ms"
        )
