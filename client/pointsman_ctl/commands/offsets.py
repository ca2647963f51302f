"""Queues as the brokers' agents know them: who has locked them, and how far consumer groups have read."""

from __future__ import annotations

import click

from pointsman_ctl import group_document, group_table
from pointsman_ctl.agent_asking import ask_agents, finish
from pointsman_ctl.agent_choice import AgentChoice, of_agents
from pointsman_ctl.agent_question import locks_of, offsets_of
from pointsman_ctl.argument import read_name
from pointsman_ctl.offset_view import group_totals, offset_rows, without_empty_retries
from pointsman_ctl.settings import Settings, pass_settings


@click.command()
@click.option("--group", callback=read_name, metavar="NAME", help="Only locks of this consumer group.")
@of_agents
@pass_settings
def locks(settings: Settings, group: str, choice: AgentChoice) -> int:
    """Show which consumers have locked which queues.

    A consumer locks the queues that it reads at the broker's agent. RENEWED is the time since the holder said that
    it still wants the lock; an EXPIRED one is given to whoever asks next. Agents that did not answer are named on
    standard error; exits 1 if none did.

    \b
    JSON: locks[].{group, topic, agent, brokers[], queueId, clientId,
            renewedAgoSeconds, isExpired},
          agents[].{addr, brokers[], lifetimeSeconds, locks}
          or {addr, brokers[], error}

    \b
    Examples:
      pointsmanctl locks
      pointsmanctl locks --group billing --cluster DefaultCluster
    """
    asked = ask_agents(settings, choice, lambda link, deadline: locks_of(link, deadline, group))
    return finish(settings, asked, group_document.to_locks_document(asked), group_table.locks_parts(asked.whole))


@click.command()
@click.argument("group", required=False, callback=read_name)
@click.option("--retry", is_flag=True, help="Show empty queues of retry topics too.")
@of_agents
@pass_settings
def offsets(settings: Settings, group: str, choice: AgentChoice, *, retry: bool) -> int:
    """Show how far consumer groups have read each queue.

    All groups, or GROUP. COMMITTED is the next message to read, MAX one beyond the last message, LAG what lies between.
    Where a broker does not tell where its queues end, there is no MAX. BEYOND END: the queue is shorter than what was
    read of it, so it has lost messages. Queues of retry topics that are read to their end are left out of the table,
    unless --retry is given; totals and JSON have them. Below is the total lag of each group. Agents that did not answer
    are named on standard error; exits 1 if none did.

    \b
    JSON: offsets[].{group, topic, agent, brokers[], queueId, committedOffset,
            maxOffset, lag, isBeyondEnd}; maxOffset and lag are null if not known,
          totals[].{group, queues, lag, queuesWithoutEnd},
          agents[].{addr, brokers[], durableWithinSeconds, offsets}
          or {addr, brokers[], error}

    \b
    Examples:
      pointsmanctl offsets billing
      pointsmanctl offsets
      pointsmanctl -o json offsets billing | jq '.totals[0].lag'
    """
    asked = ask_agents(settings, choice, lambda link, deadline: offsets_of(link, deadline, group))
    rows = offset_rows(asked.whole)
    totals = group_totals(rows)
    whole = group_document.to_offsets_document(asked, rows, totals)
    shown = rows if retry else without_empty_retries(rows)
    return finish(settings, asked, whole, group_table.offsets_parts(shown, totals, folded=len(rows) - len(shown)))


COMMANDS = (locks, offsets)
