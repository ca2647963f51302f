"""Which cluster is meant where only a broker name was given."""

from __future__ import annotations

import click

from pointsman_client.errors import NameServerFailedError, NameServersUnavailableError
from pointsman_ctl.failure import BrokerClusterUnknownError
from pointsman_ctl.question import NodeBrokers, brokers_of
from pointsman_ctl.settings import Settings


def cluster_of(settings: Settings, broker_name: str, *, cluster: str) -> str:
    """Return ``cluster``, or the one in which the broker name stands, by the word of all servers that answer.

    Raises a usage error when it stands in several, BrokerClusterUnknownError when in none, and
    NameServersUnavailableError when nobody answered.
    """
    if cluster:
        return cluster
    nodes = settings.ask_every(lambda link, seconds: brokers_of(link, seconds, broker_name=broker_name))
    answers: list[NodeBrokers] = [node.answer for node in nodes if node.answer is not None]
    found = sorted({status.identity.cluster for answer in answers for status in answer.brokers})
    if len(found) == 1:
        return found[0]
    if found:
        raise click.UsageError(f"{broker_name} stands in clusters {', '.join(found)}: say which with --cluster")
    failures = [node.failure for node in nodes if isinstance(node.failure, NameServerFailedError)]
    if failures and not answers:
        raise NameServersUnavailableError(failures)
    for node in nodes:
        if node.failure is not None and not answers:
            raise node.failure
    raise BrokerClusterUnknownError(broker_name)
