"""The command ``pointsman-agent``: arguments, exit codes, and nothing else."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pointsman.service import logs, process
from pointsman.service.clock import SystemClock
from pointsman.service.config import ConfigError
from pointsman.service.monitoring import CannotListen
from pointsman_agent import __version__
from pointsman_agent.app import Agent
from pointsman_agent.config import AgentConfig, load, to_toml
from pointsman_agent.metrics import AgentMetrics
from pointsman_agent.offsets.store import StoreNotInstalledError
from pointsman_agent.probe import ProbeNotInstalledError
from pointsman_agent.probe.configured import build_probe
from pointsman_agent.topic_source import TopicSourceError, TopicSourceNotInstalledError
from pointsman_agent.topic_source.build import build_topic_source
from pointsman_agent.topic_source.rocketmq import load_broker_conf
from pointsman_agent.topic_source.source_metrics import SourceMetrics

PROGRAM = "pointsman-agent"

DESCRIPTION = """\
Runs beside a message broker and keeps name servers told of it: registers the broker with its topics, beats, probes
the broker, and takes its leave when it is stopped. Every name server is told separately, so one that is down delays
no other.
"""

EPILOG = """\
a start:
  agent.toml:   [broker]
                cluster = "DefaultCluster"
                name = "broker-a"
                addr = "10.0.0.1:6379"
                [name_servers]
                addrs = ["10.0.1.1:9876", "10.0.1.2:9876"]
                [probe]
                kind = "redis"
                [[topics.topic]]
                name = "orders"
                read_queues = 4
                write_queues = 4
  pointsman-agent config check --config agent.toml
  pointsman-agent --config agent.toml
  curl -s http://127.0.0.1:9881/healthz

configuration:
  defaults < file < environment (AGENT_SECTION__KEY, as AGENT_PROBE__PASSWORD) < flags.
  `config print` shows the outcome with every setting; deploy/config/agent.example.toml explains each.

signals:
  SIGTERM, SIGINT   look at the broker once more. If it is gone, unregister it; if it answers, hand its registration
                    over to the next agent: nothing changes for clients. At most stop.timeout_seconds.
  a second one      leave at once.
  SIGHUP            read the topics again at once.

exit codes:
  0 stopped as asked   1 failed   2 bad arguments or configuration   130 left at once on a second signal
"""

log = logging.getLogger("pointsman_agent")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = _build_parser()
    arguments = parser.parse_args(argv)
    if arguments.config is None:
        parser.error("--config FILE is required")
    try:
        config = load(arguments.config, os.environ, log_level=arguments.log_level)
        agent = _build_agent(config, arguments)
    except ConfigError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        return process.EXIT_BAD_CONFIGURATION
    except (ProbeNotInstalledError, TopicSourceNotInstalledError, StoreNotInstalledError, TopicSourceError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return process.EXIT_BAD_CONFIGURATION
    if arguments.command == "config":
        print(f"{arguments.config}: ok" if arguments.action == "check" else to_toml(config).rstrip())
        return process.EXIT_OK
    logs.configure(config.log.level)
    return process.run(lambda stop: _run(agent, stop), loop=arguments.loop, on_hangup=agent.look_now)


def _build_agent(config: AgentConfig, arguments: argparse.Namespace) -> Agent:
    clock, metrics = SystemClock(), AgentMetrics(version=__version__)
    source_metrics = SourceMetrics(metrics.registry, clock=clock)
    if config.rpc.listen and config.keeps_offsets_in_redis:
        import pointsman_agent.offsets.redis_store  # noqa: F401, PLC0415  # says what to install, before anything runs
    if config.topics.broker_conf:
        _compare_with_broker_conf(config)
    return Agent(
        config,
        probe=build_probe(config, clock=clock, registry=metrics.registry),
        clock=clock,
        version=__version__,
        topic_source=build_topic_source(
            config,
            clock=clock,
            file=arguments.config,
            environment=os.environ,
            log_level=arguments.log_level,
            on_left_out=source_metrics.set_left_out,
        ),
        metrics=metrics,
        source_metrics=source_metrics,
    )


def _compare_with_broker_conf(config: AgentConfig) -> None:
    """Say where the agent's configuration contradicts its broker's. Raises TopicSourceError."""
    broker = config.broker
    conf = load_broker_conf(Path(config.topics.broker_conf), environment=os.environ)
    for line in conf.contradictions(cluster=broker.cluster, name=broker.name, broker_id=broker.id, addr=broker.addr):
        print(f"{PROGRAM}: {config.topics.broker_conf}: {line}", file=sys.stderr)


async def _run(agent: Agent, stop: asyncio.Event) -> int:
    code = process.EXIT_OK
    try:
        await agent.run(stop)
    except* CannotListen as group:
        code = process.EXIT_FAILED
        log.error("cannot start: %s", group.exceptions[0])  # noqa: TRY400  # the sentence says it all
    except* Exception:  # the edge of the task group: the log has what failed
        code = process.EXIT_FAILED
        log.exception("failed")
    return code


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    _add_config_argument(parser, default=None)
    parser.add_argument("--loop", choices=process.LOOPS, default="uvloop", help="event loop (default: uvloop)")
    parser.add_argument("--log-level", choices=logs.LEVELS, help="instead of log.level of the configuration")
    commands = parser.add_subparsers(dest="command", metavar="config", title="instead of running")
    config = commands.add_parser("config", help="check or print the configuration")
    actions = config.add_subparsers(dest="action", required=True, metavar="check|print")
    check = actions.add_parser("check", help="list every fault of the configuration; exit 2 if there is one")
    shown = actions.add_parser("print", help="print the whole configuration as it applies, as TOML; passwords hidden")
    for each in (check, shown):
        # SUPPRESS: a default here would overwrite what stood before the subcommand.
        _add_config_argument(each, default=argparse.SUPPRESS)
    return parser


def _add_config_argument(parser: argparse.ArgumentParser, *, default: str | None) -> None:
    parser.add_argument("--config", metavar="FILE", type=Path, default=default, help="TOML file with the configuration")


if __name__ == "__main__":
    sys.exit(main())
