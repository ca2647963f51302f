"""The stages of a run, from the rows of the history to all tables of its days, in the order of the report's subjects.

Each stage is one line of data: what it writes, what it reads, and how (`stage_graph`). A stage runs as soon as its
inputs are written; of those that are ready, the first in this module. ``pointsman-report stages`` draws the graph.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.jobs.history_reading import TABLES_READ
from pointsman_report.jobs.stage_graph import Before, Context, Intermediate, Part, Since, Stage, checked
from pointsman_report.parameters import FlapParameters, Parameters
from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.flapping_tables import (
    FLAP_CHARGES,
    FLAP_RANKING,
    FLAPPING,
    GUARD_PERIODS,
    INCIDENTS,
    OUTAGE_CAUSES,
    ROLLING_RESTARTS,
)
from pointsman_report.schemas.health_tables import (
    CLUSTER_HEALTH,
    GROUP_LAG,
    HEARTBEAT_HISTOGRAM,
    HEARTBEAT_PUNCTUALITY,
    HOT_QUEUES,
    QUEUE_STATS,
    TOPIC_LOAD,
)
from pointsman_report.schemas.history_tables import REGISTRATION_EVENTS
from pointsman_report.schemas.liveness_tables import (
    AVAILABILITY,
    BLIND_PERIODS,
    BROKER_CHANGES,
    BROKER_FACTS,
    BROKER_INTERVALS,
    BROKER_STATE,
    MAINTENANCE_WINDOWS,
    NAMESRV_DAYS,
    OBSERVER_CLOCKS,
    OBSERVER_WINDOWS,
    PARTIAL_VIEWS,
)
from pointsman_report.schemas.memory_tables import BROKER_MEMORY, FORECAST_CHECKS, WEEKLY_PATTERNS
from pointsman_report.schemas.topic_tables import BLAST_RADIUS, TOPIC_CHURN, TOPIC_INTERVALS, TOPICS_AT_RISK
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.broker_facts import broker_changes, broker_facts, ordered_facts
from pointsman_report.transforms.broker_intervals import (
    availability,
    broker_intervals,
    broker_state,
    day_sums,
    held_states,
    known_brokers,
    partial_views,
)
from pointsman_report.transforms.cluster_health import cluster_health
from pointsman_report.transforms.flap_classes import (
    causes,
    flapping,
    moments,
)
from pointsman_report.transforms.flap_penalty import (
    carried_penalty,
    charged_days,
    charges,
    flagged_before,
    marks,
    penalties,
    penalty_before,
    running_sums,
    sign_rows,
    signs,
    without_blind,
)
from pointsman_report.transforms.flap_ranking import broker_days, flap_ranking, state_changes
from pointsman_report.transforms.heartbeat_histograms import beats, heartbeat_histogram, heartbeat_punctuality
from pointsman_report.transforms.hot_queues import hot_groups, key_skew, too_many_queues
from pointsman_report.transforms.incidents import incidents, members, outages, places, rolling_outages, rolling_restarts
from pointsman_report.transforms.known_days import (
    flapped_before,
    known_days,
    seen_before,
    spans,
    with_opinions,
    with_whole_days,
)
from pointsman_report.transforms.namesrv_days import namesrv_days, observer_clocks
from pointsman_report.transforms.observer_periods import blind_periods, guard_periods, maintenance_windows
from pointsman_report.transforms.opinions import (
    any_missing,
    opinions,
    rare_events,
    stated,
    turns_at_day_end,
    with_losses,
)
from pointsman_report.transforms.outage_causes import (
    downs,
    early_rows,
    fact_rows,
    incident_causes,
    near_rows,
    outage_causes,
    outage_signals,
    outages_with_facts,
    recovery_facts,
)
from pointsman_report.transforms.outage_memory import (
    CHECKED_DAYS,
    FORECAST_DAYS,
    broker_memory,
    forecast_checks,
    memory_sums,
)
from pointsman_report.transforms.queue_reports import group_lag, queue_reports, queue_stats, topic_load
from pointsman_report.transforms.topic_holdings import blast_radius, holdings, holdings_at_risk, topics_at_risk
from pointsman_report.transforms.topic_intervals import statements, topic_churn, topic_intervals
from pointsman_report.transforms.vote_sweep import sweep, votes
from pointsman_report.transforms.weekly_patterns import DAYS as PATTERN_DAYS
from pointsman_report.transforms.weekly_patterns import weekly_patterns

_BROKER_DAY = ["dt", *INSTANCE]

RARE_EVENTS = Intermediate("rare_events")
OPINIONS = Intermediate("opinions")
VOTES = Intermediate("votes")
STEPS = Intermediate("steps")
ORDERED_FACTS = Intermediate("ordered_facts")


def _opinions(context: Context, rare: DataFrame, events: DataFrame, windows: DataFrame, state: DataFrame) -> DataFrame:
    rows = stated(rare, events, windows, state)
    if any_missing(windows, state):
        rows = with_losses(context.checkpoint(rows), rare, windows)
    return opinions(rows, windows)


LIVENESS = Part(
    "intervals of every broker, merged over the name servers",
    (
        Stage(RARE_EVENTS, (REGISTRATION_EVENTS,), lambda _, events: rare_events(events)),
        Stage(
            BLIND_PERIODS,
            (RARE_EVENTS, OBSERVER_WINDOWS, Before(BLIND_PERIODS)),
            lambda context, rare, windows, before: blind_periods(rare, windows, before, **context.days),
        ),
        Stage(
            MAINTENANCE_WINDOWS,
            (RARE_EVENTS, Before(MAINTENANCE_WINDOWS)),
            lambda context, rare, before: maintenance_windows(rare, before, **context.days),
        ),
        Stage(OPINIONS, (RARE_EVENTS, REGISTRATION_EVENTS, OBSERVER_WINDOWS, Before(BROKER_STATE)), _opinions),
        Stage(VOTES, (OPINIONS, BLIND_PERIODS), lambda _, held, blind: votes(held, blind)),
        Stage(
            STEPS,
            (VOTES, Before(BROKER_STATE)),
            lambda context, cast, state: sweep(cast, state, first_day=context.first_day),
        ),
        Stage(BROKER_INTERVALS, (STEPS,), lambda context, steps: broker_intervals(steps, **context.days)),
        Stage(AVAILABILITY, (BROKER_INTERVALS,), lambda _, intervals: availability(intervals)),
        Stage(ORDERED_FACTS, (RARE_EVENTS, Before(BROKER_FACTS)), lambda _, rare, before: ordered_facts(rare, before)),
        Stage(BROKER_FACTS, (ORDERED_FACTS,), lambda context, facts: broker_facts(facts, **context.days)),
        Stage(BROKER_CHANGES, (ORDERED_FACTS, RARE_EVENTS), lambda _, facts, rare: broker_changes(facts, rare)),
        Stage(
            PARTIAL_VIEWS,
            (STEPS, VOTES),
            lambda context, steps, cast: partial_views(steps, cast, last_day=context.last_day),
        ),
        Stage(
            NAMESRV_DAYS,
            (RARE_EVENTS, OBSERVER_WINDOWS, BLIND_PERIODS),
            lambda _, rare, windows, blind: namesrv_days(rare, windows, blind),
        ),
        Stage(OBSERVER_CLOCKS, (REGISTRATION_EVENTS,), lambda _, events: observer_clocks(events)),
    ),
)
"""Up and down intervals of brokers, and the name servers' coverage."""


