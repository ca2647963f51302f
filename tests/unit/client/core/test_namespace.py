"""Namespaces as prefixes of topics and groups."""

from __future__ import annotations

import pytest

from pointsman_client.core.namespace import with_namespace, without_namespace

OF_JAVA = [
    ("orders", "SHOP%orders", "orders"),
    ("SHOP%orders", "SHOP%orders", "orders"),
    ("OTHER%orders", "SHOP%OTHER%orders", "OTHER%orders"),
    ("%RETRY%billing", "%RETRY%SHOP%billing", "%RETRY%billing"),
    ("%DLQ%billing", "%DLQ%SHOP%billing", "%DLQ%billing"),
    ("%RETRY%SHOP%billing", "%RETRY%SHOP%billing", "%RETRY%billing"),
    ("%DLQ%SHOP%billing", "%DLQ%SHOP%billing", "%DLQ%billing"),
    ("SHOP", "SHOP%SHOP", "SHOP"),
    ("%SHOP%x", "SHOP%%SHOP%x", "%SHOP%x"),
    ("TBW102", "TBW102", "TBW102"),
    ("SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXX"),
    ("BenchmarkTest", "BenchmarkTest", "BenchmarkTest"),
    ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC"),
    ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
    ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
    ("TRANS_CHECK_MAX_TIME_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"),
    ("SELF_TEST_TOPIC", "SELF_TEST_TOPIC", "SELF_TEST_TOPIC"),
    ("OFFSET_MOVED_EVENT", "OFFSET_MOVED_EVENT", "OFFSET_MOVED_EVENT"),
    ("rmq_sys_anything", "rmq_sys_anything", "rmq_sys_anything"),
    ("rmq_sys_REVIVE_LOG_c", "rmq_sys_REVIVE_LOG_c", "rmq_sys_REVIVE_LOG_c"),
    ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
    ("CID_RMQ_SYS_x", "CID_RMQ_SYS_x", "CID_RMQ_SYS_x"),
    ("CID_ONSAPI_OWNER", "SHOP%CID_ONSAPI_OWNER", "CID_ONSAPI_OWNER"),
    ("TOOLS_CONSUMER", "SHOP%TOOLS_CONSUMER", "TOOLS_CONSUMER"),
    ("FILTERSRV_CONSUMER", "SHOP%FILTERSRV_CONSUMER", "FILTERSRV_CONSUMER"),
    ("SELF_TEST_C_GROUP", "SHOP%SELF_TEST_C_GROUP", "SELF_TEST_C_GROUP"),
    ("SELF_TEST_P_GROUP", "SHOP%SELF_TEST_P_GROUP", "SELF_TEST_P_GROUP"),
    ("CID_ONSAPI_PERMISSION", "SHOP%CID_ONSAPI_PERMISSION", "CID_ONSAPI_PERMISSION"),
    ("CID_ONSAPI_PULL", "SHOP%CID_ONSAPI_PULL", "CID_ONSAPI_PULL"),
    ("CID_ONS_HTTP_PROXY", "SHOP%CID_ONS_HTTP_PROXY", "CID_ONS_HTTP_PROXY"),
    ("DEFAULT_CONSUMER", "SHOP%DEFAULT_CONSUMER", "DEFAULT_CONSUMER"),
    ("DEFAULT_PRODUCER", "SHOP%DEFAULT_PRODUCER", "DEFAULT_PRODUCER"),
    ("CLIENT_INNER_PRODUCER", "SHOP%CLIENT_INNER_PRODUCER", "CLIENT_INNER_PRODUCER"),
    ("DefaultCluster_REPLY_TOPIC", "SHOP%DefaultCluster_REPLY_TOPIC", "DefaultCluster_REPLY_TOPIC"),
    ("DefaultCluster", "SHOP%DefaultCluster", "DefaultCluster"),
    ("broker-a", "SHOP%broker-a", "broker-a"),
    ("%RETRY%TBW102", "%RETRY%SHOP%TBW102", "%RETRY%TBW102"),
    ("%RETRY%CID_RMQ_SYS_x", "%RETRY%SHOP%CID_RMQ_SYS_x", "%RETRY%CID_RMQ_SYS_x"),
    ("SHOP%CID_RMQ_SYS_x", "SHOP%CID_RMQ_SYS_x", "CID_RMQ_SYS_x"),
    ("SHOP%a%b", "SHOP%a%b", "a%b"),
    ("RMQ_SYS_ROCKSDB_OFFSET", "SHOP%RMQ_SYS_ROCKSDB_OFFSET", "RMQ_SYS_ROCKSDB_OFFSET"),
]
"""Names, and what ``NamespaceUtil`` of RocketMQ 4.9.7, 5.3.3 and 5.5.0 makes of each with and without ``SHOP``."""


@pytest.mark.parametrize(("name", "wrapped", "without"), OF_JAVA)
def test_a_name_gets_and_loses_its_namespace_as_in_java(name: str, wrapped: str, without: str) -> None:
    assert with_namespace("SHOP", name) == wrapped
    assert with_namespace("SHOP", wrapped) == wrapped
    assert without_namespace("SHOP", name) == without
    assert without_namespace("SHOP", wrapped) == without


def test_without_a_namespace_each_name_is_as_it_is() -> None:
    assert with_namespace("", "orders") == without_namespace("", "orders") == "orders"
    assert with_namespace("", "SHOP%orders") == without_namespace("", "SHOP%orders") == "SHOP%orders"
    assert with_namespace("SHOP", "") == without_namespace("SHOP", "") == ""
