"""Files of operators' settings: what is refused, and what a copy changes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from pointsman_ctl.commands import settings_copy
from pointsman_ctl.commands.settings_copy import (
    KINDS,
    KV,
    InvalidSettingsFileError,
    StoredSetting,
    plan_of,
    read_file,
    stored,
    to_file,
)
from pointsman_ctl.servers.name_servers import Key, Setting

NOW = datetime(2026, 11, 29, 14, 0, tzinfo=UTC)
KEY = {"kind": "KV", "name": ["LIMITS", "orders"], "value": "100"}
GUARD = {"kind": "GUARD", "name": ["c1"], "value": "HOLD"}


def test_what_is_written_is_read_again() -> None:
    settings: dict[Key, Setting] = {
        ("KV", "LIMITS", "orders"): Setting("ä\n", None),
        ("GUARD", "c1"): Setting("OFF", 90.0),
        ("MAINTENANCE", "c1", ""): Setting("racks", 3_600.0),
        ("WIPED_PERMISSION", "c1", "mq-1.example"): Setting("", None),
        ("HIDDEN_TOPIC", "c1", "broker-a", "orders"): Setting("", None),
    }
    held = stored(settings, now=NOW)

    assert read_file(to_file(held, source="ns1:9876", now=NOW).encode(), source="f") == held
    assert {key: setting.at(NOW) for key, setting in held.items()} == settings


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "it is not JSON: "),
        ("[" * 100_000, "it is not JSON: "),
        ("[]", "version must be 1"),
        ('{"version": 2, "settings": []}', "version must be 1"),
        ('{"version": 1}', "settings must be a list"),
        ([1], "settings[0] must be an object"),
        ([KEY, {}], "settings[1].kind must be one of KV, WIPED_PERMISSION, HIDDEN_TOPIC, GUARD, MAINTENANCE, got None"),
        ([KEY | {"kind": []}], "settings[0].kind must be one of"),
        ([KEY | {"name": ["a"]}], "settings[0].name must be a list of 2 strings for KV, got ['a']"),
        ([KEY | {"name": ["a", 1]}], "settings[0].name must be a list of 2 strings"),
        ([KEY | {"name": ["a", ""]}], "settings[0].name: '' must not be empty"),
        ([KEY | {"name": ["a", "b c"]}], "settings[0].name: 'b c' may hold only letters, digits"),
        ([KEY | {"value": 100}], "settings[0].value must be a string, got 100"),
        ([KEY | {"value": "x" * 65_537}], "settings[0].value has 65537 characters, at most 65536 are allowed"),
        ([GUARD | {"value": "ON"}], "settings[0].value must be one of AUTO, HOLD, OFF, got 'ON'"),
        ([GUARD | {"endsAt": "soon"}], "settings[0].endsAt must be a time such as"),
        ([GUARD | {"endsAt": "2026-11-29T14:00:00"}], "settings[0].endsAt must be a time such as"),
        ([GUARD | {"endsAt": 5}], "settings[0].endsAt must be a time such as"),
        ([{"kind": "MAINTENANCE", "name": ["c1", ""], "value": "a\nb"}], "settings[0].value must not hold control"),
        ([KEY, KEY], "settings[1] is there twice: KV LIMITS orders"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_field(content: object, problem: str) -> None:
    text = content if isinstance(content, str) else json.dumps({"version": 1, "settings": content})
    with pytest.raises(InvalidSettingsFileError) as refused:
        read_file(text.encode(), source="settings.json")
    assert str(refused.value).startswith(f"settings.json is not a file of `settings dump`: {problem}")


def test_a_file_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_copy, "MAX_FILE_BYTES", 10)
    with pytest.raises(InvalidSettingsFileError, match="it has more than 10 bytes"):
        read_file(b" " * 11, source="f")


def test_a_plan_has_only_what_is_missing_or_differs() -> None:
    later = NOW + timedelta(hours=1)
    source: dict[Key, StoredSetting] = {
        ("KV", "A", "same"): StoredSetting("1", None),
        ("KV", "A", "other"): StoredSetting("1", None),
        ("KV", "A", "missing"): StoredSetting("1", None),
        ("GUARD", "c1"): StoredSetting("HOLD", later),
        ("GUARD", "c2"): StoredSetting("HOLD", NOW),
        ("HIDDEN_TOPIC", "c1", "a", "t"): StoredSetting("", None),
    }
    there: dict[Key, Setting] = {
        ("KV", "A", "same"): Setting("1", None),
        ("KV", "A", "other"): Setting("2", None),
        ("KV", "A", "own"): Setting("1", None),
        ("GUARD", "c1"): Setting("HOLD", 3_590.0),
    }
    plan = plan_of(source, there, kinds=KINDS, now=NOW)
    keys_alone = plan_of(source, there, kinds=(KV,), now=NOW)

    assert list(plan.wanted) == [("KV", "A", "missing"), ("KV", "A", "other")]
    assert plan.ended == [("GUARD", "c2")]
    assert plan.kept == [("KV", "A", "own")]
    assert (keys_alone.wanted, keys_alone.ended) == (plan.wanted, [])