INCIDENT_MEMBERS = Intermediate("incident_members")
NEAR_OUTAGES = Intermediate("near_outages")
OUTAGES_WITH_FACTS = Intermediate("outages_with_facts")
ROLLING_OUTAGES = Intermediate("rolling_outages")
CHARGE_SUMS = Intermediate("charge_sums")
CHARGED_DAYS = Intermediate("charged_days")
KNOWN_SPANS = Intermediate("known_spans")


def _incident_members(context: Context, intervals: DataFrame, available: DataFrame, facts: DataFrame) -> DataFrame:
    return members(outages(intervals), places(available, facts), parameters=context.parameters.incidents)


def _near_outages(context: Context, rare: DataFrame, events_before: DataFrame, intervals: DataFrame) -> DataFrame:
    before = fact_rows(early_rows(events_before, context.first_day))
    return near_rows(fact_rows(rare).unionByName(before), downs(intervals))


def _outages_with_facts(
    context: Context,
    near: DataFrame,
    in_incidents: DataFrame,
    intervals: DataFrame,
    causes_before: DataFrame,
) -> DataFrame:
    return outages_with_facts(
        intervals,
        outage_signals(near),
        recovery_facts(near),
        in_incidents,
        causes_before,
        first_day=context.first_day,
    )


def _incidents(
    _: Context, in_incidents: DataFrame, available: DataFrame, facts: DataFrame, known: DataFrame
) -> DataFrame:
    return incidents(in_incidents, places(available, facts), incident_causes(known))


