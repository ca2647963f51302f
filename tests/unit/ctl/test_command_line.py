"""Wrong usage, help, and a missing extra: no server is queried, and the line has what to do."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path

import click
import pytest

from pointsman_client import AccessKey
from pointsman_ctl.command_line import TASKS, cli, run
from pointsman_ctl.options import command_options
from pointsman_ctl.options.access_options import ACCESS_OPTIONS, read_access
from pointsman_ctl.options.invocation import Invocation
from pointsman_ctl.output.error_report import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_TIMED_OUT, EXIT_USAGE
from pointsman_ctl.servers.stored_messages import RedisAccess

PIN = ["pin", "billing", "--for", "1h"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rout"], "No such command 'rout'"),
        (["route"], "Missing argument 'TOPIC'"),
        (["route", "a b"], "topic 'a b' may hold only letters, digits and %|_-"),
        (["why", ""], "broker '' must not be empty"),
        (["brokers", "--cluster", "a b"], "cluster 'a b' may hold only"),
        (["--namesrv", "localhost", "topics"], "name server address 'localhost' must be host:port"),
        (["--namesrv", "", "topics"], "no name server given"),
        (["--tls-ca", "/does/not/exist", "topics"], "--tls-ca: /does/not/exist cannot be read: No such file"),
        (["--tls-key", "/dev/null", "topics"], "--tls-certificate: is missing; key is set"),
        (["--token-file", "/etc/hosts", "topics"], "--token-file: /etc/hosts has a character that a token cannot have"),
        (["--output", "xml", "topics"], "'xml' is not one of 'table', 'json'"),
        (["--timeout", "0", "topics"], "'--timeout'"),
        (["--timeout", "inf", "topics"], "'--timeout'"),
        (["--timeout", "nan", "topics"], "nan"),
        (["why", "b", "--limit", "0"], "'--limit'"),
        (["flapping", "--limit", "1001"], "'--limit'"),
        (["watch"], "Missing argument 'TOPIC...'"),
        (["watch", "orders", "a b"], "topic 'a b' may hold only"),
        (["watch", "orders", "--for", "10"], "duration '10' has no unit: use 10s, 10m, 10h or 10d"),
        (["diff", "ns1:9876"], "Missing argument 'NODE'"),
        (["diff"], "or --client FILE"),
        (["diff", "ns1:9876", "ns2:9876", "ns3:9876"], "unexpected extra argument (ns3:9876)"),
        (["diff", "--client", "/dev/null", "ns1:9876"], "remove NODE"),
        (["diff", "--client", "/does/not/exist"], "No such file"),
        (["diff", "--client", sys.executable], "is not the JSON of a client's describe(topic)"),
        (["diff", "--client", "/dev/null"], "/dev/null is not the JSON of a client's describe(topic)"),
        (["diff", "ns1:9876", "ns1:9876"], "ns1:9876 is the same node twice"),
        (["diff", "ns1:9876", "ns2:1,ns3:1"], "'ns2:1,ns3:1' is more than one address"),
        (["guard", "hold"], "guard hold needs --cluster"),
        (["guard", "stop"], "'stop' is not one of 'show', 'auto', 'hold', 'off'"),
        (["guard", "hold", "--cluster", "c1", "--for", "2d"], "duration must be at most 1d, got '2d'"),
        (["guard", "auto", "--cluster", "c1", "--for", "5m"], "--for goes with hold or off"),
        (["guard", "--for", "5m"], "--for goes with hold or off"),
        (["maintenance", "on", "c1"], "Missing option '--for'"),
        (["maintenance", "on", "c1/", "--for", "5m"], "broker '' must not be empty"),
        (["maintenance", "on", "c1/a/0", "--for", "5m"], "broker 'a/0' may hold only"),
        (["maintenance", "on", "c1", "--for", "8d"], "duration must be at most 7d, got '8d'"),
        (["maintenance", "on", "c1", "--for", "soon"], "invalid duration 'soon'"),
        (["maintenance", "on", "c1", "--for", "0m"], "duration must be greater than zero, got '0m'"),
        (["maintenance", "on", "c1", "--for", "5m", "--note", "a\nb"], "must not hold control characters"),
        (["maintenance", "on", "c1", "--for", "5m", "--note", "n" * 1025], "has 1025 characters"),
        (["evict", "c1/broker-a"], "broker must be CLUSTER/BROKER/ID, e.g. c1/broker-a/0, got 'c1/broker-a'"),
        (["evict", "c1/broker-a/x"], "broker id must be a number from 0 to 2147483647, got 'x'"),
        (["evict", "c1/broker-a/2147483648"], "broker id must be a number from 0 to 2147483647, got '2147483648'"),
        (["wipe-write-perm", "broker-a", "--cluster", "c1", "--by", "n" * 129], "has 129 characters"),
        (["wipe-write-perm", "broker-a", "--cluster", "c1", "--by", ""], "must not be empty"),
        (["order-topic", "set", "orders", "broker-a"], "'broker-a' must be brokerName:queues"),
        (["order-topic", "set", "orders", "a:1;a:2"], "it names a twice"),
        (["order-topic", "set", "orders", ""], "must not be empty; see `order-topic remove`"),
        (["kv", "put", "NS", "a b", "1"], "key 'a b' may hold only"),
        (["delete-topic", "orders", "--force"], "No terminal for the confirmation: add --yes"),
        (["--namesrv", "ns1:1,ns2:1", "drain"], "Drain all 2 name servers listed? No terminal"),
        (["--namesrv", "rocketmq://ns1/", "groups"], "'rocketmq://ns1/' must be host:port"),
        (["--namesrv", "rocketmq://ns1", "brokers"], "requires a name server of Pointsman, got rocketmq://ns1:9876"),
        (["--namesrv", "ns1:1,rocketmq://ns2:1", "groups"], "write rocketmq:// before each address or before none"),
        (["--access-key-file", "/does/not/exist", "groups"], "--access-key-file: /does/not/exist cannot be read: No"),
        (["--access-key-file", "/etc/hosts", "groups"], " of /etc/hosts must be accessKey: NAME, secretKey: SECRET or"),
        (["--redis-username", "ops", "groups"], "--redis-password-file: is missing; redis_username is set"),
        (["--redis-password-file", "/does/not/exist", "groups"], "--redis-password-file: /does/not/exist cannot be"),
        (
            ["--access-key-file", "/etc", "--tls-ca", "/etc", "groups"],
            "--tls-ca: /etc is not a file; --access-key-file:",
        ),
        (["groups", "--namesrv", "http://ns1:1"], "must be host:port without a scheme"),
        (["--namesrv", "rocketmq://ns1:1", "brokers"], "requires a name server of Pointsman, got rocketmq://ns1:1"),
        (["--namesrv", "rocketmq://ns1:1", "drain-broker", "c1/a/0", "--yes"], "requires a name server of Pointsman"),
        (["group"], "Missing argument 'GROUP'"),
        (["group", "a b"], "group 'a b' may hold only letters, digits and %|_-"),
        (["locks", "--group", "a b"], "group 'a b' may hold only"),
        (["offsets", "a/b"], "group 'a/b' may hold only"),
        (["groups", "--agent", "localhost"], "agent address 'localhost' must be host:port"),
        (["groups", "--agent", "h:1", "--agent", "h:0"], "agent address 'h:0' has a port outside 1 to 65535"),
        (["groups", "--agent", "h:1", "--cluster", "c1"], "--agent cannot be combined with --cluster or --all"),
        (["offsets", "--agent", "h:1", "--all"], "--agent cannot be combined with --cluster or --all"),
        (PIN, "Missing option '--to'"),
        (["pin", "billing", "--to", "x@1"], "Missing option '--for'"),
        ([*PIN, "--to", ""], "'' must not be empty"),
        ([*PIN, "--to", "a b"], "'a b' may hold only printable ASCII characters without spaces"),
        ([*PIN, "--to", "ä"], "may hold only printable ASCII"),
        ([*PIN, "--to", "x" * 256], "has 256 characters, at most 255 are allowed"),
        ([*PIN, *(word for number in range(17) for word in ("--to", f"x@{number}"))], "at most 16 are allowed"),
        ([*PIN, "--to", "x@1", "--queue", "orders/3"], "queue must be TOPIC/BROKER/N, e.g. orders/broker-a/3, got"),
        ([*PIN, "--to", "x@1", "--queue", "orders//a/3"], "cluster '' must not be empty"),
        ([*PIN, "--to", "x@1", "--queue", "orders/a b/3"], "broker 'a b' may hold only"),
        ([*PIN, "--to", "x@1", "--queue", "o/a/65535"], "queue number must be from 0 to 65534, got '65535'"),
        ([*PIN, "--to", "x@1", "--queue", "o/a/-1"], "queue number must be from 0 to 65534, got '-1'"),
        ([*PIN, "--to", "x@1", "--to", "y@1", "--queue", "o/a/1"], "with --queue there must be one --to, not 2"),
        ([*PIN, "--to", "x@1", "--queue", "o/a/1", "--agent", "h:1"], "--queue must be TOPIC/CLUSTER/BROKER/N"),
        (
            ["--namesrv", "rocketmq://ns1:1", *PIN, "--to", "x@1", "--queue", "o/a/1"],
            "requires a name server of Pointsman",
        ),
        (["unpin", "billing", "--queue", "o/a/x"], "queue number must be from 0 to 65534, got 'x'"),
        (["pin", "billing", "--to", "x@1", "--for", "8d"], "duration must be at most 7d, got '8d'"),
        (["pin", "billing", "--to", "x@1", "--for", "60"], "'60' has no unit"),
        ([*PIN, "--to", "x@1", "--agent", "h:1", "--cluster", "c1"], "--agent cannot be combined with --cluster"),
        ([*PIN, "--to", "x@1", "--by", "n" * 129], "has 129 characters"),
        (["drain-broker"], "give the broker as CLUSTER/BROKER/ID or by its --agent"),
        (["drain-broker", "c1/a/0", "--agent", "h:1"], "by its --agent, not both"),
        (["drain-broker", "c1/a"], "broker must be CLUSTER/BROKER/ID, e.g. c1/broker-a/0, got 'c1/a'"),
        (["drain-broker", "c1/a/0", "--wait", "2h"], "duration must be at most 1h, got '2h'"),
        (["drain-broker", "c1/a/0", "--deadline", "2d"], "duration must be at most 24h, got '2d'"),
        (["drain-broker", "c1/a/0", "--quiet", "6m"], "duration must be at most 5m, got '6m'"),
        (["drain-broker", "c1/a/0"], "No terminal for the confirmation: add --yes"),
    ],
)
def test_wrong_usage_is_one_line_on_stderr_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err
    assert err.startswith("pointsmanctl: ")


@pytest.mark.parametrize(
    ("text", "account"),
    [
        ("accessKey: billing\nsecretKey: s:1#2\n", AccessKey("billing", "s:1#2")),
        ("---\n# mqadmin\n\n accessKey : 'billing' \nsecretKey: \"s\"", AccessKey("billing", "s")),
        ("\ufeffaccessKey: a\nsecretKey: s # of ops\nsecurityToken: t\n", AccessKey("a", "s", "t")),
    ],
)
def test_an_account_is_read_from_a_file_for_mqadmin(tmp_path: Path, text: str, account: AccessKey) -> None:
    file = tmp_path / "tools.yml"
    file.write_text(text)
    assert read_access({**dict.fromkeys(ACCESS_OPTIONS, ""), "access_key_file": str(file)}).access_key == account


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no accessKey and no secretKey"),
        ("accessKey: a\nsecretKey:\n", "has no secretKey"),
        ("accessKey: a\nhunter2\n", "line 2 of"),
        ("accessKey: a\nsecret: hunter2\n", "line 2 of"),
        ("accessKey: a\nsecretKey: hunter2\udcff\n", "is not UTF-8"),
    ],
)
def test_an_unusable_account_file_is_refused_without_its_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    file = tmp_path / "tools.yml"
    file.write_text(text, errors="surrogateescape")
    assert run(["--access-key-file", str(file), "groups"]) == 2
    err = capsys.readouterr().err
    assert problem in err
    assert "hunter2" not in err


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"hunter2\nhunter3", "must have one line"),
        (b"hunter2\xff", "not UTF-8"),
    ],
)
def test_an_unusable_password_file_is_refused_without_its_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, problem: str
) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    assert run(["--redis-password-file", str(file), "groups"]) == 2
    err = capsys.readouterr().err
    assert problem in err
    assert "hunter2" not in err


def test_access_to_redis_is_read_from_its_options(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"hunter2\r\n")
    none = dict.fromkeys(ACCESS_OPTIONS, "")
    assert read_access(none).to_redis() == RedisAccess()
    given = {"redis_username": "ops", "redis_password_file": str(file), "redis_tls": True}
    assert read_access({**none, **given}).to_redis() == RedisAccess("ops", "hunter2", {"ssl_check_hostname": True})


def test_a_token_is_not_for_rocketmqs_name_servers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    assert run(["--token-file", str(token), "--namesrv", "rocketmq://ns1", "groups"]) == 2
    assert "--token-file is not for rocketmq:// addresses: give --access-key-file" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--output", "json"], ["--output=json"], ["-o", "json"], ["-ojson"]])
def test_with_json_a_wrong_usage_is_json_too(capsys: pytest.CaptureFixture[str], flags: list[str]) -> None:
    assert run([*flags, "route", "a b"]) == 2

    error = json.loads(capsys.readouterr().err)["error"]
    assert error["code"] == "USAGE"
    assert error["hint"] == "see `pointsmanctl route --help`"


@pytest.mark.parametrize("group", ["kv", "maintenance", "messages", "order-topic"])
def test_a_group_without_a_command_answers_with_its_help(capsys: pytest.CaptureFixture[str], group: str) -> None:
    assert run([group]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"Usage: pointsmanctl {group} [OPTIONS] COMMAND" in err.splitlines()[0]
    assert f"    pointsmanctl {group} " in err
    assert "\N{REPLACEMENT CHARACTER}" not in err

    assert run(["-o", "json", group]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["hint"] == f"see `pointsmanctl {group} --help`"


@pytest.mark.parametrize(
    "arguments",
    [
        ["brokers", "--namesrv", "ns1:1,ns2:1", "-o", "json", "--timeout", "7"],
        ["--namesrv", "ns9:9", "-o", "table", "kv", "list", "--namesrv=ns1:1,ns2:1", "--output=json", "--timeout=7"],
        ["kv", "--namesrv", "ns1:1,ns2:1", "list", "-ojson", "--timeout", "7"],
    ],
    ids=" ".join,
)
def test_the_shared_options_may_follow_the_command(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    asked: list[Invocation] = []

    def query_every(invocation: Invocation, *_: object) -> list[object]:
        asked.append(invocation)
        return []

    monkeypatch.setattr(Invocation, "query_every", query_every)
    assert run(arguments) == 0
    assert asked == [Invocation(("ns1:1", "ns2:1"), "json", 7.0)]


@pytest.mark.parametrize("arguments", [["brokers", "--namesrv", "x"], ["brokers", "--timeout", "nan"]])
def test_a_shared_option_after_the_command_is_checked_as_before_it(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert run(arguments) == 2
    assert arguments[1] in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["brokers"]])
def test_a_guess_at_the_option_for_name_servers_is_corrected(
    capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert run([*command, "--servers", "x:1"]) == 2
    line = capsys.readouterr().err
    assert "--namesrv" in line
    assert "--version" not in line


@pytest.mark.parametrize("arguments", [["brokers", "--what"], ["rout"], ["--servers", "x"], ["route"]])
def test_a_line_of_usage_is_punctuated_once(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    run(arguments)
    line = capsys.readouterr().err
    assert not {".:", "?:", "..", ":."} & {line[at : at + 2] for at in range(len(line))}, line


@pytest.mark.parametrize("group", [[], ["kv"], ["maintenance"], ["messages"], ["order-topic"]], ids=" ".join)
def test_no_summary_of_a_command_is_cut(capsys: pytest.CaptureFixture[str], group: list[str]) -> None:
    assert run([*group, "--help"]) == 0
    assert not [
        line for line in capsys.readouterr().out.splitlines() if line.endswith("...") and "pointsmanctl" not in line
    ]


@pytest.mark.parametrize(
    ("arguments", "source"),
    [
        ([], "environment variable POINTSMAN_NAMESRV"),
        (["--namesrv", "nowhere"], "'--namesrv'"),
    ],
)
def test_a_wrong_address_is_reported_with_the_option_or_the_variable_that_it_comes_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], source: str
) -> None:
    monkeypatch.setenv("POINTSMAN_NAMESRV", "nowhere")
    assert run([*arguments, "topics"]) == 2
    assert f"Invalid value for {source}: name server address 'nowhere'" in capsys.readouterr().err


def every_command() -> list[list[str]]:
    found: list[list[str]] = []
    for name, command in cli.commands.items():
        found.append([name])
        if isinstance(command, click.Group):
            found += [[name, inner] for inner in command.commands]
    return found


def examples_of(command: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str]]:
    """The help of a command, and the examples in it."""
    assert run([*command, "--help"]) == 0
    text = capsys.readouterr().out
    return text, text.partition("Examples:\n")[2].split("\n\n")[0].splitlines()


def test_help_of_each_command_has_examples_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    for command in every_command():
        text, examples = examples_of(command, capsys)
        assert len(examples) > 1, command
        assert all(line.startswith("    pointsmanctl ") for line in examples)
        if command != ["options"]:
            assert all(f" {' '.join(command)}" in line for line in examples), command
            assert text.endswith("Options of all commands, exit codes: `pointsmanctl options`.\n"), command


def test_the_help_fits_on_a_screen_with_every_command_below_its_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert len(lines) <= 52
    assert [line for line in lines if line.endswith(":")] == [f"{task}:" for task, _ in TASKS]
    listed = {line.split()[0] for line in lines if re.match(r"  [a-z-]+  ", line)}
    assert listed | {"options"} == set(cli.commands)
    assert "pointsmanctl options" in lines[-1]


def test_the_options_of_all_commands_and_exit_codes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["options"]) == 0
    text = capsys.readouterr().out

    assert all(f"--{name.replace('_', '-')}" in text for name in ("namesrv", "output", "timeout", *ACCESS_OPTIONS))
    codes = [int(line.split()[0]) for line in text.splitlines() if re.match(r"    \d+ ", line)]
    assert codes == [EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_TIMED_OUT, EXIT_INTERRUPTED]


def test_help_of_each_command_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ([], *every_command()):
        text, _ = examples_of(command, capsys)
        assert max(len(line) for line in text.splitlines()) <= 80, command


def test_the_examples_of_the_help_are_commands_that_can_be_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def stop(coroutine: Coroutine[object, object, object]) -> None:
        coroutine.close()
        asked.append("a name server")
        sys.exit(0)

    monkeypatch.setattr(asyncio, "run", stop)
    for command in every_command():
        _, examples = examples_of(command, capsys)
        for example in examples:
            words = shlex.split(example.partition(" | ")[0])[1:]
            with pytest.raises(SystemExit):
                run(words)
            assert asked, example
            asked.clear()


def test_the_summaries_of_the_help_are_those_of_the_commands() -> None:
    for _, entries in TASKS:
        for entry in entries:
            assert (entry.name, entry.summary) == (
                cli.commands[entry.name].name,
                first_sentence(cli.commands[entry.name]),
            )


def first_sentence(command: click.Command) -> str:
    return command.get_short_help_str(limit=1_000)


@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        (["--version"], {}),
        (["--help"], {}),
        ([], {"_POINTSMANCTL_COMPLETE": "bash_complete", "COMP_WORDS": "pointsmanctl ", "COMP_CWORD": "1"}),
    ],
)
def test_neither_grpc_nor_rich_nor_a_command_is_imported_without_need(
    arguments: list[str], env: dict[str, str]
) -> None:
    heavy = ("asyncio", "grpc", "rich", "google.protobuf", "pointsman_ctl.commands.doctor_command")
    code = (
        "import atexit, sys; from pointsman_ctl.__main__ import main; "
        f"atexit.register(lambda: print([name for name in {heavy} if name in sys.modules], file=sys.stderr)); "
        "sys.exit(main())"
    )
    made = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (made.returncode, made.stderr) == (0, "[]\n")
    assert made.stdout


def test_a_command_loads_no_other_command() -> None:
    code = (
        "import sys; from pointsman_ctl.command_line import run; run(['kv', '--help']); "
        "print(sorted(name for name in sys.modules if name.endswith('_command')))"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert made.stdout.splitlines()[-1] == "[]"


def test_each_command_is_completed_with_its_summary(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_POINTSMANCTL_COMPLETE", "zsh_complete")
    monkeypatch.setenv("COMP_WORDS", "pointsmanctl ")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        run([])
    found = capsys.readouterr().out.splitlines()
    expected = {name: first_sentence(command) for name, command in cli.commands.items()}

    assert dict(zip(found[1::3], found[2::3], strict=True)) == expected


UNDONE_BY = {
    "pin": "unpin",
    "unpin": "pin",
    "maintenance on": "maintenance off",
    "maintenance off": "maintenance on",
    "wipe-write-perm": "add-write-perm",
    "add-write-perm": "wipe-write-perm",
    "guard": "guard",
    "kv put": "kv put",
    "kv delete": "kv put",
    "evict": "brokers",
}
"""Changes that take nothing away from clients, and the command that undoes each. An evicted broker that runs registers
again with its next heartbeat, as ``brokers`` shows."""
READS_BY_AUTHOR = {"events", "changes"}


def test_every_change_asks_or_is_undone_by_one_command() -> None:
    found = {" ".join(words): options_of(words) for words in every_command()}
    changes = {name for name, options in found.items() if "--by" in options} - READS_BY_AUTHOR
    asks = {name for name in changes if "--yes" in found[name]}

    assert changes - asks == UNDONE_BY.keys()
    assert set(UNDONE_BY.values()) <= found.keys()
    assert [name for name, options in found.items() if options & {"--yes", "--dry-run"} and "--by" not in options] == []


def options_of(words: list[str]) -> set[str]:
    command: click.Command = cli
    for word in words:
        assert isinstance(command, click.Group)
        command = command.commands[word]
    return {option for param in command.params for option in param.opts}


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert capsys.readouterr().out.startswith("Usage: pointsmanctl [OPTIONS] COMMAND")


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("pointsmanctl ")


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_a_missing_extra_is_one_line_with_the_package_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from pointsman_ctl.__main__ import main; sys.exit(main())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "pointsmanctl needs click and rich: pip install 'pointsman-client[cli]'\n"


def test_the_callers_name_is_a_number_where_a_container_has_no_user_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_a_name() -> str:
        raise OSError("no such user")

    monkeypatch.setattr(getpass, "getuser", without_a_name)
    monkeypatch.setattr(socket, "gethostname", lambda: "h" * 200)
    by = command_options.read_by(click.Context(cli), click.Option(["--by"]), None)
    assert by == f"{os.getuid()}@{'h' * 200}"[:128]
