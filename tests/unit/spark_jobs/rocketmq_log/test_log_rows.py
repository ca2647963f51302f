"""From lines to rows: related lines, and the name server's own events in a log."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pointsman_report.rocketmq_log import log_rows as stories
from pointsman_report.rocketmq_log.broker_ids import BrokerId
from pointsman_report.rocketmq_log.lines import Kind, LogLine
from pointsman_report.rocketmq_log.log_rows import RowBuilder

START = datetime(2026, 11, 22, 10, 0, 0, tzinfo=UTC)
BOOT, STOPPING, OTHER, MAIN = Kind.BOOT, Kind.STOPPING, Kind.OTHER, Kind.STARTING
REGISTERED, REMOVED, EXPIRED, LOST = Kind.REGISTERED, Kind.REMOVED, Kind.EXPIRED, Kind.DISCONNECTED

Logged = tuple[float, Kind] | tuple[float, Kind, str]


def line(logged: Logged) -> LogLine:
    seconds, kind = logged[0], logged[1]
    addr = logged[2] if len(logged) == 3 else None
    return LogLine(START + timedelta(seconds=seconds), kind, "C" if addr else None, addr)


def rows(*logged: Logged, story: RowBuilder | None = None) -> list[dict[str, Any]]:
    found = story or RowBuilder(node="n")
    given = [row for each in logged for row in found.take(line(each))]
    return [*given, *found.end()]


def events(found: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Of brokers: event, reason and address."""
    return [(row["event"], row["reason"] or "-", row["broker_addr"]) for row in found if row["broker_addr"]]


UP = ((0, BOOT), (1, REGISTERED, "a"), (1, REGISTERED, "b"), (2, REGISTERED, "c"))


def causes(*logged: Logged) -> dict[str, str]:
    """How each broker left."""
    found = rows(*UP, *logged, (100, OTHER))
    return {row["broker_addr"]: row["reason"] or "-" for row in found if row["state"] == "GONE"}


def test_an_expired_broker_was_silent_for_any_order_of_the_lines() -> None:
    assert causes((10, EXPIRED, "a"), (10, REMOVED, "a")) == {"a": "SILENCE"}
    assert causes((10, REMOVED, "a"), (10, EXPIRED, "a")) == {"a": "SILENCE"}
    assert causes((10, EXPIRED, "a"), (11, REMOVED, "a")) == {"a": "SILENCE"}


def test_the_end_of_a_connection_may_be_logged_before_or_after_the_removal() -> None:
    assert causes((10, LOST), (10, REMOVED, "a")) == {"a": "STREAM_BROKEN"}
    assert causes((10, REMOVED, "a"), (10, LOST)) == {"a": "STREAM_BROKEN"}


def test_lines_of_one_removal_may_fall_into_two_seconds() -> None:
    assert causes((10.9, LOST), (11, REMOVED, "a")) == {"a": "STREAM_BROKEN"}
    assert causes((10, REMOVED, "a"), (11, LOST)) == {"a": "STREAM_BROKEN"}


def test_a_removal_that_nothing_explains_was_planned() -> None:
    assert causes((10, REMOVED, "a")) == {"a": "SHUTDOWN"}
    (row,) = [row for row in rows(*UP, (10, REMOVED, "a")) if row["state"] == "GONE"]
    assert (row["event"], row["planned"], row["since_ms"]) == ("UNREGISTERED", True, 0)


def test_as_many_connections_as_removals_explain_all_of_a_second() -> None:
    assert causes((10, REMOVED, "a"), (10, LOST), (10, LOST), (10, REMOVED, "b")) == dict.fromkeys(
        "ab", "STREAM_BROKEN"
    )
    assert causes((10, EXPIRED, "c"), (10, REMOVED, "c"), (10, LOST), (10, REMOVED, "a")) == {
        "c": "SILENCE",
        "a": "STREAM_BROKEN",
    }


