"""The queues of a group, for operators: who reads them, how far, how fast, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from pointsman.clock import Clock, utc_millis
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_agent.core.group_progress import LONG_CALL_SECONDS, ProgressMeter, Standing, standing
from pointsman_agent.core.measured_queue_stats import GroupLoad, QueueMeter
from pointsman_agent.core.member_readings import MemberReading, QueueReport
from pointsman_agent.core.offsets import OffsetKey
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.groups.group_codec import duration
from pointsman_agent.groups.stuck_queues import StuckQueue
from pointsman_agent.queue_stats.ends import QueueEnds, QueueEndsError

_STANDINGS = {each: wire.QueueStanding.Value(f"QUEUE_STANDING_{each.name}") for each in Standing}

Members = Mapping[str, MemberReading | None]
"""What each member of a group reports, by client id; None: it does not report."""


class GroupQueues:
    """Combines readings of members, committed offsets and measurements.

    ``committed(group)`` returns the committed offsets of a group, ``commit_times(group)`` when they were committed, in
    milliseconds since the epoch.
    """

    def __init__(
        self,
        committed: Callable[[str], Mapping[QueueKey, int]],
        *,
        commit_times: Callable[[str], Mapping[QueueKey, int]],
        ends: QueueEnds,
        meter: QueueMeter,
        progress: ProgressMeter,
        clock: Clock,
    ) -> None:
        self._committed = committed
        self._commit_times = commit_times
        self._ends = ends
        self._meter = meter
        self._progress = progress
        self._clock = clock

    async def list(self, group: str, members: Members, *, after: QueueKey | None, limit: int) -> list[wire.GroupQueue]:
        """Return up to ``limit`` queues after ``after``, sorted."""
        committed, readers = self._committed(group), _readers(members, now=self._clock.monotonic())
        queues = sorted(each for each in {*committed, *readers} if after is None or each > after)[:limit]
        try:
            ends = await self._ends.max_offsets(queues)
        except QueueEndsError:
            ends = {}
        return [
            self._queue(OffsetKey(group, *queue), committed.get(queue), readers.get(queue), ends, members)
            for queue in queues
        ]

    @property
    def loads(self) -> Mapping[str, GroupLoad]:
        """What each group has to read, at the last measurement."""
        return self._progress.loads

    def stuck(self, group: str, members: Members) -> Iterator[StuckQueue]:
        """Yield the queues that are stuck, by the ends of the last measurement."""
        committed, now = self._committed(group), self._clock.monotonic()
        for queue, (client_id, report) in _readers(members, now=now).items():
            measured = self._meter.end_of(queue)
            found = self._standing(
                OffsetKey(group, *queue),
                report,
                committed=committed.get(queue),
                end=None if measured is None else measured.max_offset,
                all_report=True,
            )
            if found in {Standing.STUCK_CALL, Standing.STUCK_OFFSET}:
                yield StuckQueue(group, queue, client_id, found)

    def _standing(
        self, key: OffsetKey, report: QueueReport | None, *, committed: int | None, end: int | None, all_report: bool
    ) -> Standing | None:
        return standing(
            report,
            self._progress.of(key),
            lag=None if end is None or committed is None else max(0, end - committed),
            put_rate=self._meter.last_rate(key.queue),
            all_report=all_report,
            now=self._clock.monotonic(),
        )

    def _queue(
        self,
        key: OffsetKey,
        committed: int | None,
        reader: tuple[str, QueueReport] | None,
        ends: Mapping[QueueKey, int],
        members: Members,
    ) -> wire.GroupQueue:
        now = self._clock.monotonic()
        client_id, report = reader or ("", None)
        end, progress = ends.get(key.queue), self._progress.of(key)
        message = wire.GroupQueue(
            topic=key.topic,
            reading=_reading(key.queue_id, report, now=now),
            client_id=client_id,
            committed=committed,
            max_offset=end,
        )
        found = self._standing(key, report, committed=committed, end=end, all_report=None not in members.values())
        if found is not None:
            message.standing = _STANDINGS[found]
        if (committed_at := self._commit_times(key.group).get(key.queue)) is not None:
            message.since_commit.CopyFrom(duration(max(0, utc_millis(self._clock) - committed_at) / 1000))
        if progress is not None and progress.commit_rate is not None:
            message.put_rate, message.commit_rate = self._meter.last_rate(key.queue), progress.commit_rate
            if (still_for := progress.still_for(now=now)) is not None:
                message.still_for.CopyFrom(duration(still_for))
        return message


def counts(members: Members) -> Iterable[wire.MemberCounts]:
    """Return what members report of themselves, sorted by client id."""
    for client_id, reading in sorted(members.items()):
        if reading is not None and reading.last is not None:
            yield wire.MemberCounts(
                client_id=client_id,
                retries=reading.last.retries,
                dead_letters=reading.last.dead_letters,
                rebalances=[wire.RebalanceCount(trigger=name, count=n) for name, n in reading.last.rebalances],
            )


def _readers(members: Members, *, now: float) -> dict[QueueKey, tuple[str, QueueReport]]:
    """Return the member to show for each queue: one with a long call, which others may wait for, else the latest.

    While a queue is handed over, two members report it; broadcasting members all do.
    """
    readers: dict[QueueKey, tuple[str, QueueReport]] = {}

    def rank(report: QueueReport) -> tuple[bool, float]:
        return (report.oldest_call(now=now) or 0.0) > LONG_CALL_SECONDS, report.at

    for client_id, reading in members.items():
        for queue, report in reading.queues.items() if reading is not None else ():
            if queue not in readers or rank(readers[queue][1]) < rank(report):
                readers[queue] = client_id, report
    return readers


def _reading(queue_id: int, report: QueueReport | None, *, now: float) -> wire.QueueReading:
    if report is None:
        return wire.QueueReading(queue_id=queue_id)
    reading, oldest_call = report.reading, report.oldest_call(now=now)
    return wire.QueueReading(
        queue_id=queue_id,
        position=reading.position,
        committed=reading.committed,
        in_flight=reading.in_flight,
        oldest_call=None if oldest_call is None else duration(oldest_call),
        is_waiting=reading.is_waiting,
    )
