"""History rows from the lines of a name server's log. Pure: lines in, rows out, in order.

A run of the name server is a run of an observer. It begins with "boot success" or the start of the log, and ends with
its shutdown, or with its last line before the next process. A running name server logs a line at least every ten
minutes, so a later line of the same run shows that it was running in between.

With 5.x the reason of a removal is in several lines of the same second, in any order: expired brokers are named; of the
others, as many as connections ended lost theirs; the remaining ones unregistered. If both kinds occur in one second,
the reason is unknown. 4.9 names the broker in each line.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from enum import Enum

from pointsman_report.rocketmq_log.broker_ids import BrokerId
from pointsman_report.rocketmq_log.lines import Kind, LogLine

SOURCE = "rocketmq-log"
DEFAULT_CLUSTER = "DefaultCluster"
"""RocketMQ's own default of ``brokerClusterName``."""
SETTLED = timedelta(seconds=90)
"""Within this time brokers register with a restarted name server (``registerNameServerPeriod``, 10 to 60 s)."""
ALIVE = timedelta(minutes=10)
"""After this time without a row, a NAMESRV_ALIVE row is written."""
LONGEST_GAP = timedelta(hours=6)
"""Longest gap between two lines of one run. After a longer gap a new run begins, because log files may be missing."""
SHUTDOWN = timedelta(minutes=2)
"""Within this time after SIGTERM a name server has ended."""
TOLERATED = timedelta(minutes=1)
"""A line may be older than the one before it by this much: threads write concurrently, and clocks are corrected."""
_NEVER = datetime.min.replace(tzinfo=UTC)
MAX_BROKERS = 100_000
MAX_MOMENT = 100_000

Row = dict[str, object]


class _Cause(Enum):
    SILENCE = ("EXPIRED", "SILENCE", False)
    CONNECTION = ("EXPIRED", "STREAM_BROKEN", False)
    SHUTDOWN = ("UNREGISTERED", "SHUTDOWN", True)
    UNKNOWN = ("EXPIRED", None, False)


@dataclass(slots=True)
class _Broker:
    identity: BrokerId
    since: datetime | None
    """Time of its registration; None if it is down."""


@dataclass(slots=True)
class _Run:
    began_at: datetime
    boot_id: str
    expected: dict[str, BrokerId]
    """Brokers that were up in the previous run and have not registered yet."""
    brokers: dict[str, _Broker] = field(default_factory=dict)
    seq: int = 0
    row_at: datetime = _NEVER
    ended_at: datetime | None = None

    def up(self) -> dict[str, BrokerId]:
        up = {addr: broker.identity for addr, broker in self.brokers.items() if broker.since is not None}
        return self.expected | up


