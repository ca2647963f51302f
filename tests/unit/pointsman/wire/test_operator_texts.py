"""Texts for operators."""

from __future__ import annotations

from datetime import UTC, datetime

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pointsman.v1 import admin_service_pb2, broker_pb2
from pointsman.wire import operator_texts
from pointsman.wire.error_details import ErrorDetails
from pointsman_client import NameServerFailedError, RequestRejectedError
from pointsman_ctl.output.error_report import NAME_SERVER_HINT, NO_GRPC, OLDER_SERVER, failure_text, to_error_report
from pointsman_namesrv.core.events import EventKind
from pointsman_namesrv.core.model import Reason
from pointsman_namesrv.history.recent import RESTARTS


@pytest.mark.parametrize(("perm", "words"), [(6, "rw"), (4, "r"), (2, "w"), (0, "-"), (1, "-"), (0b1111, "rw")])
def test_permissions_are_letters(perm: int, words: str) -> None:
    assert operator_texts.perm_text(perm) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0ms"),
        (0.34, "340ms"),
        (10.21, "10.2s"),
        (119.9, "119.9s"),
        (121.0, "2m 01s"),
        (3_725.0, "1h 02m"),
        (200_000.0, "2d 07h"),
    ],
)
def test_lengths_of_time_have_the_units_that_matter(seconds: float, words: str) -> None:
    assert operator_texts.duration_text(seconds) == words


def test_a_moment_is_shown_to_the_millisecond() -> None:
    assert operator_texts.time_text(datetime(2026, 1, 1, 2, 3, 4, 5_999, UTC)) == "2026-01-01 02:03:04.005"


@pytest.mark.parametrize(
    ("status", "message", "words"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", "no response in time"),
        (grpc.StatusCode.UNAVAILABLE, "ipv4:1.2.3.4:5: connect: Connection refused (111)", "connection refused"),
        (grpc.StatusCode.UNAVAILABLE, "errors resolving x:1: not found", "host name cannot be resolved"),
        (grpc.StatusCode.UNAVAILABLE, "warming up", "warming up"),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", OLDER_SERVER),
        (grpc.StatusCode.INTERNAL, "", "INTERNAL"),
        (
            grpc.StatusCode.UNAVAILABLE,
            "INTERNAL: ipv4:1.2.3.4:5: Failed parsing HTTP/2 (Expected SETTINGS frame, got frame type 80)",
            NO_GRPC,
        ),
        (
            grpc.StatusCode.UNAVAILABLE,
            "last error: UNKNOWN: ipv4:1.2.3.4:5: connection attempt timed out before receiving SETTINGS frame",
            "connected, but not responding",
        ),
    ],
)
def test_a_failure_has_a_short_text(status: grpc.StatusCode, message: str, words: str) -> None:
    assert failure_text(NameServerFailedError("a:1", status, message)) == words


def test_a_port_of_another_kind_is_named() -> None:
    grpc_to_rocketmq = "ipv4:1.2.3.4:5: Cannot check peer: missing selected ALPN property."
    assert failure_text(NameServerFailedError("a:1", grpc.StatusCode.UNAVAILABLE, grpc_to_rocketmq)) == NO_GRPC
    brokers_port = NameServerFailedError(
        "rocketmq://a:1", grpc.StatusCode.UNIMPLEMENTED, "X (206): NOT_SUPPORTED 3: no"
    )
    assert failure_text(brokers_port) == "not a name server: X (206): NOT_SUPPORTED 3: no"


def test_a_connection_that_takes_too_long_has_a_hint() -> None:
    late = NameServerFailedError("rocketmq://a:1", grpc.StatusCode.UNAVAILABLE, "not connected within 3 s")
    assert to_error_report(late).hint == NAME_SERVER_HINT