def _charge_sums(
    context: Context,
    events: DataFrame,
    events_before: DataFrame,
    in_incidents: DataFrame,
    intervals: DataFrame,
    blind: DataFrame,
    planned: DataFrame,
) -> DataFrame:
    parameters = context.parameters.flapping
    # Spark skips the parts of files with only earlier rows.
    last_slot = utc_days.start_of(context.first_day) - int(parameters.same_sign_seconds * utc_days.SECOND)
    late = F.col("event_at") >= F.timestamp_micros(F.lit(last_slot))
    rows = sign_rows(events).unionByName(sign_rows(events_before.filter(late)))
    reliable = without_blind(rows, blind)
    seen = signs(reliable, first_day=context.first_day, last_day=context.last_day, parameters=parameters)
    charged = charges(outages(intervals), in_incidents, intervals, seen, planned, parameters=parameters)
    return running_sums(charged, parameters=parameters)


def _charged_days(context: Context, sums: DataFrame, steps: DataFrame, state: DataFrame) -> DataFrame:
    parameters = context.parameters.flapping
    return charged_days(sums, known_brokers(steps), state, first_day=context.first_day, parameters=parameters)


def _known_spans(  # noqa: PLR0917  # one for each input of the stage
    context: Context,
    steps: DataFrame,
    state: DataFrame,
    intervals: DataFrame,
    since_yesterday: DataFrame,
    days_charged: DataFrame,
    charged: DataFrame,
    in_incidents: DataFrame,
    changes: DataFrame,
    views: DataFrame,
    known: DataFrame,
    held: DataFrame,
) -> DataFrame:
    """All facts about each broker's days; those on which nothing happened are in one row."""
    parameters = context.parameters.flapping
    rows = spans(
        held_states(steps, _carried(state, parameters), last_day=context.last_day),
        days_charged,
        marks(charged, parameters=parameters),
        in_incidents.groupBy(*_BROKER_DAY).agg(F.count("*").alias("incident_downs")),
        state_changes(since_yesterday, **context.days, parameters=context.parameters.ranking),
        causes(moments(outages(intervals), charged, intervals, changes), views, known),
        day_sums(intervals),
        turns_at_day_end(held, **context.days),
        last_day=context.last_day,
    )
    rows = with_opinions(with_whole_days(rows))
    of_watched = ("incident_downs", "percent_state_change", "cause", "cause_says")
    rows = rows.withColumns({name: F.when(F.col("seen_on").isNotNull(), F.col(name)) for name in of_watched})
    rows = flagged_before(penalty_before(rows, first_day=context.first_day), parameters=parameters)
    return flapped_before(seen_before(rows))


def _carried(state: DataFrame, parameters: FlapParameters) -> DataFrame:
    """What the state of the day before says about the days of a broker."""
    return state.select(
        *INSTANCE,
        carried_penalty(parameters).alias("carried_penalty"),
        F.col("flagged").alias("carried_flagged"),
        F.col("flapped_on").alias("carried_flapped"),
        F.col("first_seen_on").alias("carried_first"),
        F.col("last_seen_on").alias("carried_last"),
    )


def _flap_ranking(context: Context, available: DataFrame, classed: DataFrame) -> DataFrame:
    days = broker_days(available, classed)
    return flap_ranking(days, **context.days, parameters=context.parameters.ranking)


def _ranked_before(parameters: Parameters) -> int:
    return parameters.ranking.days - 1