class RowBuilder:
    """Converts log lines to history rows. Its memory is bounded by `MAX_BROKERS`."""

    def __init__(self, *, node: str, ids: Mapping[str, BrokerId] | None = None, cluster: str = DEFAULT_CLUSTER) -> None:
        self._node = node
        self._ids = ids or {}
        self._cluster = cluster
        self._run: _Run | None = None
        self._at: datetime | None = None
        self._starting_at: datetime | None = None
        self._moment: list[LogLine] = []
        self._expired: set[str] = set()
        self.counts: Counter[str] = Counter()
        """``out_of_order`` and ``too_many_brokers``: skipped lines; ``runs``; ``broker_lines``."""
        self.unnamed: set[str] = set()
        """Addresses used as broker names because their ids are unknown."""

    def take(self, line: LogLine) -> Iterator[Row]:
        """Yield the rows that are certain after this line."""
        if self._at is not None and line.at < self._at:
            if self._at - line.at > TOLERATED:
                self.counts["out_of_order"] += 1
                return
            line = LogLine(self._at, line.kind, line.cluster, line.addr, line.is_old)
        if self._moment and self._is_over(line):
            yield from self._resolve()
        self.counts["broker_lines"] += line.addr is not None
        begins = (line.kind is Kind.REMOVED and not line.is_old) or (line.kind is Kind.DISCONNECTED and not line.addr)
        if begins or self._moment:
            self._moment.append(line)
        else:
            yield from self._apply(line, None)
        self._at = line.at

    def end(self) -> Iterator[Row]:
        """Yield the rows that waited for further lines."""
        if self._moment:
            yield from self._resolve()

    # --- moments: the lines of a second or two that explain each other ------------------------------------------

    def _is_over(self, line: LogLine) -> bool:
        first = self._moment[0].at.replace(microsecond=0)
        elapsed = line.at.replace(microsecond=0) - first
        if line.kind in {Kind.BOOT, Kind.STOPPING, Kind.STARTING} or line.at.date() != first.date():
            return True
        if len(self._moment) >= MAX_MOMENT or elapsed > timedelta(seconds=1):
            return True
        return elapsed == timedelta(seconds=1) and self._moment[-1].at < first + elapsed and self._is_even(self._moment)

    def _is_even(self, lines: Iterable[LogLine]) -> bool:
        """Whether each removal of a second is explained by a line of that second."""
        others, connections = self._others(lines)
        return others == connections

    def _others(self, lines: Iterable[LogLine]) -> tuple[int, int]:
        lines = list(lines)
        expired = self._expired | {line.addr for line in lines if line.kind is Kind.EXPIRED}
        others = sum(1 for line in lines if _is_removal(line) and line.addr not in expired)
        return others, sum(1 for line in lines if line.kind is Kind.DISCONNECTED and line.addr is None)

    def _resolve(self) -> Iterator[Row]:
        lines, self._moment = self._moment, []
        end_of_first = lines[0].at.replace(microsecond=0) + timedelta(seconds=1)
        first = [line for line in lines if line.at < end_of_first]
        second = lines[len(first) :]
        parts = (first, second) if self._is_even(second) else (lines,)
        for part in parts:
            others, connections = self._others(part)
            cause = _Cause.CONNECTION if connections >= others else _Cause.UNKNOWN if connections else _Cause.SHUTDOWN
            # The line of a removal may come before the one with its reason.
            self._expired |= {line.addr for line in part if line.kind is Kind.EXPIRED and line.addr is not None}
            for line in part:
                yield from self._apply(line, cause)

    # --- single lines -------------------------------------------------------------------------------------------

    def _apply(self, line: LogLine, cause: _Cause | None) -> Iterator[Row]:
        if line.kind is Kind.BOOT:
            yield from self._begin(line.at, expected=self._run.up() if self._run is not None else {})
        elif line.kind is Kind.STARTING:
            # A new process: the previous one ended without a shutdown line, with its last line or shortly after.
            yield from self._end_without_stop()
            self._starting_at = line.at
        else:
            yield from self._in_run(line, cause)

    def _in_run(self, line: LogLine, cause: _Cause | None) -> Iterator[Row]:
        yield from self._begin_without_boot(line)
        run = self._run
        if run is None or run.ended_at is not None:
            return
        yield from self._advance_time(run, line.at)
        if line.kind is Kind.STOPPING:
            yield self._row(run, line.at, "NAMESRV_STOPPED")
            run.ended_at = line.at
        elif line.kind is Kind.REGISTERED and line.addr is not None:
            yield from self._registered(run, line, line.addr)
        elif line.kind is Kind.EXPIRED and line.addr is not None:
            if len(self._expired) < MAX_BROKERS:
                self._expired.add(line.addr)
            if line.is_old:
                yield from self._left(run, line, line.addr, _Cause.SILENCE)
        elif line.addr is not None and line.kind in {Kind.REMOVED, Kind.DISCONNECTED}:
            of_old = _Cause.SHUTDOWN if line.kind is Kind.REMOVED else _Cause.CONNECTION
            yield from self._left(run, line, line.addr, cause if cause is not None and not line.is_old else of_old)

    def _begin_without_boot(self, line: LogLine) -> Iterator[Row]:
        """Begin a run without a boot line, if the log starts in the middle of a run or a part is missing."""
        run, idle_since = self._run, self._starting_at
        if run is not None:
            idle_since = run.ended_at
            if idle_since is None and self._at is not None and line.at - self._at > LONGEST_GAP:
                yield from self._end_without_stop()
                yield from self._begin(line.at, expected={})
        elif idle_since is None:
            yield from self._begin(line.at, expected={})
        if idle_since is not None and line.addr is not None and line.at - idle_since > SHUTDOWN:
            yield from self._begin(line.at, expected={})

    def _begin(self, at: datetime, *, expected: dict[str, BrokerId]) -> Iterator[Row]:
        self.counts["runs"] += 1
        # Deterministic: importing the same log again gives the same rows.
        twin = self._run is not None and self._run.began_at == at
        boot_id = hashlib.blake2b(f"{self._node} {at.isoformat()} {twin}".encode(), digest_size=8).hexdigest()
        run = self._run = _Run(at, boot_id, expected)
        self._expired.clear()
        yield self._row(run, at, "NAMESRV_STARTED")
        yield self._row(run, at, "NAMESRV_READY")

    def _end_without_stop(self) -> Iterator[Row]:
        run = self._run
        if run is not None and run.ended_at is None and self._at is not None:
            if self._at > run.row_at:
                yield self._row(run, self._at, "NAMESRV_ALIVE", detail={"rows_dropped": 0})
            run.ended_at = self._at

    def _registered(self, run: _Run, line: LogLine, addr: str) -> Iterator[Row]:
        broker = run.brokers.get(addr)
        if broker is None and len(run.brokers) >= MAX_BROKERS:
            self.counts["too_many_brokers"] += 1
            return
        self._expired.discard(addr)
        expected = run.expected.pop(addr, None)
        was_up = broker is not None and broker.since is not None
        identity = self._identity(line, addr) if broker is None else broker.identity
        if expected is not None:
            identity = expected
        run.brokers[addr] = _Broker(identity, line.at)
        event = "REREGISTERED" if was_up else "REGISTERED"
        yield self._row(run, line.at, event, addr=addr, identity=identity, state="UP", since=line.at)

    def _left(self, run: _Run, line: LogLine, addr: str, cause: _Cause) -> Iterator[Row]:
        broker = run.brokers.get(addr)
        if broker is not None and broker.since is None:
            return  # 4.9 may log two reasons for one removal; the first counts
        if broker is None and len(run.brokers) >= MAX_BROKERS:
            self.counts["too_many_brokers"] += 1
            return
        if addr in self._expired:
            cause = _Cause.SILENCE
            self._expired.discard(addr)
        expected = run.expected.pop(addr, None)
        identity = broker.identity if broker is not None else expected or self._identity(line, addr)
        run.brokers[addr] = _Broker(identity, None)
        event, reason, planned = cause.value
        yield self._row(
            run,
            line.at,
            event,
            addr=addr,
            identity=identity,
            state="GONE",
            reason=reason,
            planned=planned,
            since=line.at,
        )

    def _advance_time(self, run: _Run, to: datetime) -> Iterator[Row]:
        """Yield the rows due before this line: brokers that did not come back, midnights, NAMESRV_ALIVE."""
        settled_at = run.began_at + SETTLED
        if run.expected and settled_at <= to:
            yield from self._midnights(run, settled_at)
            for addr, identity in sorted(run.expected.items()):
                run.brokers[addr] = _Broker(identity, None)
                detail = {"between_runs": True}
                yield self._row(
                    run,
                    settled_at,
                    "EXPIRED",
                    addr=addr,
                    identity=identity,
                    state="GONE",
                    since=settled_at,
                    detail=detail,
                )
            run.expected.clear()
        yield from self._midnights(run, to)
        if to - run.row_at >= ALIVE:
            yield self._row(run, to, "NAMESRV_ALIVE", detail={"rows_dropped": 0})

    def _midnights(self, run: _Run, to: datetime) -> Iterator[Row]:
        while (midnight := datetime.combine(run.row_at.date() + timedelta(days=1), time(), run.row_at.tzinfo)) <= to:
            yield self._row(run, midnight - timedelta(milliseconds=1), "NAMESRV_ALIVE", detail={"rows_dropped": 0})
            up = sorted((broker.identity, addr) for addr, broker in run.brokers.items() if broker.since is not None)
            for number, (identity, addr) in enumerate(up, 1):
                since, detail = run.brokers[addr].since, {"i": number, "n": len(up)}
                yield self._row(
                    run, midnight, "CHECKPOINT", addr=addr, identity=identity, state="UP", reason="DAY", since=since,
                    detail=detail,
                )  # fmt: skip
            if not up:
                yield self._row(run, midnight, "NAMESRV_ALIVE", detail={"rows_dropped": 0})

    def _identity(self, line: LogLine, addr: str) -> BrokerId:
        known = self._ids.get(addr)
        if known is None:
            self.unnamed.add(addr)
            return BrokerId(line.cluster or self._cluster, addr, 0)
        return known

    def _row(
        self,
        run: _Run,
        at: datetime,
        event: str,
        *,
        addr: str | None = None,
        identity: BrokerId | None = None,
        state: str | None = None,
        reason: str | None = None,
        planned: bool = False,
        since: datetime | None = None,
        detail: Mapping[str, object] | None = None,
    ) -> Row:
        run.seq += 1
        run.row_at = at
        return {
            "schema_version": 2,
            "event_at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "uptime_ms": _millis(at - run.began_at),
            "event": event,
            "reason": reason,
            "node": self._node,
            "boot_id": run.boot_id,
            "seq": run.seq,
            "cluster": identity.cluster if identity is not None else None,
            "broker_name": identity.broker_name if identity is not None else None,
            "broker_id": identity.broker_id if identity is not None else None,
            "broker_addr": addr,
            "state": state,
            "since_ms": _millis(at - since) if since is not None else None,
            "planned": planned if identity is not None else None,
            "detail": {"source": SOURCE, **(detail or {})},
        }


def _is_removal(line: LogLine) -> bool:
    return line.kind is Kind.REMOVED and not line.is_old


def _millis(span: timedelta) -> int:
    return max(0, span // timedelta(milliseconds=1))
