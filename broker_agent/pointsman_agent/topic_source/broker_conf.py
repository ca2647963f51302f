"""Identity, store and permission in the properties file of a RocketMQ broker. Pure.

Names, defaults and rules are RocketMQ 5's (``BrokerConfig``, ``MessageStoreConfig``, ``BrokerStartup``): a number that
does not parse is silently ignored, as by the broker. A broker reads the file at its start only, but writes back what an
operator changes through the broker. Of that only ``brokerPermission`` is followed; a changed identity needs a restart
of the agent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from pointsman.names import PERM_MASK, PERM_READ, PERM_WRITE, join_addr
from pointsman_agent.topic_source.properties import PropertiesError, parse_properties

DEFAULT_CLUSTER = "DefaultCluster"
DEFAULT_LISTEN_PORT = 10_911
DEFAULT_PERMISSION = PERM_READ | PERM_WRITE
MASTER_ROLES = ("ASYNC_MASTER", "SYNC_MASTER")
ROLES = (*MASTER_ROLES, "SLAVE")
ZONE_VARIABLE = "ROCKETMQ_ZONE"

_JAVA_INT = re.compile(r"[+-]?[0-9]{1,20}")
_CONTROLS_AND_BLANK = "".join(map(chr, range(0x21)))
"""Removed by Java's ``String.trim``."""


class BrokerConfError(Exception):
    """The broker cannot have been started with this file; the text has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConf:
    """The settings that registration needs. Empty: the broker derives the value from its machine."""

    cluster: str = DEFAULT_CLUSTER
    broker_name: str = ""
    """Empty: the name of the broker's host."""
    broker_id: int | None = 0
    """0 for both master roles, regardless of ``brokerId``. None: elected, by a controller or DLedger."""
    addr: str = ""
    """``brokerIP1:listenPort``; empty: the broker picks an address of its machine."""
    ha_addr: str = ""
    """``brokerIP2:haListenPort``; the port is ``listenPort + 1`` unless set above 0. 4.9 and 5.0.0 always use the
    former; unreleased builds ignore both ports of the file. If in doubt, set the agent's own ``ha_addr``."""
    listen_port: int = DEFAULT_LISTEN_PORT
    store_path_root_dir: str = ""
    """Empty: ``store`` in the home of the broker's user."""
    zone: str = ""
    """From the environment variable ROCKETMQ_ZONE; the file has no such setting."""
    broker_permission: int = DEFAULT_PERMISSION
    """Bits: read 4, write 2."""
    foreign_store: str = ""
    """Why this broker does not store its topics in ``topics.json``; empty: it does."""

    @property
    def masks(self) -> bool:
        """Whether the permission masks topics: in RocketMQ only without read or without write."""
        return self.broker_permission & DEFAULT_PERMISSION != DEFAULT_PERMISSION

    def changed_settings(self, new: BrokerConf) -> list[str]:
        """Return the settings that differ in ``new`` and need a restart of the agent."""
        followed = {"broker_permission", "foreign_store"}
        names = [field.name for field in fields(self) if field.name not in followed]
        return [name for name in names if getattr(self, name) != getattr(new, name)]

    def contradictions(self, *, cluster: str, name: str, broker_id: int, addr: str) -> list[str]:
        """Return one sentence for each setting in which the agent contradicts this file."""
        compared = (
            ("brokerClusterName", self.cluster, cluster),
            ("brokerName", self.broker_name or name, name),
            ("brokerId (by brokerRole)", broker_id if self.broker_id is None else self.broker_id, broker_id),
            ("brokerIP1:listenPort", self.addr or addr, addr),
        )
        return [
            f"{key} is {mine!r}, but the agent is configured for {theirs!r}"
            for key, mine, theirs in compared
            if mine != theirs
        ]


def read_broker_conf(content: bytes, *, environment: Mapping[str, str]) -> BrokerConf:
    """Read the file's content. Raises BrokerConfError for an empty file, and where the broker would not start.

    A broker's file is empty only for the moment in which it is replaced.
    """
    if not content.strip():
        raise BrokerConfError("is empty")
    try:
        properties = parse_properties(content.decode("iso-8859-1"))
    except PropertiesError as error:
        raise BrokerConfError(str(error)) from error
    return _from_properties(properties, zone=environment.get(ZONE_VARIABLE, ""))


def _from_properties(properties: Mapping[str, str], *, zone: str) -> BrokerConf:
    listen_port = _int(properties, "listenPort", DEFAULT_LISTEN_PORT)
    ha_port = _int(properties, "haListenPort", 0)
    ip1, ip2 = _text(properties, "brokerIP1"), _text(properties, "brokerIP2")
    return BrokerConf(
        cluster=_text(properties, "brokerClusterName", DEFAULT_CLUSTER),
        broker_name=_text(properties, "brokerName"),
        broker_id=_broker_id(properties),
        addr=join_addr(ip1, listen_port) if ip1 else "",
        ha_addr=join_addr(ip2, ha_port if ha_port > 0 else listen_port + 1) if ip2 else "",
        listen_port=listen_port,
        store_path_root_dir=_text(properties, "storePathRootDir"),
        zone=zone,
        broker_permission=_int(properties, "brokerPermission", DEFAULT_PERMISSION) & PERM_MASK,
        foreign_store=_foreign_store(properties),
    )


def _broker_id(properties: Mapping[str, str]) -> int | None:
    if _flag(properties, "enableControllerMode") or _flag(properties, "enableDLegerCommitLog"):
        return None
    role = _text(properties, "brokerRole")
    if role not in ROLES or role in MASTER_ROLES:
        return 0
    broker_id = _int(properties, "brokerId", 0)
    if broker_id <= 0:
        raise BrokerConfError(f"brokerId: must be above 0 with brokerRole=SLAVE, got {broker_id}")
    return broker_id


def _foreign_store(properties: Mapping[str, str]) -> str:
    for key, value, folder in (
        ("configManagerVersion", "v2", "config/rdb"),
        ("storeType", "defaultRocksDB", "config/topics"),
    ):
        if _text(properties, key).lower() == value.lower():
            return (
                f"{key}={value}: this broker keeps its topics in RocksDB ({folder}), which the agent does not read; "
                f"topics.json would be out of date. Use topics.source = 'toml', or a broker with JSON files"
            )
    return ""


def _text(properties: Mapping[str, str], key: str, default: str = "") -> str:
    return properties.get(key, default).strip(_CONTROLS_AND_BLANK)


def _int(properties: Mapping[str, str], key: str, default: int) -> int:
    # Not trimmed: Integer.parseInt rejects "10911 ", and the broker then uses its default.
    text = properties.get(key, "")
    if _JAVA_INT.fullmatch(text) is None or not -(2**31) <= int(text) < 2**31:
        return default
    return int(text)


def _flag(properties: Mapping[str, str], key: str) -> bool:
    return properties.get(key, "").lower() == "true"
