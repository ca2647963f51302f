"""The commands ``offsets reset``, ``offsets skip`` and ``offsets clone``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from pointsman_ctl.commands.agent_round import AgentChoice, of_masters
from pointsman_ctl.commands.group_commands import complete_groups
from pointsman_ctl.commands.offset_reset import ResetRequest, carry_out_reset
from pointsman_ctl.options.command_options import Consent, change_options, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.message_options import QueueChoice
from pointsman_ctl.options.name_completion import complete_topics
from pointsman_ctl.options.offset_options import (
    LATEST,
    Target,
    TargetKind,
    read_expected,
    read_queues,
    read_target,
)

CommandT = TypeVar("CommandT", bound=Callable[..., object])
Expected = tuple[tuple[QueueChoice | None, int], ...]


def _queue_options(command: CommandT) -> CommandT:
    queue = click.option(
        "--queue",
        "queues",
        multiple=True,
        callback=read_queues,
        metavar="QUEUE",
        help="Only this queue: CLUSTER/BROKER/N, BROKER/N or N. Repeatable.",
    )
    expect = click.option(
        "--expect",
        "expected",
        multiple=True,
        callback=read_expected,
        metavar="[QUEUE=]OFFSET",
        help="Reset nothing unless the queue's committed offset is OFFSET. Repeatable.",
    )
    return queue(expect(command))


@click.command("reset")
@click.argument("group", callback=read_name, shell_complete=complete_groups)
@click.argument("topic", callback=read_name, shell_complete=complete_topics)
@click.option(
    "--to",
    "target",
    required=True,
    multiple=True,
    callback=read_target,
    metavar="TARGET",
    help="earliest, latest, a time, an offset, -N or +N messages, or QUEUE=OFFSET (repeatable).",
)
@_queue_options
@change_options
@of_masters
@pass_invocation
def reset(
    invocation: Invocation,
    group: str,
    topic: str,
    *,
    target: Target,
    queues: tuple[QueueChoice, ...],
    expected: Expected,
    choice: AgentChoice,
    consent: Consent,
) -> int:
    """Reset the committed offsets of GROUP in TOPIC.

    Shows each queue with its offset now, its new one and the difference in messages, and the members that are online,
    before you confirm. Offsets outside a queue become its first or last. Running members follow within a second;
    those of version 0.1 do when they are restarted. What a listener has in hand is not acknowledged. The retry topic
    of the group stays as it is; reset %RETRY%GROUP for that. Queues that are at the new offset already stay, so an
    interrupted reset is finished by the same command; with -N or +N give --expect, or the offsets that it showed.

    The offsets of Redis brokers are reset at their agents. A time is that at which the message was born, on RocketMQ
    brokers that at which it was stored. RocketMQ brokers from 5.2 reset any queue. Older ones with running members
    reset all queues to earliest, latest or a time, as mqadmin does: their members follow within half a minute. A
    broadcasting group is refused: its offsets are at its members.

    \b
    JSON: plan.{group, topic, to, queues[].{queue, server, committedOffset,
            newOffset, difference, minOffset, maxOffset, isChanged},
            members[].{clientId, followsReset}, notReset[].{broker, reason}},
          dryRun, recorded[].{addr, inHistory} or {addr, error},
          servers[].{addr, changed, queues} or {addr, error}

    \b
    Examples:
      pointsmanctl offsets reset billing orders --to 90m --dry-run
      pointsmanctl offsets reset billing orders --to 2026-11-27T03:12Z
      pointsmanctl offsets reset billing orders --to -100 --queue broker-a/3
      pointsmanctl offsets reset billing orders --to 47 --queue a/3 --expect 50
    """
    if target.kind is TargetKind.EACH and queues:
        raise click.UsageError("--queue cannot be combined with --to QUEUE=OFFSET")
    return carry_out_reset(invocation, choice, ResetRequest(group, topic, target, queues, expected), consent)


@click.command("skip")
@click.argument("group", callback=read_name, shell_complete=complete_groups)
@click.argument("topic", callback=read_name, shell_complete=complete_topics)
@_queue_options
@change_options
@of_masters
@pass_invocation
def skip(
    invocation: Invocation,
    group: str,
    topic: str,
    queues: tuple[QueueChoice, ...],
    expected: Expected,
    choice: AgentChoice,
    consent: Consent,
) -> int:
    """Skip the backlog of GROUP in TOPIC: `offsets reset --to latest`.

    The messages that are skipped are those up to the end of each queue at the time of the plan.

    \b
    JSON: as of `offsets reset`

    \b
    Examples:
      pointsmanctl offsets skip billing orders
      pointsmanctl offsets skip billing orders --queue broker-a/3 --yes
    """
    return carry_out_reset(invocation, choice, ResetRequest(group, topic, LATEST, queues, expected), consent)


@click.command("clone")
@click.argument("source", metavar="FROM", callback=read_name, shell_complete=complete_groups)
@click.argument("group", metavar="TO", callback=read_name, shell_complete=complete_groups)
@click.argument("topic", callback=read_name, shell_complete=complete_topics)
@change_options
@of_masters
@pass_invocation
def clone(invocation: Invocation, source: str, group: str, topic: str, choice: AgentChoice, consent: Consent) -> int:
    """Give group TO the committed offsets that group FROM has in TOPIC.

    TO may be new: it then begins where FROM is. Queues in which FROM has no offset stay.

    \b
    JSON: as of `offsets reset`; plan.to is FROM

    \b
    Examples:
      pointsmanctl offsets clone billing billing-v2 orders
      pointsmanctl offsets clone billing billing-v2 orders --dry-run
    """
    if source == group:
        raise click.UsageError(f"FROM and TO are both {group}")
    wanted = ResetRequest(group, topic, LATEST, clone_of=source)
    return carry_out_reset(invocation, choice, wanted, consent)