def test_both_kinds_in_one_second_are_unknown_and_no_plan() -> None:
    assert causes((10, REMOVED, "a"), (10, LOST), (10, REMOVED, "b")) == dict.fromkeys("ab", "-")
    assert not any(row["planned"] for row in rows(*UP, (10, REMOVED, "a"), (10, LOST), (10, REMOVED, "b")))


def test_a_planned_shutdown_and_a_crash_a_second_later_are_distinguished() -> None:
    assert causes((10, REMOVED, "a"), (11, LOST), (11, REMOVED, "b")) == {"a": "SHUTDOWN", "b": "STREAM_BROKEN"}


def test_a_broker_that_is_back_in_the_second_of_its_removal_is_up() -> None:
    found = rows(*UP, (10, LOST), (10, REMOVED, "a"), (10, REGISTERED, "a"), (100, OTHER))
    assert events(found)[-2:] == [("EXPIRED", "STREAM_BROKEN", "a"), ("REGISTERED", "-", "a")]
    assert [row["seq"] for row in found] == list(range(1, len(found) + 1))


def test_a_log_of_4_9_names_the_broker_that_left_and_how() -> None:
    at = START + timedelta(seconds=10)
    story = RowBuilder(node="n", cluster="mine")
    old = [
        LogLine(at, kind, None, addr, is_old=True)
        for kind, addr in ((REGISTERED, "d"), (LOST, "a"), (REMOVED, "b"), (EXPIRED, "c"), (LOST, "c"))
    ]
    found = [*rows(*UP, story=story), *(row for each in old for row in story.take(each))]
    assert [(row["cluster"], row["reason"]) for row in found[-4:]] == [
        ("mine", None), ("C", "STREAM_BROKEN"), ("C", "SHUTDOWN"), ("C", "SILENCE")
    ]  # fmt: skip


def test_names_and_ids_come_from_an_answer_or_else_the_address_identifies_the_broker() -> None:
    story = RowBuilder(node="n", ids={"a": BrokerId("C", "broker-a", 1)})
    named, bare = [row for row in rows(*UP[:3], story=story) if row["broker_addr"]]
    assert (named["broker_name"], named["broker_id"]) == ("broker-a", 1)
    assert (bare["cluster"], bare["broker_name"], bare["broker_id"]) == ("C", "b", 0)
    assert story.unnamed == {"b"}


# --- the name server itself -------------------------------------------------------------------------------------


def test_a_run_begins_with_the_boot_and_ends_with_the_shutdown_which_costs_no_broker() -> None:
    found = rows(*UP, (10, STOPPING), (13, LOST), (13, REMOVED, "a"), (14, OTHER))
    assert [row["event"] for row in found][:2] == ["NAMESRV_STARTED", "NAMESRV_READY"]
    assert found[-1]["event"] == "NAMESRV_STOPPED"
    assert found[-1]["event_at"] == "2026-11-22T10:00:10.000Z"


def test_a_killed_run_ends_with_its_last_line() -> None:
    found = rows(*UP, (30, OTHER), (50_000, MAIN), (50_001, OTHER), (50_002, BOOT))
    ends = [(row["event"], row["event_at"]) for row in found[-3:]]
    assert ends == [
        ("NAMESRV_ALIVE", "2026-11-22T10:00:30.000Z"),
        ("NAMESRV_STARTED", "2026-11-22T23:53:22.000Z"),
        ("NAMESRV_READY", "2026-11-22T23:53:22.000Z"),
    ]
    assert len({row["boot_id"] for row in found}) == 2


def test_a_broker_that_does_not_return_to_a_restarted_name_server_has_left_for_an_unknown_reason() -> None:
    found = rows(*UP, (10, STOPPING), (20, BOOT), (22, REGISTERED, "a"), (40, REGISTERED, "b"), (300, OTHER))
    assert events(found)[3:] == [("REGISTERED", "-", "a"), ("REGISTERED", "-", "b"), ("EXPIRED", "-", "c")]
    assert found[-1]["event_at"] == "2026-11-22T10:01:50.000Z"
    assert found[-1]["detail"]["between_runs"] is True