FLAPS = Part(
    "incidents, flap score and the state for the next day",
    (
        Stage(INCIDENT_MEMBERS, (BROKER_INTERVALS, AVAILABILITY, BROKER_FACTS), _incident_members),
        Stage(
            CHARGE_SUMS,
            (
                REGISTRATION_EVENTS,
                Before(REGISTRATION_EVENTS),
                INCIDENT_MEMBERS,
                BROKER_INTERVALS,
                Since(BLIND_PERIODS),
                Since(MAINTENANCE_WINDOWS),
            ),
            _charge_sums,
        ),
        Stage(CHARGED_DAYS, (CHARGE_SUMS, STEPS, Before(BROKER_STATE)), _charged_days),
        Stage(FLAP_CHARGES, (CHARGE_SUMS, CHARGED_DAYS), lambda _, sums, charged: penalties(sums, charged)),
        Stage(
            NEAR_OUTAGES,
            (RARE_EVENTS, Before(REGISTRATION_EVENTS), Since(BROKER_INTERVALS)),
            _near_outages,
        ),
        Stage(
            OUTAGES_WITH_FACTS,
            (NEAR_OUTAGES, INCIDENT_MEMBERS, Since(BROKER_INTERVALS), Before(OUTAGE_CAUSES)),
            _outages_with_facts,
        ),
        Stage(
            ROLLING_OUTAGES,
            (OUTAGES_WITH_FACTS,),
            lambda context, rows: rolling_outages(rows, parameters=context.parameters.incidents),
        ),
        Stage(
            OUTAGE_CAUSES, (OUTAGES_WITH_FACTS, ROLLING_OUTAGES), lambda _, rows, rolling: outage_causes(rows, rolling)
        ),
        Stage(
            KNOWN_SPANS,
            (
                STEPS,
                Before(BROKER_STATE),
                BROKER_INTERVALS,
                Since(BROKER_INTERVALS),
                CHARGED_DAYS,
                FLAP_CHARGES,
                INCIDENT_MEMBERS,
                BROKER_CHANGES,
                PARTIAL_VIEWS,
                OUTAGE_CAUSES,
                OPINIONS,
            ),
            _known_spans,
        ),
        Stage(
            FLAPPING,
            (KNOWN_SPANS, BLIND_PERIODS),
            lambda context, known, blind: flapping(known, blind, parameters=context.parameters.flapping),
        ),
        Stage(
            FLAP_RANKING,
            (Since(AVAILABILITY, _ranked_before), Since(FLAPPING, _ranked_before)),
            _flap_ranking,
        ),
        Stage(
            BROKER_STATE,
            (KNOWN_SPANS,),
            lambda context, known: broker_state(known_days(known, parameters=context.parameters.flapping)),
        ),
        Stage(INCIDENTS, (INCIDENT_MEMBERS, AVAILABILITY, BROKER_FACTS, OUTAGE_CAUSES), _incidents),
        Stage(ROLLING_RESTARTS, (ROLLING_OUTAGES,), lambda _, rolling: rolling_restarts(rolling)),
        Stage(
            GUARD_PERIODS,
            (RARE_EVENTS, OBSERVER_WINDOWS, Before(GUARD_PERIODS)),
            lambda context, rare, windows, before: guard_periods(rare, windows, before, **context.days),
        ),
    ),
)
"""Incidents, causes, penalty, class and rank of brokers."""


def _broker_memory(context: Context, available: DataFrame, memory: DataFrame, checks: DataFrame) -> DataFrame:
    sums = memory_sums(available, memory, **context.days, parameters=context.parameters.memory)
    parameters = context.parameters.memory
    return broker_memory(context.checkpoint(sums), memory, checks, last_day=context.last_day, parameters=parameters)


def _weekly_patterns(context: Context, intervals: DataFrame, memory: DataFrame) -> DataFrame:
    return weekly_patterns(intervals, memory, **context.days, parameters=context.parameters.memory)


def _forecast_before(_: Parameters) -> int:
    return FORECAST_DAYS


def _checked_before(_: Parameters) -> int:
    return CHECKED_DAYS - 1


def _patterns_before(_: Parameters) -> int:
    return PATTERN_DAYS - 1


MEMORY = Part(
    "long memory of outages, forecasts and weekly patterns",
    (
        Stage(
            BROKER_MEMORY,
            (AVAILABILITY, Before(BROKER_MEMORY, _forecast_before), Before(FORECAST_CHECKS, _checked_before)),
            _broker_memory,
        ),
        Stage(
            FORECAST_CHECKS,
            (BROKER_MEMORY, Before(BROKER_MEMORY, _forecast_before)),
            lambda context, memory, before: forecast_checks(memory, before, last_day=context.last_day),
        ),
        Stage(WEEKLY_PATTERNS, (Since(BROKER_INTERVALS, _patterns_before), BROKER_MEMORY), _weekly_patterns),
    ),
)
"""Which brokers will fail next, and when they do."""


