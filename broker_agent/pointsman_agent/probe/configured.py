"""Build the configured probe."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from pointsman.clock import Clock
from pointsman_agent.config import AgentConfig, ProbeSection
from pointsman_agent.probe import Probe
from pointsman_agent.probe.exec import ExecProbe
from pointsman_agent.probe.network_probes import GrpcProbe, HttpProbe, TcpProbe


def build_probe(config: AgentConfig, *, clock: Clock, registry: CollectorRegistry) -> Probe | None:
    """Build the configured probe; its own metrics go to ``registry``. Raises ProbeNotInstalledError."""
    section, broker = config.probe, config.broker
    target = section.target or broker.addr
    if section.kind != "redis":
        return build_plain_probe(section, target)
    from pointsman_agent.probe.redis_metrics import RedisMetrics  # noqa: PLC0415  # as above
    from pointsman_agent.probe.redis_probe import RedisProbe  # noqa: PLC0415  # needs the extra `redis`

    return RedisProbe(
        target,
        username=section.username,
        password=section.password,
        clock=clock,
        peers=section.peers,
        member=str(broker.replica_id) if broker.replica_id else "",
        on_facts=RedisMetrics(registry).set,
    )


def build_plain_probe(section: ProbeSection, target: str) -> Probe | None:
    """Build a probe that needs no extra package; None for the kinds none and redis."""
    match section.kind:
        case "tcp":
            return TcpProbe(target)
        case "http":
            return HttpProbe(target, path=section.path)
        case "grpc":
            return GrpcProbe(target, service=section.service)
        case "exec":
            return ExecProbe(section.command)
        case _:
            return None
