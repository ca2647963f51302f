"""The agent's metrics. Every label value comes from the configuration or a fixed list, so their number is bounded."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector

from pointsman_agent.core.own_state import OwnState
from pointsman_agent.core.probe_verdict import ProbeResult, ProbeStatus
from pointsman_agent.core.registration_session import RegistrationState

_NAME_SERVER = "name_server"


class AgentMetrics:
    """All metrics, in a separate registry."""

    def __init__(self, *, version: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.registration_state = Gauge(
            "pointsman_agent_registration_state",
            "Registration at a name server: 1 for the current state, 0 for the others.",
            [_NAME_SERVER, "state"],
            registry=self.registry,
        )
        self.registrations = Counter(
            "pointsman_agent_registrations_total",
            "Registrations sent, by result: accepted, updated, update_failed, unreachable, temporary_error, refused, "
            "held_by_other.",
            [_NAME_SERVER, "result"],
            registry=self.registry,
        )
        self.beats = Counter(
            "pointsman_agent_heartbeats_total",
            "Heartbeats sent, by result: ok, unknown_broker, stale_generation, topics_out_of_date, timeout, "
            "stream_broken.",
            [_NAME_SERVER, "result"],
            registry=self.registry,
        )
        self.round_trip = Histogram(
            "pointsman_agent_heartbeat_round_trip_seconds",
            "Time from a heartbeat to its response.",
            [_NAME_SERVER],
            buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 3.0),
            registry=self.registry,
        )
        self._credential_reloads = Counter(
            "pointsman_agent_credential_reloads_total",
            "Reloads of the credential files, by result: applied, rejected (the last valid ones stay in use).",
            ["result"],
            registry=self.registry,
        )
        for result in ("applied", "rejected"):
            self._credential_reloads.labels(result)
        self._probe_results = Counter(
            "pointsman_agent_probes_total",
            "Broker probes, by result: passed, failed.",
            ["result"],
            registry=self.registry,
        )
        self._broker_up = Gauge(
            "pointsman_agent_broker_up",
            "1 while the broker passes its probe, 0 while it fails, NaN before the first result or without a probe.",
            registry=self.registry,
        )
        self._role_conflict = Gauge(
            "pointsman_agent_broker_role_conflict",
            "1 while the role of the broker contradicts the configured broker id.",
            registry=self.registry,
        )
        self._topics = Gauge("pointsman_agent_topics", "Topics that this broker registers.", registry=self.registry)
        build = Gauge(
            "pointsman_agent_build_info", "Always 1; the version is a label.", ["version"], registry=self.registry
        )
        build.labels(version).set(1)

    def of_name_server(self, name_server: str) -> NameServerMetrics:
        """Bind the metrics that are kept for each name server."""
        return NameServerMetrics(self, name_server)

    def forget_name_server(self, name_server: str) -> None:
        """Remove the series of a name server that is no longer listed."""
        for metric in (self.registration_state, self.registrations, self.beats, self.round_trip):
            metric.remove_by_labels({_NAME_SERVER: name_server})

    def count_probe(self, result: ProbeResult) -> None:
        """Count one probe."""
        self._probe_results.labels("passed" if result.passed else "failed").inc()

    def count_credential_reload(self, result: str) -> None:
        """Count a change of the credentials' files."""
        self._credential_reloads.labels(result).inc()

    def set_own_state(self, own: OwnState) -> None:
        """Publish the broker's current state."""
        up = {ProbeStatus.PASSING: 1.0, ProbeStatus.FAILING: 0.0, ProbeStatus.UNSPECIFIED: float("nan")}
        self._broker_up.set(up[own.status])
        self._role_conflict.set(own.role_conflict is not None)
        self._topics.set(len(own.topics.topics))


class NameServerMetrics:
    """The metrics of one name server."""

    def __init__(self, metrics: AgentMetrics, name_server: str) -> None:
        self._metrics = metrics
        self._name_server = name_server
        self.set_registration_state(RegistrationState.UNREGISTERED)

    def count_registration(self, result: str) -> None:
        """Count a finished registration."""
        self._metrics.registrations.labels(self._name_server, result).inc()

    def count_beat(self, answer: str) -> None:
        """Count a heartbeat by its response, or by the lack of one."""
        self._metrics.beats.labels(self._name_server, answer).inc()

    def observe_round_trip(self, seconds: float) -> None:
        """Record the time to a response."""
        self._metrics.round_trip.labels(self._name_server).observe(seconds)

    def set_registration_state(self, state: RegistrationState) -> None:
        """Publish the registration state."""
        for each in RegistrationState:
            self._metrics.registration_state.labels(self._name_server, each.value).set(each is state)
