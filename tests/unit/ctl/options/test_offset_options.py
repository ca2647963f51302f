"""Where offsets are reset to, as operators write it."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import pytest

from pointsman_ctl.options.message_options import QueueChoice
from pointsman_ctl.options.offset_options import (
    LATEST,
    MAX_OFFSET,
    Target,
    TargetKind,
    is_of,
    read_expected,
    read_queues,
    read_target,
)

CONTEXT, OPTION = click.Context(click.Command("reset")), click.Option(["--to"])
A3 = QueueChoice("", "a", 3)


def target(*values: str) -> Target:
    return read_target(CONTEXT, OPTION, values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Target("earliest", TargetKind.EARLIEST)),
        ("latest", LATEST),
        ("0", Target("0", TargetKind.OFFSET)),
        (str(MAX_OFFSET), Target(str(MAX_OFFSET), TargetKind.OFFSET, number=MAX_OFFSET)),
        ("-100", Target("-100", TargetKind.RELATIVE, number=-100)),
        ("+7", Target("+7", TargetKind.RELATIVE, number=7)),
        (
            "2026-01-02T03:04Z",
            Target("2026-01-02T03:04Z", TargetKind.MOMENT, moment=datetime(2026, 1, 2, 3, 4, tzinfo=UTC)),
        ),
    ],
)
def test_a_target_is_an_end_an_offset_a_number_of_messages_or_a_time(text: str, expected: Target) -> None:
    assert target(text) == expected


def test_a_duration_is_a_time_ago() -> None:
    moment = target("90m").moment
    assert moment is not None
    assert 0 <= (datetime.now(UTC) - moment).total_seconds() - 5_400 < 60


def test_each_of_some_queues_may_have_its_offset() -> None:
    found = target("a/3=7", "c1/b/0=9")
    assert (found.kind, found.each) == (TargetKind.EACH, ((A3, 7), (QueueChoice("c1", "b", 0), 9)))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["end"], "invalid target 'end': use earliest, latest"),
        (["-"], "invalid target '-'"),
        ([""], "invalid target ''"),
        ([str(MAX_OFFSET + 1)], f"must be a number from 0 to {MAX_OFFSET}"),
        (["2999-01-01T00:00Z"], "is in the future"),
        (["latest", "earliest"], "more than one target"),
        (["a/3=7", "latest"], "'latest' names no queue: give QUEUE=OFFSET for each queue"),
        (["a/3=-7"], "invalid offset '-7'"),
        (["a b/3=7"], "broker 'a b' may hold only"),
        (["a/65536=7"], "queue number must be from 0 to"),
    ],
)
def test_anything_else_is_refused_with_what_is_wrong(values: list[str], said: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        target(*values)
    assert said in refused.value.message


def test_an_expected_offset_is_for_the_only_queue_or_names_its_own() -> None:
    assert read_expected(CONTEXT, OPTION, ["5", "a/3=7"]) == ((None, 5), (A3, 7))
    with pytest.raises(click.BadParameter, match="invalid offset 'x'"):
        read_expected(CONTEXT, OPTION, ["x"])


def test_a_queue_is_chosen_at_every_broker_that_its_name_does_not_exclude() -> None:
    (number, named, full, again) = (*read_queues(CONTEXT, OPTION, ["3", "a/3", "c1/a/3", "3"]), None)
    assert again is None
    assert [is_of(number, broker, 3) for broker in ("c1/a", "c2/b", "h:1")] == [True, True, True]
    assert [is_of(named, broker, 3) for broker in ("c1/a", "c2/a", "c1/b", "h:1")] == [True, True, False, False]
    assert [is_of(full, broker, 3) for broker in ("c1/a", "c2/a")] == [True, False]
    assert not is_of(number, "c1/a", 2)