def test_a_refusal_names_the_call_where_the_server_logs_it() -> None:
    def words(status: grpc.StatusCode, request_id: str) -> str:
        return failure_text(RequestRejectedError("a:1", status, "no", ErrorDetails(request_id=request_id)))

    assert words(grpc.StatusCode.INVALID_ARGUMENT, "4711") == "no [request 4711]"
    assert words(grpc.StatusCode.INVALID_ARGUMENT, "\x1b[2J") == "no [request \ufffd[2J]"
    assert words(grpc.StatusCode.INVALID_ARGUMENT, "") == words(grpc.StatusCode.NOT_FOUND, "4711") == "no"


def test_an_event_is_explained_with_its_reason_or_alone_or_not_at_all() -> None:
    assert operator_texts.explanation("EXPIRED", "SILENCE") == "expired: heartbeats are missing"
    assert operator_texts.explanation("EXPIRED", "NEW_REASON") == "expired"
    assert operator_texts.explanation("NEW_EVENT", "SILENCE") == ""


@pytest.mark.parametrize(
    ("event", "reason", "words"),
    [
        ("PROTECTED", "PROBE", "protected by the guard: its probe fails on weak evidence"),
        ("PROBE_FAILED", "REFUSED", "its probe failed: strong evidence, the broker refuses to serve"),
        ("RECOVERED", "PROBE", "recovered: its probe passes again"),
        ("GUARD_ON", "SHARE", "the guard of its cluster is on: too many brokers were lost at the same time"),
        ("GUARD_OFF", "SHARE", "the guard of its cluster is off: enough brokers are up again"),
    ],
)
def test_a_reason_is_explained_for_its_event(event: str, reason: str, words: str) -> None:
    assert operator_texts.explanation(event, reason) == words


def test_every_event_and_reason_of_a_name_server_about_a_broker_is_explained() -> None:
    elsewhere = {"KV_CHANGED", "HEARTBEAT", "HEARTBEATS", "TOPICS", "QUEUE_STATS"}
    kinds = {kind for kind in EventKind if not kind.startswith("NAMESRV_")} - elsewhere | RESTARTS
    reasons = set(Reason) - {Reason.DAY, Reason.START, Reason.DROPPED, Reason.SHARE}

    assert kinds == set(operator_texts._EVENTS)
    assert reasons == set(operator_texts._REASONS)


def test_evidence_that_is_not_stated_is_weak() -> None:
    strong = broker_pb2.BrokerHealth(evidence=broker_pb2.PROBE_EVIDENCE_STRONG)
    assert operator_texts.evidence_text(strong) == "strong evidence"
    assert operator_texts.evidence_text(broker_pb2.BrokerHealth()) == "weak evidence"


def test_a_guard_is_one_line_with_its_reason_and_duration() -> None:
    guard = admin_service_pb2.GuardStatus(
        cluster="c1",
        mode=admin_service_pb2.GUARD_MODE_HOLD,
        active=True,
        active_for=Duration(seconds=90),
        mode_remaining=Duration(seconds=600),
        reason="set to HOLD\x1b",
    )
    assert operator_texts.guard_text(guard) == (
        "GUARD of c1 is HOLD, active for 90.0s, AUTO resumes in 10m 00s: set to HOLD\N{REPLACEMENT CHARACTER}"
    )


def test_of_many_names_the_first_are_shown() -> None:
    assert operator_texts.names_text([]) == ""
    assert operator_texts.names_text(["a", "b", "c"]) == "a, b, c"
    assert operator_texts.names_text(["a", "b", "c", "d"], most=2, separator="; ") == "a; b and 2 more"


def test_further_facts_become_text_without_control_characters() -> None:
    detail = {"topics": 4.0, "previous_addr": "a:1", "ids": [1.0, 2.0], "probe": "\x1b[2Jgone", "held_by": {"id": 0.5}}
    detail |= {"writable": False, "seconds": None}

    assert (
        operator_texts.detail_text(detail)
        == "held by (id 0.5), ids 1 2, previous addr a:1, probe \N{REPLACEMENT CHARACTER}[2Jgone, seconds none, "
        "topics 4, writable no"
    )
