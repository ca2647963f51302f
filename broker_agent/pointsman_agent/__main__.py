"""The command ``pointsman-agent``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import click

from pointsman.daemon.process import daemon_process, logs
from pointsman.daemon.process.daemon_command import LOOP, Daemon, Given
from pointsman_agent import __version__
from pointsman_agent.config import AgentConfig, load, to_toml

HELP = """\
The agent (sidecar) of a message broker.

It registers the broker and its topics at every name server, sends heartbeats, probes the broker, and hands the
registration over or unregisters it when it is stopped. A name server that is down delays no other.

\b
Examples:
  pointsman-agent config check --config agent.toml
  pointsman-agent certs check --config agent.toml
  pointsman-agent --config agent.toml
  curl -s http://127.0.0.1:9881/healthz

\b
A first agent.toml:
  [broker]
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
"""

EPILOG = """\
\b
Settings:    defaults < file < environment (AGENT_SECTION__KEY, as
             AGENT_PROBE__PASSWORD) < options;
             deploy/config/agent.example.toml explains each
Signals:     SIGTERM and SIGINT probe the broker once more: if it is gone,
             unregister it; if it responds, hand its registration over to the
             next agent (nothing changes for clients). At most
             stop.timeout_seconds; a second one stops immediately. SIGHUP
             reads the topics again.
Exit codes:  0 stopped, 1 failed, 2 bad configuration or usage, 130 forced by
             a second signal
"""


def prepare(config: AgentConfig, given: Given) -> Callable[[], int]:
    """Build the agent, and return what runs it until a signal. Raises ConfigError."""
    from pointsman_agent.start import build_agent, serve  # noqa: PLC0415  # gRPC: --help does without

    agent = build_agent(config, file=given.file, flags=given.flags)

    def start() -> int:
        logs.configure(config.log.level, config.log.format)
        return daemon_process.run(lambda stop: serve(agent, stop), loop=given.others["loop"], on_hangup=agent.poll_now)

    return start


DAEMON = Daemon(
    "pointsman-agent",
    version=__version__,
    help=HELP,
    epilog=EPILOG,
    options=(
        click.Option(["--log-level", "log__level"], type=click.Choice(logs.LEVELS), help="Over log.level of the file."),
        click.Option(
            ["--log-format", "log__format"], type=click.Choice(logs.FORMATS), help="Over log.format of the file."
        ),
        click.Option(["--loop"], type=LOOP, default="uvloop", show_default=True, help="Event loop."),
    ),
    load=load,
    to_toml=to_toml,
    prepare=prepare,
    needs_file=True,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return DAEMON.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
