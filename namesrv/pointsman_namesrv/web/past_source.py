"""Where the HTTP threads take the facts of a moment in the past from: the one worker, asked through the event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from pointsman.history.row_format import FIELDS
from pointsman.names import registered_name_problem
from pointsman.wire.refusals import FieldViolation, InvalidRequest, NotReady, field_violations, refuse_if_any, shown
from pointsman_namesrv.core.request_rules import name_violations
from pointsman_namesrv.history.past_turns import Asker
from pointsman_namesrv.history.row import Record
from pointsman_namesrv.history.row_decoding import RowInvalid, to_record
from pointsman_namesrv.rpc.past_queries import PastQuestions, Question
from pointsman_namesrv.web.loop_documents import TooManyRequests
from pointsman_namesrv.web.page_data import NodeFacts

WAIT_SECONDS = 8.0
"""Longest answer over HTTP: a connection ends after 10 s."""
EARLIEST = datetime(1971, 1, 1, tzinfo=UTC)
"""The steps of an earlier moment would begin before 1970."""

_NO_FIELDS = dict.fromkeys(FIELDS)

T = TypeVar("T")
Ask = Callable[[Mapping[str, Any], Asker], Awaitable[dict[str, Any]]]
"""Answers a question of :mod:`~pointsman_namesrv.history.past_questions`; takes also whose question it is."""


@dataclass(frozen=True, slots=True)
class PastAnswer:
    """An answer of the worker, and the facts of the name server now."""

    node: NodeFacts
    at: datetime
    """The moment, UTC."""
    answer: Mapping[str, Any]


class PastSource:
    """The facts of a moment, and what happened. Each method blocks for WAIT_SECONDS at most.

    Raises InvalidRequest, HistoryOff, TooManyQuestions, QuestionTooLarge, PastUnreadable, TooManyRequests, NotReady.
    """

    def __init__(self, ask: Ask, questions: PastQuestions, node: Callable[[], NodeFacts]) -> None:
        """Must run in the event loop."""
        self.questions = questions
        self._ask = ask
        self.asker = Asker("", "")
        """Whose questions these are, where several wait."""
        self._node = node
        self._loop = asyncio.get_running_loop()

    def asked_by(self, asker: Asker) -> PastSource:
        """Return the same source for the questions of a caller."""
        source = copy.copy(self)
        source.asker = asker
        return source

    def fleet(self, cluster: str, at: datetime) -> PastAnswer:
        """Return all brokers of a cluster as they were; empty: of all."""
        refuse_if_any(name_violations("cluster", cluster) if cluster else [])
        return self._answer({"kind": "fleet", "cluster": cluster or None}, at)

    def broker(self, cluster: str, broker_name: str, at: datetime) -> PastAnswer:
        """Return one broker name as it was, with its events up to then."""
        refuse_if_any([*name_violations("cluster", cluster), *name_violations("broker_name", broker_name)])
        return self._answer({"kind": "broker", "broker_name": broker_name, "cluster": cluster, "topics": True}, at)

    def topic(self, topic: str, at: datetime) -> PastAnswer:
        """Return the route of one topic as it was."""
        refuse_if_any(field_violations("topic", topic, registered_name_problem(topic)))
        return self._answer({"kind": "route", "topic": topic}, at)

    def answer(self, question: Question, *, within: float | None = None) -> tuple[NodeFacts, dict[str, Any]]:
        """Return the name server and its answer; ``within``: the longest wait in seconds, instead of WAIT_SECONDS."""

        async def asked() -> tuple[NodeFacts, dict[str, Any]]:
            return self._node(), await self._ask(question, self.asker)

        return self._from_loop(asked(), WAIT_SECONDS if within is None else within)

    def _answer(self, question: Mapping[str, Any], at: datetime) -> PastAnswer:
        return self._from_loop(self._asked({**question, "at": at.isoformat(), "steps": True}, at), WAIT_SECONDS)

    def _from_loop(self, asked: Coroutine[Any, Any, T], within: float) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(asked, self._loop)
        except RuntimeError:  # the loop is closed
            asked.close()
            raise NotReady("this name server is stopping; use another one") from None
        try:
            return future.result(within)
        except concurrent.futures.CancelledError:
            raise NotReady("this name server is stopping; use another one") from None
        except TimeoutError:
            future.cancel()
            raise TooManyRequests(
                f"the history was not read within {within:g} s; retry, or use pointsmanctl, which waits longer"
            ) from None

    async def _asked(self, question: Mapping[str, Any], at: datetime) -> PastAnswer:
        node = self._node()
        if not EARLIEST <= at <= node.at:
            text = (
                f"must be a time from {EARLIEST:%Y} to now, {node.at:%Y-%m-%dT%H:%M:%SZ}, not {shown(at.isoformat())}"
            )
            raise InvalidRequest([FieldViolation("at", text)])
        return PastAnswer(node, at, await self._ask(question, self.asker))


def records_of(rows: Iterable[Mapping[str, Any]]) -> Iterator[Record]:
    """Decode the events of an answer, without those of another version of this program."""
    for row in rows:
        with suppress(RowInvalid):
            yield to_record({**_NO_FIELDS, **row}, run=0)  # an answer has only fields that are set
