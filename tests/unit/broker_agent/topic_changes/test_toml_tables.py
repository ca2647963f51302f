"""The text of a configuration changes in one topic's table, and nowhere else."""

from __future__ import annotations

import tomllib

import pytest

from pointsman_agent.topic_changes.toml_tables import CannotEditError, Row, with_row, without_row

TEXT = """\
# The broker of the west.
[broker]
name = "a"

# What sales sends.
[[topics.topic]]
name = "orders"
read_queues = 4   # as many as consumers
write_queues  =  4

# Who paid.
[[ topics.topic ]] # the second
name = "bills"
read_queues = 1
write_queues = 1

[rpc]
listen = "127.0.0.1:9880"
"""
ROW: Row = {"read_queues": 8, "write_queues": 6}


def test_a_changed_table_keeps_comments_order_and_layout() -> None:
    changed = with_row(TEXT, "orders", ROW)
    assert changed == TEXT.replace("read_queues = 4   #", "read_queues = 8   #").replace(
        "write_queues  =  4", "write_queues  =  6"
    )


def test_a_key_that_the_table_does_not_have_is_appended_to_it() -> None:
    changed = with_row(TEXT, "orders", {"perm": "r"})
    assert changed == TEXT.replace("write_queues  =  4\n", 'write_queues  =  4\nperm = "r"\n')


def test_a_new_table_follows_the_last_one_with_its_comments_in_place() -> None:
    changed = with_row(TEXT, "refunds", ROW)
    block = '\n[[topics.topic]]\nname = "refunds"\nread_queues = 8\nwrite_queues = 6\n'
    assert changed == TEXT.replace("write_queues = 1\n", f"write_queues = 1\n{block}")


@pytest.mark.parametrize("text", ["", "[broker]\nname = 'a'", "[topics]\nsource = 'toml'\n[rpc]\n"])
def test_the_first_table_of_a_file_is_appended(text: str) -> None:
    changed = with_row(text, "orders", ROW)
    assert tomllib.loads(changed)["topics"]["topic"] == [{"name": "orders", **ROW}]
    assert changed.startswith(text)


def test_a_removed_table_takes_its_own_comment_and_leaves_that_of_the_next() -> None:
    changed = without_row(TEXT, "orders")
    assert "What sales sends" not in changed
    assert "# Who paid.\n[[ topics.topic ]] # the second" in changed
    rest = '[broker]\nname = "a"\n\n[rpc]\nlisten = "127.0.0.1:9880"\n'
    assert without_row(changed, "bills") == f"# The broker of the west.\n{rest}"
    assert without_row(TEXT, "absent") == TEXT


def test_a_comment_that_is_not_right_above_a_removed_table_stays() -> None:
    text = "[broker]\n# of the broker\n[[topics.topic]]\nname = 'orders'\n"
    assert without_row(text, "orders") == "[broker]\n# of the broker\n"


def test_line_ends_of_windows_stay() -> None:
    text = TEXT.replace("\n", "\r\n")
    assert with_row(text, "orders", ROW) == with_row(TEXT, "orders", ROW).replace("\n", "\r\n")
    assert with_row(text, "new", ROW) == with_row(TEXT, "new", ROW).replace("\n", "\r\n")
    assert without_row(text, "orders") == without_row(TEXT, "orders").replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[topics]\ntopic = [{name = 'orders', read_queues = 1, write_queues = 1}]\n", "not written as"),
        ("[[topics.topic]]\nname = 'a'\n'read_queues' = 1\nwrite_queues = 1\n", "changed text is not TOML"),
        ("[[topics.topic]]\nname = 'a'\nx = '''\nread_queues = 1\n'''\nwrite_queues = 1\n", "layout"),
        ("note = '''\n[[topics.topic]]\n'''\n[[topics.topic]]\nname = 'a'\n", "not written as"),
        ("topics = 1\n", "not a list"),
        ("topics = {topic = 1}\n", "not a list"),
        ("[broker\n", "not TOML"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, why: str) -> None:
    with pytest.raises(CannotEditError, match=why):
        with_row(text, "a", ROW)