def test_a_log_that_begins_in_the_middle_of_a_run_watches_from_its_first_line() -> None:
    found = rows((0, OTHER), (5, LOST), (5, REMOVED, "a"), (50, REGISTERED, "a"))
    assert [row["event"] for row in found] == ["NAMESRV_STARTED", "NAMESRV_READY", "EXPIRED", "REGISTERED"]


def test_lines_of_a_process_that_does_not_serve_yet_begin_no_run() -> None:
    found = rows((0, MAIN), (1, OTHER), (1, BOOT), (2, REGISTERED, "a"))
    assert [row["event"] for row in found] == ["NAMESRV_STARTED", "NAMESRV_READY", "REGISTERED"]


def test_a_lost_boot_line_costs_two_minutes_and_not_the_remaining_log() -> None:
    found = rows(*UP, (10, STOPPING), (20, REGISTERED, "a"), (200, REGISTERED, "b"), (300, OTHER))
    assert events(found)[3:] == [("REGISTERED", "-", "b")]


def test_behind_a_gap_a_new_run_begins_that_accuses_no_broker() -> None:
    found = rows(*UP, (30, OTHER), (30 + 7 * 3_600, OTHER), (60 + 7 * 3_600, OTHER), (30_000, OTHER))
    assert [row["event"] for row in found][5:8] == ["NAMESRV_ALIVE", "NAMESRV_STARTED", "NAMESRV_READY"]
    assert not [row for row in found if row["state"] == "GONE"]


def test_a_day_begins_with_a_checkpoint_and_the_day_before_ends_alive() -> None:
    found = rows(*UP, *((hours * 3_600, OTHER) for hours in range(1, 16)))
    around = [
        (row["event"], row["event_at"], row["broker_addr"])
        for row in found
        if "T23:5" in row["event_at"] or "-23T00:00:00" in row["event_at"]
    ]
    assert around == [
        ("NAMESRV_ALIVE", "2026-11-22T23:59:59.999Z", None),
        *(("CHECKPOINT", "2026-11-23T00:00:00.000Z", addr) for addr in "abc"),
    ]
    checkpoint = next(row for row in found if row["event"] == "CHECKPOINT")
    assert checkpoint["detail"] == {"source": "rocketmq-log", "i": 1, "n": 3}
    assert checkpoint["since_ms"] == (14 * 3_600 - 1) * 1_000


def test_the_same_lines_give_the_same_rows_and_more_lines_more() -> None:
    logged = (*UP, (10, LOST), (10, REMOVED, "a"), (700, OTHER), (1_500, OTHER))
    whole = rows(*logged)
    assert rows(*logged) == whole
    assert rows(*logged[:-1]) == whole[: len(rows(*logged[:-1]))]


def test_lines_a_little_out_of_order_are_taken_and_much_older_ones_are_skipped() -> None:
    story = RowBuilder(node="n")
    found = rows(*UP, (30, OTHER), (29, REGISTERED, "d"), (-300, REGISTERED, "e"), story=story)
    assert events(found)[-1] == ("REGISTERED", "-", "d")
    assert story.counts["out_of_order"] == 1
    assert [row["event_at"] for row in found] == sorted(row["event_at"] for row in found)


def test_the_memory_of_the_parser_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stories, "MAX_BROKERS", 2)
    monkeypatch.setattr(stories, "MAX_MOMENT", 3)
    story = RowBuilder(node="n")
    found = rows(*UP, (5, REMOVED, "x"), *((10, LOST) for _ in range(10)), (20, REMOVED, "a"), story=story)
    assert {row["broker_addr"] for row in found} == {None, "a", "b"}
    assert story.counts["too_many_brokers"] == 2
    assert len(story._moment) == 0
