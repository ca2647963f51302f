"""The options that all commands share, and how a command asks and answers with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import click
from rich.console import RenderableType

from pointsman.v1 import broker_pb2
from pointsman_client.routes.route_document import Document
from pointsman_client.rpc.name_server_link import NameServerLink
from pointsman_ctl import layout
from pointsman_ctl.failure import EXIT_FAILED, EXIT_OK, Complaint, to_node_complaint
from pointsman_ctl.node import NodeAnswer, ask_every, ask_first

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class Settings:
    """What stands before the command."""

    name_servers: tuple[str, ...]
    output: str
    timeout_seconds: float

    @property
    def is_json(self) -> bool:
        """Whether the answer is for a program."""
        return self.output == "json"

    def ask_first(self, ask: Callable[[NameServerLink, float], Awaitable[AnswerT]]) -> AnswerT:
        """Ask the first server in the list that answers."""
        return asyncio.run(ask_first(self.name_servers, ask, timeout_seconds=self.timeout_seconds))

    def ask_every(
        self, ask: Callable[[NameServerLink, float], Awaitable[AnswerT]], *, addrs: Sequence[str] = ()
    ) -> list[NodeAnswer[AnswerT]]:
        """Ask every server in the list, or in ``addrs``."""
        return asyncio.run(ask_every(addrs or self.name_servers, lambda link: ask(link, self.timeout_seconds)))

    def show(self, whole: Document, parts: Iterable[RenderableType], *, on_one_line: bool = False) -> None:
        """Print an answer in the format that was asked for."""
        if self.is_json:
            click.echo(json.dumps(whole, indent=None if on_one_line else 2))
        else:
            layout.show(parts)

    def finish(
        self,
        nodes: Sequence[NodeAnswer[object]],
        whole: Document,
        parts: Iterable[RenderableType],
        *,
        is_change: bool = False,
        on_one_line: bool = False,
    ) -> int:
        """Show what the nodes answered, complain of those that failed, and return the exit code."""
        failures = {node.addr: node.failure for node in nodes if node.failure is not None}
        if len(failures) < len(nodes):
            self.show(whole, parts, on_one_line=on_one_line)
        if not failures:
            return EXIT_OK
        complaint = to_node_complaint(failures, of=[node.addr for node in nodes], is_change=is_change)
        click.echo(complaint.render(self.output), err=True)
        return EXIT_FAILED

    def warn(self, code: str, message: str, hint: str = "") -> None:
        """Say something beside the answer, on standard error."""
        complaint = Complaint(code, message, hint)
        line = json.dumps({"warning": complaint.to_document()}) if self.is_json else complaint.to_line()
        click.echo(line, err=True)

    def warn_if_warming(self, state: broker_pb2.NodeState.ValueType) -> None:
        """Say that a list comes from a server that has not heard of everything yet."""
        if state == broker_pb2.NODE_STATE_WARMING:
            self.warn("NODE_WARMING", "this name server is WARMING: the list may not be whole yet")


pass_settings = click.make_pass_decorator(Settings)
