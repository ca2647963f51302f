"""Topics and queues by load, as the brokers' agents measured them last: the command ``queues``."""

from __future__ import annotations

import click

from pointsman.v1 import admin_service_pb2 as admin
from pointsman_ctl.commands.broker_commands import raise_if_not_known
from pointsman_ctl.options.command_options import in_cluster, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.name_completion import complete_topics
from pointsman_ctl.output.error_report import ErrorReport
from pointsman_ctl.output.fleet_queue_view import fleet_queue_parts
from pointsman_ctl.output.output_layout import failure_line, node_documents

MAX_ROWS = 1_000
"""The most that a name server returns of each list."""


@click.command()
@click.argument("topic", required=False, callback=read_name, shell_complete=complete_topics)
@click.option("--hot", is_flag=True, help="Show only what should be changed: hot queues, and groups that need action.")
@in_cluster
@click.option("--limit", type=click.IntRange(1, MAX_ROWS), default=20, show_default=True, help="Rows of each table.")
@pass_invocation
def queues(invocation: Invocation, topic: str, cluster: str, limit: int, *, hot: bool) -> int:
    """List the busiest topics and queues, and what to do.

    Agents measure their broker's queues every 30 s, less often while that takes long, and send the top 20 of each list
    with a heartbeat. IN/S is messages per second that arrive, SKEW the rate of a topic's fastest queue divided by the
    mean of its queues: above 3 the topic is hot. OLDEST is the age of the oldest unread message, BYTES memory as the
    broker estimates it. Findings below the tables are those of the nightly report, for now. Queries all servers listed
    and shows the one that knows most brokers; exits 1 if one failed. RocketMQ brokers have no agent: their queues are
    not known to a name server, see `pointsmanctl offsets`.

    \b
    JSON: nodes[].{addr, node, brokerCount, measuredBrokerCount,
            topics[].{cluster, topic, queueCount, idleQueueCount, putRate,
              highestPutRate, depth, skew, findings[]},
            queues[].{cluster, brokerName, topic, queueId, putRate, depth,
              bytes},
            groups[].{cluster, group, topic, queueCount, memberCount, lag,
              highestLag, putRate, commitRate, catchUpSeconds,
              behindQueueCount, stuckQueueCount, findings[]},
            lags[].{cluster, brokerName, group, topic, queueId, lag,
              oldestUnreadSeconds},
            brokers[].{cluster, brokerName, problem, ageSeconds,
              intervalSeconds, depth, putRate, lag}}
          or {addr, error}; findings[] are {kind, text, remedy}

    \b
    Examples:
      pointsmanctl queues
      pointsmanctl queues --hot
      pointsmanctl queues orders --limit 5
      pointsmanctl -o json queues | jq '.nodes[0].topics[] | select(.skew > 3)'
    """
    # What should be changed may be far down in the lists.
    request = admin.ListLiveQueuesRequest(cluster=cluster, topic=topic, limit=MAX_ROWS if hot else limit)
    nodes = invocation.query_every(
        lambda server, deadline: server.call(server.admin.ListLiveQueues, request, deadline=deadline)
    )
    raise_if_not_known(nodes, cluster)
    known = [node.response for node in nodes if node.response is not None]
    best = max(known, key=lambda each: each.measured_broker_count, default=None)
    parts = [failure_line(node) for node in nodes if node.response is None]
    code = invocation.finish(
        nodes, node_documents(nodes), [*(fleet_queue_parts(best, is_hot=hot, limit=limit) if best else ()), *parts]
    )
    if topic and best is not None and not (best.topics or best.queues or best.groups):
        hint = f"see `pointsmanctl route {topic}`; a broker with more than 20 topics names the busiest"
        return invocation.fail(ErrorReport("TOPIC_NOT_MEASURED", f"no measurement names topic {topic}", hint))
    return code
