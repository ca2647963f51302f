"""Lines of a name server's log, other lines, and time zones."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pointsman_report.rocketmq_log import lines
from pointsman_report.rocketmq_log.lines import Kind, LogFileError, LogLine, parse, raw_lines, zone_of

ZONE = zone_of("GMT+8")
AT = datetime(2026, 11, 22, 14, 18, 16, tzinfo=UTC)
UNREGISTRATION = "org.apache.rocketmq.namesrv.routeinfo.BatchUnregistrationService"
A = "BrokerIdentityInfo [clusterName=C, brokerAddr=127.0.0.1:23911]"


def line(message: str, *, thread: str = UNREGISTRATION, level: str = "INFO") -> bytes:
    return f"2026-11-22 22:18:16 {level} {thread} - {message}\n".encode()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (
            line(f"new broker registered, {A} HAService: 127.0.0.1:26912"),
            LogLine(AT, Kind.REGISTERED, "C", "127.0.0.1:23911"),
        ),
        (
            line("new broker registered, 127.0.0.1:1 HAServer: 127.0.0.1:11"),
            LogLine(AT, Kind.REGISTERED, None, "127.0.0.1:1", True),
        ),
        (
            line(f"unregisterBroker, remove from brokerLiveTable OK, {A}"),
            LogLine(AT, Kind.REMOVED, "C", "127.0.0.1:23911"),
        ),
        (
            line("unregisterBroker, remove from brokerLiveTable OK, 127.0.0.1:2"),
            LogLine(AT, Kind.REMOVED, None, "127.0.0.1:2", True),
        ),
        (line(f"unregisterBroker, remove from brokerLiveTable Failed, {A}"), LogLine(AT, Kind.OTHER)),
        (line(f"unregisterBroker, remove addr from brokerAddrTable OK, {A}"), LogLine(AT, Kind.OTHER)),
        (
            line(f"The broker channel expired, {A} 10000ms", level="WARN"),
            LogLine(AT, Kind.EXPIRED, "C", "127.0.0.1:23911"),
        ),
        (
            line("The broker channel expired, 127.0.0.1:1 120000ms"),
            LogLine(AT, Kind.EXPIRED, None, "127.0.0.1:1", True),
        ),
        (
            line("the broker's channel destroyed, 127.0.0.1:1, clean it's data structure at once"),  # plain: ok
            LogLine(AT, Kind.DISCONNECTED, None, "127.0.0.1:1", True),
        ),
        (
            line("The Name Server boot success. serializeType=JSON, address 0.0.0.0:9876", thread="main"),
            LogLine(AT, Kind.BOOT),
        ),
        (line("shutdown hook was invoked, 1 times.", thread="ShutdownHook"), LogLine(AT, Kind.STOPPING)),
        (line("rocketmqHome=/opt", thread="main"), LogLine(AT, Kind.STARTING)),
        (b"2026-11-22 22:18:16,250 INFO t - x\n", LogLine(AT + timedelta(milliseconds=250), Kind.OTHER)),
        (b"2026-11-22 22:18:16.250000123 INFO t - x\r\n", LogLine(AT + timedelta(milliseconds=250), Kind.OTHER)),
    ],
)
def test_a_line_is_parsed_by_its_text(raw: bytes, expected: LogLine) -> None:
    assert parse(raw, ZONE) == expected


def test_the_end_of_a_connection_is_distinguished_from_an_expiry_by_its_thread() -> None:
    message = "the broker's channel destroyed, submit the unregister request at once, broker info: X@1"  # plain: ok
    lost, expired = (
        parse(line(message, thread=thread), ZONE) for thread in ("NettyEventExecutor", "NSScanScheduledThread")
    )
    assert lost is not None
    assert expired is not None
    assert (lost.kind, expired.kind) == (Kind.DISCONNECTED, Kind.OTHER)


@pytest.mark.parametrize(
    "raw",
    [b"", b"\n", b"java.lang.InterruptedException: null\n", b"\tat a.b(C.java:1)\n", b"\xff\xfe\n", b"2026-11-22\n"],
)
def test_a_line_without_a_date_is_ignored(raw: bytes) -> None:
    assert parse(raw, ZONE) is None


@pytest.mark.parametrize(
    "raw",
    [
        line("new broker registered, "),
        line("new broker registered, nonsense"),
        line("unregisterBroker, remove from brokerLiveTable OK, BrokerIdentityInfo [clusterName=C"),
        line("The broker channel expired, 127.0.0.1:1"),
        b"2026-13-45 22:18:16 INFO t - x\n",
    ],
)
def test_a_torn_line_about_a_broker_is_unreadable(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(raw, ZONE)


@pytest.mark.parametrize(
    ("text", "hours"),
    [("GMT+8", 8.0), ("+08:00", 8.0), ("UTC-0330", -3.5), ("UTC", 0.0), ("Asia/Shanghai", 8.0), ("GMT-5", -5.0)],
)
def test_zones_are_east_of_greenwich_as_java_writes_them(text: str, hours: float) -> None:
    assert datetime(2026, 11, 22, tzinfo=zone_of(text)).utcoffset() == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["", "nowhere", "GMT+99", "../etc/passwd"])
def test_a_zone_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time zone"):
        zone_of(text)


def test_plain_and_packed_files_and_lines_without_end_are_read_in_bounded_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 8)
    content = b"short\n" + b"x" * 100 + b"\nlast"
    (tmp_path / "a.log").write_bytes(content)
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(content))
    for name in ("a.log", "a.log.gz"):
        assert list(raw_lines(tmp_path / name)) == [b"short\n", b"x" * 8, b"last"]


def test_a_torn_or_absent_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    torn = tmp_path / "torn.gz"
    torn.write_bytes(gzip.compress(b"line\n" * 1_000)[:-10])
    for path in (torn, tmp_path / "absent.log", tmp_path):
        with pytest.raises(LogFileError, match=path.name):
            list(raw_lines(path))
