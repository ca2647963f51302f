"""The table of outcomes of a try, row by row."""

from __future__ import annotations

import pytest

from pointsman_client.core.send_outcome import Outcome, OutcomeRules, SendMode, SendStatus
from pointsman_client.errors import (
    BrokerError,
    BrokerRefusedError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    ResponseCode,
)

FINE = Outcome(isolation=False, reachable=True, try_again=False)


@pytest.mark.parametrize("mode", SendMode)
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("status", SendStatus)
def test_a_taken_message_is_sent_again_only_when_awaited_not_ok_and_wanted(
    status: SendStatus, again: bool, mode: SendMode
) -> None:
    outcome = OutcomeRules(retry_another_broker_when_not_store_ok=again).of_status(status, mode)

    wanted = again and mode is SendMode.SYNC and status is not SendStatus.SEND_OK
    assert outcome == Outcome(isolation=False, reachable=True, try_again=wanted)


@pytest.mark.parametrize("mode", SendMode)
@pytest.mark.parametrize("detector", [False, True])
@pytest.mark.parametrize("kind", [BrokerUnreachableError, BrokerTimeoutError])
def test_a_failed_connection_isolates_and_is_unreachable_if_a_detector_will_find_it(
    kind: type[BrokerError], detector: bool, mode: SendMode
) -> None:
    outcome = OutcomeRules(start_detector_enable=detector).of_error(kind("addr", "scripted"), mode)

    assert outcome == Outcome(isolation=True, reachable=not detector, try_again=True)


@pytest.mark.parametrize("detector", [False, True])
@pytest.mark.parametrize(
    ("code", "again"),
    [(1, True), (2, True), (14, True), (16, True), (17, True), (204, True), (205, True), (1500, True), (13, False),
     (0, False), (18, False)],
)  # fmt: skip
def test_a_refusal_isolates_as_unreachable_and_is_tried_elsewhere_by_its_code(
    code: int, again: bool, detector: bool
) -> None:
    rules = OutcomeRules(start_detector_enable=detector)

    error = BrokerRefusedError("addr", code, "scripted")

    assert rules.of_error(error, SendMode.SYNC) == Outcome(isolation=True, reachable=False, try_again=again)
    assert not rules.of_error(error, SendMode.ASYNC).try_again


def test_the_codes_can_be_set() -> None:
    rules = OutcomeRules(retry_response_codes={ResponseCode.MESSAGE_ILLEGAL})

    assert rules.of_error(BrokerRefusedError("addr", 13, ""), SendMode.SYNC).try_again
    assert not rules.of_error(BrokerRefusedError("addr", 2, ""), SendMode.SYNC).try_again


def test_a_broker_that_got_no_request_is_not_isolated() -> None:
    error = BrokerUnreachableError("a", "no address")

    outcome = OutcomeRules().of_error(error, SendMode.SYNC, had_addr=False)

    assert outcome == Outcome(isolation=False, reachable=True, try_again=True)
    assert OutcomeRules().of_error(BrokerError("a", "else"), SendMode.SYNC) == outcome
