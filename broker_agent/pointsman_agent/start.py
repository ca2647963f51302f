"""Build the agent from its configuration, and run it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import click

from pointsman.clock import SystemClock
from pointsman.config import ConfigError
from pointsman.daemon.access.access_settings import check_files
from pointsman.daemon.http_server import CannotListen
from pointsman.daemon.process import daemon_process
from pointsman.wire.credentials import CredentialsError
from pointsman_agent import __version__
from pointsman_agent.agent_metrics import AgentMetrics
from pointsman_agent.app import Agent
from pointsman_agent.config import AgentConfig
from pointsman_agent.offsets.stored_offsets import StoreNotInstalledError
from pointsman_agent.probe import ProbeNotInstalledError
from pointsman_agent.probe.configured import build_probe
from pointsman_agent.topic_changes.build_topic_writer import build_streams, build_topic_writer
from pointsman_agent.topic_source import TopicSourceError, TopicSourceNotInstalledError
from pointsman_agent.topic_source.build import build_topic_source
from pointsman_agent.topic_source.rocketmq import load_broker_conf
from pointsman_agent.topic_source.source_metrics import SourceMetrics

log = logging.getLogger("pointsman_agent")


def build_agent(config: AgentConfig, *, file: Path | None, flags: Mapping[str, object]) -> Agent:
    """Build everything from a configuration and from what it was loaded from; nothing is opened.

    Raises ConfigError: a package is missing, or the broker's own configuration or a file of the credentials cannot be
    read.
    """
    try:
        return _built(config, file, flags)
    except CredentialsError as error:
        raise ConfigError([f"credentials.{problem}" for problem in error.problems]) from error
    except (ProbeNotInstalledError, TopicSourceNotInstalledError, StoreNotInstalledError, TopicSourceError) as error:
        raise ConfigError([f"pointsman-agent: {error}"]) from error


def _built(config: AgentConfig, file: Path | None, flags: Mapping[str, object]) -> Agent:
    for warning in check_files(config.access, where="pointsman-agent"):
        click.echo(warning, err=True)
    clock, metrics = SystemClock(), AgentMetrics(version=__version__)
    source_metrics = SourceMetrics(metrics.registry, clock=clock)
    if config.rpc.listen and config.keeps_offsets_in_redis:
        import pointsman_agent.offsets.redis_store  # noqa: F401, PLC0415  # fails early if the package is missing
    if config.topics.broker_conf:
        _compare_with_broker_conf(config)
    # Both before the streams: they name the package that is missing.
    probe = build_probe(config, clock=clock, registry=metrics.registry)
    topic_source = build_topic_source(
        config, clock=clock, file=file, environment=os.environ, flags=flags, on_skipped=source_metrics.set_skipped
    )
    streams = build_streams(config, clock=clock)
    return Agent(
        config,
        probe=probe,
        clock=clock,
        version=__version__,
        topic_source=topic_source,
        topic_writer=build_topic_writer(config, streams, clock=clock, file=file, environment=os.environ, flags=flags),
        streams=streams,
        metrics=metrics,
        source_metrics=source_metrics,
    )


def _compare_with_broker_conf(config: AgentConfig) -> None:
    """Print where the agent's configuration contradicts its broker's. Raises TopicSourceError."""
    broker = config.broker
    conf = load_broker_conf(Path(config.topics.broker_conf), environment=os.environ)
    for line in conf.contradictions(cluster=broker.cluster, name=broker.name, broker_id=broker.id, addr=broker.addr):
        click.echo(f"pointsman-agent: {config.topics.broker_conf}: {line}", err=True)


async def serve(agent: Agent, stop: asyncio.Event) -> int:
    """Run until ``stop`` is set; return the exit code."""
    code = daemon_process.EXIT_OK
    try:
        await agent.run(stop)
    except* CannotListen as group:
        code = daemon_process.EXIT_FAILED
        log.error("cannot start: %s", group.exceptions[0])  # noqa: TRY400  # no traceback needed
    except* Exception:  # the log has the traceback
        code = daemon_process.EXIT_FAILED
        log.exception("agent failed")
    return code
