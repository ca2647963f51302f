"""The command ``messages probe``: a message through every queue of a topic that is there for this alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click
from rich.console import RenderableType
from rich.text import Text

from pointsman.names import printable
from pointsman.wire.json_document import Document
from pointsman_client import Message, PointsmanError, QueueUnavailableError, TopicNotFoundError
from pointsman_ctl.commands.message_send_command import groups_of_topic
from pointsman_ctl.options.command_options import in_cluster, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.name_completion import complete_topics
from pointsman_ctl.output.error_report import EXIT_OK, ErrorReport, queues_failed
from pointsman_ctl.output.message_view import queue_document
from pointsman_ctl.output.output_layout import ALARM, new_table
from pointsman_ctl.servers.stored_messages import HeldQueue, StoredMessages, of_every, outgoing

PROBE_TOPIC = "pointsman-probe"
KEPT_MESSAGES = 1_000
"""Of a queue on a Redis broker, about: RocketMQ brokers remove messages by age."""
PAUSE_SECONDS = 0.02
"""Between two reads: a RocketMQ broker counts a message some milliseconds after it was sent."""


class ProbeTopicMissingError(PointsmanError):
    """A broker does not have the probe topic, so nothing is known of it."""

    code = "PROBE_TOPIC_MISSING"

    def __init__(self, topic: str) -> None:
        super().__init__(f"it does not have topic {topic}")


class NotReadError(PointsmanError):
    """A message was stored, and not read back in time."""

    code = "NOT_READ"


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """The times of one message, in seconds."""

    send: float
    whole: float
    """Until it was read."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What the probe found."""

    queues: Sequence[tuple[HeldQueue, RoundTrip | PointsmanError]]
    without: Sequence[str]
    """Brokers that do not have the topic, CLUSTER/BROKER."""

    def failures(self, topic: str) -> dict[str, PointsmanError]:
        """Return what failed, by CLUSTER/BROKER/N or CLUSTER/BROKER."""
        failed = {held.name: result for held, result in self.queues if isinstance(result, PointsmanError)}
        return failed | dict.fromkeys(self.without, ProbeTopicMissingError(topic))


@click.command()
@click.option(
    "--topic",
    callback=read_name,
    shell_complete=complete_topics,
    default=PROBE_TOPIC,
    show_default=True,
    metavar="NAME",
    help="The probe's own topic.",
)
@in_cluster
@pass_invocation
def probe(invocation: Invocation, topic: str, cluster: str) -> int:
    """Send a message through each queue of a probe topic.

    Each message is read back. Shows the time until the broker has stored it, and until it was read. Each must be done
    within --timeout. No consumer group is used, so none is left. The probe does not create the topic: `topic create`
    does, with one queue or more. A topic that a group consumes is refused. On Redis brokers about 1000 messages of a
    queue are kept.

    Exits 1 if a queue failed, or if a broker does not have the topic.

    \b
    JSON: topic, queues[].{queue.{topic, cluster, brokerName, queueId},
            sendSeconds, roundTripSeconds} or {queue, error},
          withoutTopic[] (CLUSTER/BROKER)

    \b
    Examples:
      pointsmanctl messages probe
      pointsmanctl --timeout 1 messages probe --cluster DefaultCluster
    """
    try:
        probed = asyncio.run(_probe(invocation, topic, cluster))
    except TopicNotFoundError:
        return invocation.fail(ErrorReport("PROBE_TOPIC_MISSING", f"no broker has topic {topic}", _remedy(topic)))
    if isinstance(probed, ErrorReport):
        return invocation.fail(probed)
    document: Document = {
        "topic": topic,
        "queues": [_document(*each) for each in probed.queues],
        "withoutTopic": list(probed.without),
    }
    invocation.show(document, _parts(probed))
    failures = probed.failures(topic)
    if not failures:
        return EXIT_OK
    report = queues_failed(failures)
    return invocation.fail(report if len(probed.without) < len(failures) else _with_hint(report, _remedy(topic)))


def _remedy(topic: str) -> str:
    return f"create it with `pointsmanctl topic create {topic} --queues 1`"


def _with_hint(report: ErrorReport, hint: str) -> ErrorReport:
    return ErrorReport(report.code, report.message, hint, report.servers)


async def _probe(invocation: Invocation, topic: str, cluster: str) -> Probed | ErrorReport:
    if topic != PROBE_TOPIC and (groups := (await groups_of_topic(invocation, topic, cluster)).names):
        text = f"topic {topic} is consumed by {', '.join(groups)}: a probe would send to its members"
        return ErrorReport("TOPIC_CONSUMED", printable(text), "give a topic that is there for probes alone")
    async with invocation.stored_messages(max_length=KEPT_MESSAGES) as stored:
        queues = await stored.queues(topic, cluster)
        brokers = await stored.brokers(cluster)
        having = {"/".join(held.queue.broker_key) for held in queues}
        seconds = invocation.timeout_seconds
        results = await of_every(queues, lambda held: _round_trip(stored, held, seconds))
        return Probed(results, [each for each in brokers if each not in having])


async def _round_trip(stored: StoredMessages, held: HeldQueue, seconds: float) -> RoundTrip:
    if not held.is_readable:
        raise QueueUnavailableError(str(held.queue), "consumers have no permission to read it")
    message = outgoing(Message(held.queue.topic, b"pointsmanctl messages probe"))
    begun_at = time.perf_counter()
    receipt = await stored.send(held, [message])
    stored_after = time.perf_counter() - begun_at
    (offset,) = receipt.queue_offsets
    if offset is None:
        raise NotReadError("the broker returned no offset of the message")
    try:
        async with asyncio.timeout(seconds):
            while True:
                async for found in stored.read(held, offset, offset + 1):
                    if found.message_id == message.message_id:
                        return RoundTrip(stored_after, time.perf_counter() - begun_at)
                await asyncio.sleep(PAUSE_SECONDS)
    except TimeoutError:
        raise NotReadError(f"the message was stored at offset {offset}, and not read within {seconds:g} s") from None


def _document(held: HeldQueue, result: RoundTrip | PointsmanError) -> Document:
    document: Document = {"queue": queue_document(held.queue)}
    if isinstance(result, PointsmanError):
        return {**document, "error": queues_failed({held.name: result}).to_document()}
    return {**document, "sendSeconds": round(result.send, 6), "roundTripSeconds": round(result.whole, 6)}


def _parts(probed: Probed) -> Iterable[RenderableType]:
    numbers = ("SEND MS", "ROUND TRIP MS")
    table = new_table("QUEUE", *numbers, "STATUS", right=numbers)
    for held, result in probed.queues:
        if isinstance(result, PointsmanError):
            table.add_row(printable(held.name), "-", "-", Text("FAILED", style=ALARM))
        else:
            times = (f"{1_000 * seconds:.1f}" for seconds in (result.send, result.whole))
            table.add_row(printable(held.name), *times, Text("OK", style="green"))
    for name in probed.without:
        table.add_row(printable(name), "-", "-", Text("NO TOPIC", style=ALARM))
    yield table
