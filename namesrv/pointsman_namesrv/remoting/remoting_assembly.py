"""Builds the server of RocketMQ's wire from the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pointsman.clock import Clock
from pointsman.daemon.access.access import Access
from pointsman.daemon.access.fair_bound import FairBound
from pointsman.daemon.tls.tls_connection import Handshakes
from pointsman.names import split_addr
from pointsman_namesrv.config import NameServerConfig
from pointsman_namesrv.core.additive import AdditiveRegistrations
from pointsman_namesrv.core.administration import Administration
from pointsman_namesrv.core.events import RecordEvents
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.own_pauses import OwnPauses
from pointsman_namesrv.remoting.broker_codes import BrokerCodes
from pointsman_namesrv.remoting.operator_codes import OperatorCodes
from pointsman_namesrv.remoting.remoting_server import RemotingServer
from pointsman_namesrv.remoting.requests import Requests
from pointsman_namesrv.remoting.table_responses import ResponseRules, TableResponses
from pointsman_namesrv.settings.settings_keeper import SettingsKeeper

if TYPE_CHECKING:
    from pointsman.daemon.tls.server_certificates import ServerCertificates


def remoting_server(
    config: NameServerConfig,
    core: NameServer,
    settings: SettingsKeeper,
    *,
    lifecycle: NodeLifecycle,
    clock: Clock,
    metrics: Metrics,
    record: RecordEvents,
    pauses: OwnPauses,
    coming_in: FairBound,
    certificates: ServerCertificates | None,
    access: Access,
) -> RemotingServer:
    """Build the server without opening anything."""
    remoting = config.remoting
    is_permissive = remoting.tls == "permissive"
    rules = ResponseRules(remoting.support_acting_master, remoting.order_message_enable)
    most = config.routes.max_topics_per_broker
    registrations = AdditiveRegistrations(core, bounds=config.liveness.bounds(), max_topics=most)
    tables = TableResponses(
        core, rules=rules, max_bytes=config.cache_bytes_of_each_wire, count_built=metrics.route_answers_built.inc
    )
    brokers = BrokerCodes(
        core,
        registrations,
        coming_in=coming_in,
        clock=clock,
        metrics=metrics,
        record=record,
        pauses=pauses,
        access=access,
    )

    def shown() -> dict[str, str]:
        host, port = split_addr(remoting.listen)
        return {
            "bindAddress": host,
            "deleteTopicWithBrokerRegistration": "false",
            "enableAllTopicList": "true",
            "enableTopicList": "true",
            "listenPort": str(port),
            "needWaitForService": "true",
            "notifyMinBrokerIdChanged": "false",
            "orderMessageEnable": _java(remoting.order_message_enable),
            "supportActingMaster": _java(remoting.support_acting_master),
        }

    operators = OperatorCodes(
        core,
        settings,
        clock=clock,
        record=record,
        shown=shown,
        administration=Administration(
            core, hidden_namespaces=config.history.hide_kv, followed_list=config.address_server.follows
        ),
    )
    requests = Requests(tables, brokers, operators, lifecycle=lifecycle, metrics=metrics, record=record, access=access)
    return RemotingServer(
        requests,
        brokers,
        max_connections=remoting.max_connections,
        lifecycle=lifecycle,
        clock=clock,
        metrics=metrics,
        handshakes=_handshakes(None if config.shares_port else certificates, permissive=is_permissive, clock=clock),
        is_permissive=is_permissive,
        access=access,
    )


def _handshakes(certificates: ServerCertificates | None, *, permissive: bool, clock: Clock) -> Handshakes | None:
    if certificates is None:
        return None
    return Handshakes(lambda: certificates.context, permissive=permissive, monotonic=clock.monotonic)


def _java(value: bool) -> str:
    return "true" if value else "false"
