"""Questions about the past, passed to the one worker process: bounded in number, memory and time.

The loop does nothing but wait. A worker that fails, or takes too long, or whose question was given up is killed; the
next question starts another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pointsman.clock import Clock
from pointsman.wire.refusals import Refusal
from pointsman_namesrv.history.past_files import MAX_ROWS, PastFiles
from pointsman_namesrv.history.past_turns import FIRST_ESTIMATE_SECONDS, Asker, NoRoom, PastTurns
from pointsman_namesrv.node_metrics import PastMetrics
from pointsman_namesrv.slices import PAUSE_SECONDS, Slices

MAX_WAITING = 8
"""Questions that wait for the one being answered."""
DEADLINE_SECONDS = 30.0
"""Longest answer."""
MEMORY_BYTES = 160 * 1024 * 1024
"""Address space of the worker."""
MAX_MESSAGE_BYTES = 8 * 1024 * 1024
SLICE_SECONDS = 0.0002
"""Longest time for which an answer holds the loop: a route query waits for it."""
IDLE_SECONDS = 60.0
"""After which a worker is started that has no question, to index closed files."""

log = logging.getLogger(__name__)


class HistoryOff(Refusal):
    """The name server records no history."""

    code = "HISTORY_OFF"
    status = "FAILED_PRECONDITION"

    def __init__(self) -> None:
        super().__init__("this name server records no history ([history] enabled = false), so it has no past to show")


class TooManyQuestions(Refusal):
    """More questions about the past than may wait."""

    code = "TOO_MANY_QUESTIONS"
    status = "RESOURCE_EXHAUSTED"

    def __init__(self, wait: float) -> None:
        super().__init__(
            f"{MAX_WAITING} questions about the past are waiting already, and one is answered at a time; "
            f"retry after {wait:.1f} s"
        )
        self.wait = wait

    @property
    def facts(self) -> Mapping[str, str]:
        """Return when to retry."""
        return {"retry_after_seconds": f"{self.wait:.3f}"}


class QuestionTooLarge(Refusal):
    """An answer needs more memory or time than a question about the past may take."""

    code = "QUESTION_TOO_LARGE"
    status = "FAILED_PRECONDITION"

    def __init__(self, bound: str) -> None:
        super().__init__(f"the answer needs more than {bound}; ask for a shorter time, one cluster or one broker")


class PastUnreadable(Refusal):
    """The history could not be read."""

    code = "PAST_UNREADABLE"
    status = "UNAVAILABLE"

    def __init__(self) -> None:
        super().__init__("the history could not be read; the name server's log has the reason")


class PastWorkerLink:
    """Asks the worker. ``directory``: of the history; None: there is none. ``node``: whose, of an observer several."""

    def __init__(
        self, directory: Path | None, *, node: str | Sequence[str], clock: Clock, metrics: PastMetrics
    ) -> None:
        self._directory = directory
        self._nodes = (node,) if isinstance(node, str) else tuple(node)
        self._clock = clock
        self._metrics = metrics
        self._turns = PastTurns(MAX_WAITING, clock=clock)
        self._process: asyncio.subprocess.Process | None = None
        self._is_stopped = False
        self._reads_others = False
        """Whether the worker that may run was started for other nodes."""

    async def ask(self, question: Mapping[str, Any], asker: Asker) -> dict[str, Any]:
        """Return the answer; :mod:`~pointsman_namesrv.history.past_questions` describes both.

        ``asker``: whose question it is, where several wait.

        Raises HistoryOff, TooManyQuestions, QuestionTooLarge, PastUnreadable.
        """
        if self._directory is None:
            raise HistoryOff
        try:
            async with self._turns.turn(asker):
                return await self._asked(question)
        except NoRoom:
            self._count(question, "refused")
            wait = (self._turns.waiting + 1) * self._turns.seconds
            raise TooManyQuestions(max(FIRST_ESTIMATE_SECONDS, wait)) from None

    async def run(self, until_read: Callable[[], Awaitable[None]]) -> None:
        """Have closed files indexed before the first question, at a time without questions; checks once per minute.

        ``until_read`` waits until the start has read the history of earlier runs.
        """
        await until_read()
        while self._directory is not None:
            await self._clock.sleep(IDLE_SECONDS)
            is_running = self._process is not None and self._process.returncode is None
            if is_running or not await asyncio.to_thread(PastFiles(self._directory, *self._nodes).has_closed):
                continue
            with contextlib.suppress(OSError, EOFError, NoRoom):  # the next question reports it, or starts the worker
                async with self._turns.turn(Asker("", "")):
                    await self._running()

    async def _asked(self, question: Mapping[str, Any]) -> dict[str, Any]:
        began, outcome = self._clock.monotonic(), "failed"
        try:
            reply = await self._reply(question)
            outcome = next(name for name in ("answer", "too_large", "failed") if name in reply)
        except QuestionTooLarge:
            outcome = "too_large"
            raise
        finally:
            seconds = self._clock.monotonic() - began
            self._metrics.seconds.observe(seconds)
            self._count(question, "completed" if outcome == "answer" else outcome)
        if outcome == "too_large":
            raise QuestionTooLarge(f"{MAX_ROWS:,} rows of history, or its text than 2.5 MB")
        if outcome == "failed":
            facts = {"error": reply["failed"], "kind": question["kind"]}
            log.error("question about the past failed", extra={"facts": facts})
            raise PastUnreadable
        found: dict[str, Any] = reply["answer"]
        return found

    async def _reply(self, question: Mapping[str, Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await self._exchange(json.dumps(question).encode())
        except BaseException as error:  # also a question that its caller gave up: the worker is still at it
            await self._kill()
            if isinstance(error, TimeoutError):
                raise QuestionTooLarge(f"{DEADLINE_SECONDS:g} s") from None
            if not isinstance(error, OSError | EOFError | ValueError):
                raise
            log.warning(
                "worker for questions about the past ended; the next question starts another one",
                extra={"facts": {"error": str(error), "kind": question["kind"]}},
            )
            raise PastUnreadable from None

    async def _exchange(self, question: bytes) -> dict[str, Any]:
        process = await self._running()
        assert process.stdin is not None  # noqa: S101  # both are pipes
        assert process.stdout is not None  # noqa: S101
        process.stdin.write(len(question).to_bytes(4, "big") + question)
        await process.stdin.drain()
        reply = await _message(process.stdout)
        if "answer" in reply:
            slices, items = answer_slices(self._clock), []
            for _ in range(reply["items"]):
                items.append(await _message(process.stdout))
                await slices.pause()
            reply["answer"][reply["list"]] = items
        return reply

    async def _running(self) -> asyncio.subprocess.Process:
        if self._reads_others:
            self._reads_others = False
            await self._kill()
        process = self._process
        if process is None or process.returncode is not None:
            if self._is_stopped:
                raise EOFError("the name server stops")
            module = "pointsman_namesrv.history.past_worker"
            first, *others = self._nodes
            process = self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", module, str(self._directory), first, str(MEMORY_BYTES), *others),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            self._metrics.worker_starts.inc()
        return process

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        await process.wait()

    def read(self, nodes: Sequence[str]) -> None:
        """Read the files of these nodes from the next question on."""
        self._nodes, self._reads_others = tuple(nodes), True

    async def stop(self) -> None:
        """End the worker; a question that is being answered fails."""
        self._is_stopped = True
        await self._kill()

    def _count(self, question: Mapping[str, Any], outcome: str) -> None:
        self._metrics.questions.labels(str(question["kind"]), outcome).inc()


def answer_slices(clock: Clock) -> Slices:
    """Return the slices in which an answer is read or encoded: it may have a thousand parts."""
    return Slices(clock, pause=PAUSE_SECONDS, longest=SLICE_SECONDS)


async def _message(stream: asyncio.StreamReader) -> dict[str, Any]:
    """Read one message of the worker. Raises EOFError, ValueError."""
    length = int.from_bytes(await stream.readexactly(4), "big")
    if length > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {length} bytes")
    message: dict[str, Any] = json.loads(await stream.readexactly(length))
    return message