STATEMENTS = Intermediate("statements")
HOLDINGS = Intermediate("holdings")
HOLDINGS_AT_RISK = Intermediate("holdings_at_risk")


def _statements(context: Context, events: DataFrame, before: DataFrame, brokers: DataFrame) -> DataFrame:
    return statements(events, before.filter("open"), brokers, **context.days)


def _topic_intervals(context: Context, events: DataFrame, recorded: DataFrame, before: DataFrame) -> DataFrame:
    return topic_intervals(events, recorded, before.filter("open"), **context.days)


TOPICS = Part(
    "topics and queues over time, topics at risk and those affected by incidents",
    (
        Stage(STATEMENTS, (REGISTRATION_EVENTS, Before(TOPIC_INTERVALS), BROKER_INTERVALS), _statements),
        Stage(TOPIC_INTERVALS, (REGISTRATION_EVENTS, STATEMENTS, Before(TOPIC_INTERVALS)), _topic_intervals),
        Stage(HOLDINGS, (TOPIC_INTERVALS, BROKER_INTERVALS), lambda _, held, brokers: holdings(held, brokers)),
        Stage(
            HOLDINGS_AT_RISK,
            (HOLDINGS, BROKER_INTERVALS),
            lambda _, doubtful, brokers: holdings_at_risk(doubtful, brokers),
        ),
        Stage(TOPICS_AT_RISK, (HOLDINGS_AT_RISK,), lambda _, at_risk: topics_at_risk(at_risk)),
        Stage(TOPIC_CHURN, (TOPIC_INTERVALS,), lambda _, held: topic_churn(held)),
        Stage(
            BLAST_RADIUS,
            (INCIDENTS, TOPIC_INTERVALS, HOLDINGS_AT_RISK),
            lambda _, found, held, at_risk: blast_radius(found, held, at_risk),
        ),
    ),
)
"""Topics and queues of brokers over time."""


BEATS = Intermediate("beats")
QUEUE_REPORTS = Intermediate("queue_reports")


def _hot_queues(context: Context, topics: DataFrame, groups: DataFrame, registered: DataFrame) -> DataFrame:
    parameters = context.parameters.health
    return (
        key_skew(topics, parameters=parameters)
        .unionByName(too_many_queues(topics, parameters=parameters))
        .unionByName(hot_groups(groups, topics, registered, parameters=parameters))
    )


def _objective_before(parameters: Parameters) -> int:
    return parameters.health.slo_days - 1


HEALTH = Part(
    "health of clusters, heartbeats and queues",
    (
        Stage(QUEUE_REPORTS, (REGISTRATION_EVENTS,), lambda _, events: queue_reports(events)),
        Stage(TOPIC_LOAD, (QUEUE_REPORTS,), lambda _, reports: topic_load(reports)),
        Stage(GROUP_LAG, (QUEUE_REPORTS,), lambda _, reports: group_lag(reports)),
        Stage(QUEUE_STATS, (QUEUE_REPORTS,), lambda _, reports: queue_stats(reports)),
        Stage(HOT_QUEUES, (TOPIC_LOAD, GROUP_LAG, TOPIC_INTERVALS), _hot_queues),
        Stage(BEATS, (REGISTRATION_EVENTS, OBSERVER_CLOCKS), lambda _, events, clocks: beats(events, clocks)),
        Stage(HEARTBEAT_PUNCTUALITY, (BEATS,), lambda _, counted: heartbeat_punctuality(counted)),
        Stage(HEARTBEAT_HISTOGRAM, (BEATS,), lambda _, counted: heartbeat_histogram(counted)),
        Stage(
            CLUSTER_HEALTH,
            (Since(AVAILABILITY, _objective_before),),
            lambda context, available: cluster_health(
                available, first_day=context.first_day, parameters=context.parameters.health
            ),
        ),
    ),
)
"""Objectives of clusters, punctuality of heartbeats, and load of queues."""

STAGES = checked((LIVENESS, FLAPS, MEMORY, TOPICS, HEALTH), given=TABLES_READ)
