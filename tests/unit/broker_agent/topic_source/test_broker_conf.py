"""The properties of a RocketMQ broker that registration uses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_agent.topic_source.broker_conf import BrokerConf, BrokerConfError, read_broker_conf

SAMPLE = b"""\
# as in distribution/conf
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
"""


def conf(*lines: str, **environment: str) -> BrokerConf:
    return read_broker_conf("\n".join(lines or ["#"]).encode("iso-8859-1"), environment=environment)


def test_the_sample_of_the_distribution() -> None:
    assert read_broker_conf(SAMPLE, environment={}) == BrokerConf(broker_name="broker-a")


def test_a_file_without_settings_has_the_broker_s_defaults() -> None:
    assert conf() == BrokerConf()
    assert (conf().cluster, conf().broker_id, conf().broker_permission) == ("DefaultCluster", 0, 6)


@pytest.mark.parametrize(
    ("lines", "broker_id"),
    [
        pytest.param(["brokerId=3"], 0, id="a-master-by-default"),
        pytest.param(["brokerRole=SYNC_MASTER", "brokerId=3"], 0, id="a-master-is-0"),
        pytest.param(["brokerRole=SLAVE", "brokerId=3"], 3, id="a-slave"),
        pytest.param(["brokerRole= SLAVE ", "brokerId=+3"], 3, id="texts-are-trimmed-and-a-plus-is-a-sign"),
        pytest.param(["brokerRole=slave", "brokerId=3"], 0, id="an-unknown-role-is-ignored"),
        pytest.param(["brokerRole=SLAVE", "brokerId=3", "enableControllerMode=true"], None, id="controller"),
        pytest.param(["enableDLegerCommitLog=true"], None, id="dledger"),
        pytest.param(["enableControllerMode=yes"], 0, id="only-true-is-true"),
    ],
)
def test_the_id_follows_the_role(lines: list[str], broker_id: int | None) -> None:
    assert conf(*lines).broker_id == broker_id


@pytest.mark.parametrize("line", ["brokerId=0", "brokerId=-1", "brokerId=x", "deleteWhen=04"])
def test_a_slave_without_an_id_above_0_is_refused_as_the_broker_refuses_it(line: str) -> None:
    with pytest.raises(BrokerConfError, match=r"^brokerId: must be above 0 with brokerRole=SLAVE"):
        conf("brokerRole=SLAVE", line)


@pytest.mark.parametrize(
    ("lines", "addr", "ha_addr"),
    [
        pytest.param([], "", "", id="left-to-the-broker"),
        pytest.param(["brokerIP1=10.0.0.1"], "10.0.0.1:10911", "", id="default-port"),
        pytest.param(["brokerIP1=10.0.0.1", "listenPort=7000"], "10.0.0.1:7000", "", id="listen-port"),
        pytest.param(["brokerIP2=10.0.0.2", "listenPort=7000"], "", "10.0.0.2:7001", id="ha-is-one-more"),
        pytest.param(["brokerIP2=10.0.0.2", "haListenPort=7009"], "", "10.0.0.2:7009", id="ha-port-as-set"),
        pytest.param(["brokerIP2=10.0.0.2", "haListenPort=0"], "", "10.0.0.2:10912", id="ha-port-0-is-unset"),
        pytest.param(["brokerIP1=::1"], "[::1]:10911", "", id="v6"),
    ],
)
def test_the_addresses(lines: list[str], addr: str, ha_addr: str) -> None:
    read = conf(*lines)

    assert (read.addr, read.ha_addr) == (addr, ha_addr)


@pytest.mark.parametrize("value", ["x", "7000 ", "0x10", "7_000", "70.0", "", "99999999999", "9" * 5_000, "\\u0667"])
def test_a_number_that_does_not_parse_is_ignored_silently(value: str) -> None:
    assert conf(f"listenPort={value}").listen_port == 10_911


@pytest.mark.parametrize(
    ("value", "permission", "masks"),
    [("6", 6, False), ("7", 7, False), ("4", 4, True), ("2", 2, True), ("0", 0, True), ("x", 6, False)],
)
def test_the_permission(value: str, permission: int, masks: bool) -> None:
    read = conf(f"brokerPermission={value}")

    assert (read.broker_permission, read.masks) == (permission, masks)


@pytest.mark.parametrize("line", ["configManagerVersion=v2", "storeType=defaultRocksDB", "storeType = defaultrocksdb "])
def test_rocksdb_is_named_and_refused(line: str) -> None:
    assert line.partition("=")[0].strip() in conf(line).foreign_store
    assert "RocksDB" in conf(line).foreign_store


@pytest.mark.parametrize("line", ["configManagerVersion=v1", "storeType=default"])
def test_json_stores_are_not_refused(line: str) -> None:
    assert conf(line).foreign_store == ""


def test_the_zone_comes_from_the_environment() -> None:
    assert conf(ROCKETMQ_ZONE="z1").zone == "z1"


def test_a_changed_identity_is_named_and_a_changed_permission_is_not() -> None:
    old = BrokerConf(broker_name="a", broker_permission=6)

    assert old.changed_settings(replace(old, broker_permission=4, foreign_store="x")) == []
    assert old.changed_settings(replace(old, broker_name="b", broker_id=1)) == ["broker_name", "broker_id"]


def test_an_agent_configured_as_another_broker_is_reported_with_the_setting() -> None:
    slave = conf("brokerName=b", "brokerRole=SLAVE", "brokerId=2", "brokerIP1=10.0.0.2")

    assert slave.contradictions(cluster="DefaultCluster", name="b", broker_id=2, addr="10.0.0.2:10911") == []
    assert slave.contradictions(cluster="c1", name="a", broker_id=0, addr="10.0.0.1:10911") == [
        "brokerClusterName is 'DefaultCluster', but the agent is configured for 'c1'",
        "brokerName is 'b', but the agent is configured for 'a'",
        "brokerId (by brokerRole) is 2, but the agent is configured for 0",
        "brokerIP1:listenPort is '10.0.0.2:10911', but the agent is configured for '10.0.0.1:10911'",
    ]


def test_settings_missing_in_the_file_cause_no_conflict() -> None:
    elected = conf("enableControllerMode=true")

    assert elected.contradictions(cluster="DefaultCluster", name="a", broker_id=3, addr="10.0.0.1:10911") == []


@pytest.mark.parametrize("content", [b"", b" \n\t\n"])
def test_an_empty_file_counts_as_being_replaced(content: bytes) -> None:
    with pytest.raises(BrokerConfError, match="is empty"):
        read_broker_conf(content, environment={})


def outcome(content: bytes) -> BrokerConf | str:
    try:
        return read_broker_conf(content, environment={})
    except BrokerConfError as error:
        return str(error)


def test_a_truncated_file_is_read_as_it_is_or_refused() -> None:
    read = {length: outcome(SAMPLE[:length]) for length in range(len(SAMPLE))}

    assert {length: each for length, each in read.items() if not isinstance(each, BrokerConf)} == {0: "is empty"}


@given(st.binary(max_size=200))
def test_no_content_causes_an_internal_error(content: bytes) -> None:
    assert outcome(content)
