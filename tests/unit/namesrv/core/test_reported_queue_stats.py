"""Queue statistics: what is refused, how they are written to the history, and that none are kept in memory."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_namesrv.core.broker_responses import StatsStatus
from pointsman_namesrv.core.events import EventKind
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, Registration
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.reported_queue_stats import (
    MAX_MESSAGES,
    MAX_PERIOD,
    GroupTotals,
    QueueLag,
    QueuePuts,
    QueueStats,
    TopicTotals,
)
from tests.kit.name_server.queue_stats import MEASURED, NOTHING_MEASURED

IDENTITY = BrokerIdentity("c1", "a", 0, "10.0.0.1:10911")
PUTS = QueuePuts("orders", 0, 1.0, 1, bytes=700)
LAG = QueueLag("g", "orders", 0, 1, 1.0, oldest_unread=3.0)
TOPIC = TopicTotals("orders", 1, 0, 1.0, 1.0, 1, 1)
GROUP = GroupTotals(
    "g", "orders", 1, 1, 1, 0, put_rate=1.0, commit_rate=None, behind_queue_count=1, stuck_queue_count=1
)


def faults(stats: QueueStats) -> dict[str, str]:
    return {violation.field: violation.description for violation in stats.violations(path="stats")}


@pytest.mark.parametrize("stats", [NOTHING_MEASURED, MEASURED], ids=["nothing", "the-most"])
def test_valid_statistics_have_no_violations(stats: QueueStats) -> None:
    assert faults(stats) == {}


@pytest.mark.parametrize(
    ("stats", "fault"),
    [
        (replace(MEASURED, period=-1.0), ("stats.period", "must be from 0s to 604800s, not '-1s'")),
        (replace(MEASURED, period=MAX_PERIOD + 1), ("stats.period", "must be from 0s to 604800s, not '604801s'")),
        (replace(MEASURED, period=float("nan")), ("stats.period", "must be from 0s to 604800s, not 'nans'")),
        (
            replace(MEASURED, depth=MAX_MESSAGES + 1),
            ("stats.depth", f"must be from 0 to {MAX_MESSAGES}, not {MAX_MESSAGES + 1}"),
        ),
        (
            replace(MEASURED, lag=MAX_MESSAGES + 1),
            ("stats.lag", f"must be from 0 to {MAX_MESSAGES}, not {MAX_MESSAGES + 1}"),
        ),
        (replace(MEASURED, put_rate=float("inf")), ("stats.put_rate", "must be finite and not negative, not inf")),
        (replace(MEASURED, put_rate=-0.5), ("stats.put_rate", "must be finite and not negative, not -0.5")),
        (
            replace(MEASURED, top_put_rates=(PUTS, PUTS._replace(queue_id=1, put_rate=float("nan")))),
            ("stats.top_put_rates[1].put_rate", "must be finite and not negative, not nan"),
        ),
        (
            replace(MEASURED, top_put_rates=(PUTS._replace(topic="a b"),)),
            ("stats.top_put_rates[0].topic", "may hold only letters, digits and %|_-.+: 'a b'"),
        ),
        (
            replace(MEASURED, top_put_rates=(PUTS._replace(queue_id=65_535),)),
            ("stats.top_put_rates[0].queue_id", "must be from 0 to 65534, not 65535"),
        ),
        (
            replace(MEASURED, top_lags=(LAG._replace(lag=2**63),)),
            ("stats.top_lags[0].lag", f"must be from 0 to {MAX_MESSAGES}, not {2**63}"),
        ),
        (replace(MEASURED, top_lags=(LAG._replace(group=""),)), ("stats.top_lags[0].group", "must not be empty: ''")),
        (
            replace(MEASURED, top_topics=(TOPIC._replace(highest_depth=2**64 - 1),)),
            ("stats.top_topics[0].highest_depth", f"must be from 0 to {MAX_MESSAGES}, not {2**64 - 1}"),
        ),
        (
            replace(MEASURED, top_groups=(GROUP._replace(topic=""),)),
            ("stats.top_groups[0].topic", "must not be empty: ''"),
        ),
        (
            replace(MEASURED, top_put_rates=(PUTS, PUTS)),
            ("stats.top_put_rates[1]", "occurs twice in this list: 'orders 0'"),
        ),
        (replace(MEASURED, top_lags=(LAG, LAG)), ("stats.top_lags[1]", "occurs twice in this list: 'g orders 0'")),
        (replace(MEASURED, top_topics=(TOPIC, TOPIC)), ("stats.top_topics[1]", "occurs twice in this list: 'orders'")),
        (
            replace(MEASURED, top_groups=(GROUP, GROUP)),
            ("stats.top_groups[1]", "occurs twice in this list: 'g orders'"),
        ),
    ],
)
def test_a_violation_names_field_and_value(stats: QueueStats, fault: tuple[str, str]) -> None:
    assert list(faults(stats).items()) == [fault]


@given(st.floats(0, 1e308))
def test_a_rate_is_in_the_history_as_a_finite_number_to_a_millionth(rate: float) -> None:
    row = json.dumps(replace(NOTHING_MEASURED, put_rate=rate, top_put_rates=(PUTS._replace(put_rate=rate),)).detail())

    recorded = json.loads(row, parse_constant=pytest.fail)
    assert recorded["put_rate"] == recorded["top_put_rates"][0]["put_rate"] == pytest.approx(rate, abs=1e-6)


def test_the_history_has_every_field_but_those_of_now_under_its_name_on_the_wire() -> None:
    stats = replace(MEASURED, top_put_rates=(PUTS,), top_lags=(LAG,), top_topics=(TOPIC,), top_groups=(GROUP,))

    assert stats.detail() == {
        "period_ms": 600_000,
        "queue_count": 80,
        "unmeasured_queue_count": 1,
        "topic_count": 20,
        "depth": MAX_MESSAGES,
        "put_rate": 0.333333,
        "lag": MAX_MESSAGES,
        "top_put_rates": [{"topic": "orders", "queue_id": 0, "put_rate": 1.0, "depth": 1}],
        "top_lags": [{"group": "g", "topic": "orders", "queue_id": 0, "lag": 1, "put_rate": 1.0}],
        "top_topics": [
            {
                "topic": "orders",
                "queue_count": 1,
                "idle_queue_count": 0,
                "put_rate": 1.0,
                "highest_put_rate": 1.0,
                "depth": 1,
                "highest_depth": 1,
            }
        ],
        "top_groups": [
            {"group": "g", "topic": "orders", "queue_count": 1, "lag": 1, "highest_lag": 1, "member_count": 0}
        ],
    }


@pytest.fixture
def registered() -> tuple[NameServer, int]:
    """A name server that holds one broker, and its generation."""
    core = NameServer(rules=LivenessRules(), first_generation=7, started_at=0.0)
    registration = Registration(identity=IDENTITY, topics={}, data_version=DataVersion())
    return core, core.register(registration, now=0.0).generation


def test_statistics_of_a_registered_broker_are_one_event_and_not_a_heartbeat(
    registered: tuple[NameServer, int],
) -> None:
    core, generation = registered
    answer = core.report_queue_stats(IDENTITY, generation, MEASURED, now=0.0)

    assert answer.status is StatsStatus.RECORDED
    ((kind, broker, detail),) = [(event.kind, event.broker, event.detail) for event in answer.events]
    assert (kind, broker and broker.identity, detail) == (EventKind.QUEUE_STATS, IDENTITY, MEASURED.detail())
    ((_, replica),) = core.members()
    assert replica.pulse.last_seen == 0.0
    core.check_invariants()


@pytest.mark.parametrize(
    ("identity", "off", "status", "holder"),
    [
        (IDENTITY, 1, StatsStatus.STALE_GENERATION, "10.0.0.1:10911"),
        (IDENTITY._replace(addr="10.0.0.2:1"), 0, StatsStatus.STALE_GENERATION, "10.0.0.1:10911"),
        (IDENTITY._replace(broker_id=1), 0, StatsStatus.UNKNOWN_BROKER, ""),
        (IDENTITY._replace(broker_name="b"), 0, StatsStatus.UNKNOWN_BROKER, ""),
    ],
)
def test_statistics_of_another_broker_are_not_recorded(
    registered: tuple[NameServer, int], identity: BrokerIdentity, off: int, status: StatsStatus, holder: str
) -> None:
    core, generation = registered
    answer = core.report_queue_stats(identity, generation + off, MEASURED, now=0.0)

    assert (answer.status, answer.holder_addr, answer.events) == (status, holder, ())
