"""The agent's configuration: its own rules, and a password that is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman.config import ConfigError
from pointsman_agent.config import load, to_toml

MINIMAL = {
    "broker": {"cluster": '"c1"', "name": '"a"', "addr": '"10.0.0.1:10911"'},
    "name_servers": {"addrs": '["10.0.1.1:9876"]'},
}


def written(directory: Path, sections: dict[str, dict[str, str]]) -> Path:
    """Write the minimal configuration, changed by ``sections``; values are TOML."""
    merged = {name: MINIMAL.get(name, {}) | sections.get(name, {}) for name in {**MINIMAL, **sections}}
    lines = []
    for name, table in merged.items():
        lines.append(f"[[{name}]]" if name == "topics.topic" else f"[{name}]")
        lines += [f"{key} = {value}" for key, value in table.items()]
    file = directory / "agent.toml"
    file.write_text("\n".join(lines))
    return file


def faults(directory: Path, sections: dict[str, dict[str, str]]) -> list[str]:
    file = written(directory, sections)
    try:
        load(file, {})
    except ConfigError as error:
        return [problem.removeprefix(f"{file}: ") for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        ('[probe]\npassword = ["s3cret"]', "probe.password: must be a string"),
        ('[probe]\npassword = { value = "s3cret" }', "probe.password: must be a string"),
        ("[probe]\npassword = 73537", "probe.password: must be a string"),
        ('[[probe]]\npassword = "s3cret"', "probe: must be a table, not a list"),
    ],
)
def test_a_password_of_a_wrong_type_is_not_shown_in_its_problem(tmp_path: Path, toml: str, problem: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(toml)
    with pytest.raises(ConfigError) as refused:
        load(path, {})
    assert f"{path}: {problem}" in refused.value.problems
    assert not [line for line in refused.value.problems if "s3cret" in line or "73537" in line]


def test_a_password_is_never_printed(tmp_path: Path) -> None:
    config = load(written(tmp_path, {"probe": {"kind": '"redis"', "password": '"secret"'}}), {})

    assert "secret" not in to_toml(config) + repr(config)
    assert config.probe.password == "secret"


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("broker", "cluster", '""'),
        ("broker", "cluster", '"has space"'),
        ("broker", "name", '"' + "n" * 128 + '"'),
        ("broker", "id", "-1"),
        ("broker", "id", "2147483648"),
        ("broker", "addr", '"10.0.0.1"'),
        ("broker", "addr", '"10.0.0.1:0"'),
        ("broker", "ha_addr", '"10.0.0.1:65536"'),
        ("broker", "agent_addr", '"::1:9880"'),
        ("broker", "zone", '"a\\nb"'),
        ("broker", "labels", '{ rack = "a\\nb" }'),
        ("broker", "labels", "{ " + ", ".join(f'k{i} = ""' for i in range(33)) + " }"),
        ("broker", "filter_servers", '["x"]'),
        ("broker", "filter_servers", '["h:1", "h:1"]'),
        ("broker", "filter_servers", "[" + ", ".join(f'"h:{i}"' for i in range(1, 34)) + "]"),
        ("broker", "state_version", "-1"),
        ("name_servers", "addrs", "[]"),
        ("name_servers", "addrs", '["h"]'),
        ("name_servers", "addrs", '["h:1", "h:1"]'),
        ("heartbeat", "interval_seconds", "0"),
        ("heartbeat", "interval_seconds", "nan"),
        ("heartbeat", "expiry_seconds", "inf"),
        ("heartbeat", "expiry_seconds", "89"),
        ("heartbeat", "timeout_seconds", "0"),
        ("heartbeat", "register_timeout_seconds", "-1"),
        ("probe", "kind", '"ping"'),
        ("probe", "target", '"x"'),
        ("probe", "interval_seconds", "0"),
        ("probe", "timeout_seconds", "0"),
        ("probe", "rise", "0"),
        ("probe", "fall", "0"),
        ("probe", "username", '"u"'),
        ("probe", "password", '"p"'),
        ("stop", "timeout_seconds", "0"),
        ("stop", "unprobed", '"stay"'),
        ("monitoring", "listen", '"9881"'),
        ("log", "level", '"LOUD"'),
    ],
)
def test_a_bad_value_is_one_error_that_names_its_field(tmp_path: Path, section: str, key: str, value: str) -> None:
    found = faults(tmp_path, {section: {key: value}})

    assert len(found) == 1
    assert found[0].startswith(f"{section}.{key}")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", '""'),
        ("name", '"no good"'),
        ("read_queues", "-1"),
        ("read_queues", "65536"),
        ("write_queues", "-1"),
        ("write_queues", "65536"),
        ("perm", '"rwx"'),
        ("topic_sys_flag", "4"),
        ("queue_weight", "0"),
        ("queue_weight", "101"),
        ("queue_weight", "1.5"),
        ("read_queues", "4.5"),
    ],
)
def test_a_bad_topic_is_one_error_that_names_its_field(tmp_path: Path, key: str, value: str) -> None:
    good = {"name": '"orders"', "read_queues": "4", "write_queues": "4"}

    assert faults(tmp_path, {"topics.topic": good}) == []

    found = faults(tmp_path, {"topics.topic": good | {key: value}})
    assert len(found) == 1
    assert found[0].startswith(f"topics.topic[0].{key}: ")


def test_missing_settings_are_named(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text("")

    with pytest.raises(ConfigError) as raised:
        load(file, {})

    named = {problem.split(": ")[1] for problem in raised.value.problems}
    assert named == {"broker.cluster", "broker.name", "broker.addr", "name_servers.addrs"}


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:9881", "localhost:1"])
def test_monitoring_may_listen_on_any_port_or_a_free_one(tmp_path: Path, listen: str) -> None:
    assert faults(tmp_path, {"monitoring": {"listen": f'"{listen}"'}}) == []


def test_bounds_are_inside(tmp_path: Path) -> None:
    edges = {
        "broker": {"id": "2147483647", "state_version": "18446744073709551615"},
        "heartbeat": {"interval_seconds": "40", "expiry_seconds": "120"},
        "topics.topic": {"name": '"%|a-Z_9"', "read_queues": "65535", "write_queues": "0", "perm": '"none"'},
    }

    assert faults(tmp_path, edges) == []


LIST = "http://ns1:8080/rocketmq/nsaddr"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ns1:8080/rocketmq/nsaddr", "must be http://HOST:PORT/PATH"),
        ("file:///etc/passwd", "must be http://HOST:PORT/PATH"),
        ("http://ns1:0/x", "must be http://HOST:PORT/PATH"),
        ("http://ns1:port/x", "is not a URL"),
        ("http://me:secret@ns1/x", "must not have a user name or password"),
    ],
)
def test_the_address_of_a_list_is_a_url_without_a_password(tmp_path: Path, url: str, problem: str) -> None:
    [found] = faults(tmp_path, {"name_servers": {"addrs": "[]", "url": f'"{url}"'}})
    assert found.startswith("name_servers.url: ")
    assert problem in found
    assert "secret" not in found


def test_a_list_in_plaintext_gets_no_token_sent_to_servers_that_are_not_verified(tmp_path: Path) -> None:
    token, credentials = tmp_path / "token", {"token_file": f'"{tmp_path / "token"}"'}
    token.write_text("t0ken")
    of_list = {"name_servers": {"addrs": "[]", "url": f'"{LIST}"'}}
    [found] = faults(tmp_path, {**of_list, "credentials": credentials})
    assert found.startswith(f"name_servers.url: '{LIST}' is not encrypted")
    assert faults(tmp_path, {**of_list, "credentials": {**credentials, "tls": "true"}}) == []
    over_tls = {"name_servers": {"addrs": "[]", "url": f'"{LIST.replace("http", "https")}"'}}
    assert faults(tmp_path, {**over_tls, "credentials": credentials}) == []
    assert faults(tmp_path, of_list) == []
    assert faults(tmp_path, {"name_servers": {"url": f'"{LIST}"'}}) == [
        "name_servers.url: addrs is also set; set only one of addrs, dns, file and url"
    ]
