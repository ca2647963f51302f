"""Changes of what brokers hold: the plan, the operator's consent, the record, the change, and each server's answer.

The record comes before the change, so that the history has also those that were interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rich.console import RenderableType

from pointsman.names import is_rocketmq
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.wire.json_document import Document
from pointsman_client import PointsmanError
from pointsman_ctl.commands.server_changes import Outcome, outcome_document, outcome_line
from pointsman_ctl.options.command_options import Consent, confirm
from pointsman_ctl.options.invocation import Invocation
from pointsman_ctl.output.error_report import EXIT_OK, agents_failed, nodes_failed
from pointsman_ctl.output.output_layout import node_document
from pointsman_ctl.servers.name_servers import PointsmanNameServer
from pointsman_ctl.servers.server_calls import NodeResponse

Apply = Callable[[], Awaitable[Sequence[NodeResponse[Outcome]]]]
"""Makes the change at each broker or agent. It can be repeated: what is done already is an outcome, not a failure."""
Record = NodeResponse[admin.RecordChangeResponse]


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """What a command is about to change."""

    question: str
    """Asks for the confirmation."""
    document: Document
    """What is, what will be and who is affected."""
    parts: Sequence[RenderableType]
    """The same for people."""
    record: admin.RecordChangeRequest
    """For the history, without its author."""
    is_empty: bool = False
    """Nothing is left to change."""


def carry_out(invocation: Invocation, plan: PlannedChange, apply: Apply, consent: Consent) -> int:
    """Show the plan and, with the operator's consent, record and make the change; return the exit code.

    A change that no name server could record is not made. Raises NotConfirmedError, or a usage error without a
    terminal and without ``--yes``. JSON: plan, dryRun, recorded[], servers[].
    """
    if not invocation.is_json:
        invocation.show({}, plan.parts)
    if consent.dry_run or plan.is_empty:
        return _show_result(invocation, plan, consent, [], [])
    confirm(plan.question, yes=consent.yes)
    recorded = record_change(invocation, plan.record, by=consent.by)
    failures = {each.addr: each.failure for each in recorded if each.failure is not None}
    addrs = [each.addr for each in recorded]
    if failures and len(failures) == len(recorded):
        return invocation.fail(nodes_failed(failures, of=addrs, is_change=True))
    servers = asyncio.run(_applied(apply))
    code = _show_result(invocation, plan, consent, recorded, servers)
    return invocation.fail(nodes_failed(failures, of=addrs, is_change=True)) if failures else code


async def _applied(apply: Apply) -> Sequence[NodeResponse[Outcome]]:
    return await apply()


def record_change(invocation: Invocation, record: admin.RecordChangeRequest, *, by: str) -> list[Record]:
    """Record a change at every name server; RocketMQ's keep no history."""
    if is_rocketmq(invocation.name_servers[0]):
        invocation.warn("NOT_RECORDED", "RocketMQ name servers keep no history: the change is not recorded")
        return []
    request = admin.RecordChangeRequest()
    request.CopyFrom(record)
    request.by = by

    async def send(server: PointsmanNameServer, deadline: float) -> admin.RecordChangeResponse:
        return await server.call(server.admin.RecordChange, request, deadline=deadline)

    recorded = invocation.query_every(send)
    without = [each.addr for each in recorded if each.response is not None and not each.response.in_history]
    if without:
        problem = "the history is off or cannot be written, so the change is not in it"
        invocation.warn("NOT_IN_HISTORY", f"{', '.join(without)}: {problem}")
    return recorded


def _show_result(
    invocation: Invocation,
    plan: PlannedChange,
    consent: Consent,
    recorded: Sequence[Record],
    servers: Sequence[NodeResponse[Outcome]],
) -> int:
    document: Document = {
        "plan": plan.document,
        "dryRun": consent.dry_run,
        "recorded": [node_document(each, lambda answer: {"inHistory": answer.in_history}) for each in recorded],
        "servers": [node_document(each, outcome_document) for each in servers],
    }
    invocation.show(document, [outcome_line(each) for each in servers])
    failures: dict[str, PointsmanError] = {each.addr: each.failure for each in servers if each.failure is not None}
    if not failures:
        return EXIT_OK
    report = agents_failed(failures, of=[each.addr for each in servers], is_change=True, noun="server")
    return invocation.fail(report)
