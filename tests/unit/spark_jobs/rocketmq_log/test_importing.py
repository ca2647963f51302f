"""``pointsman-report import rocketmq-log`` over the logs of real name servers, packed and broken files, and ids."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pointsman_report.cli import main
from pointsman_report.rocketmq_log.broker_ids import BrokerId, BrokerIdsError, brokers_of, load
from pointsman_report.row_validation import problems_of
from tests.kit.broker.rocketmq.frames import frames, response
from tests.kit.history.rows import files_in, rows_in

LOGS = Path(__file__).parents[3] / "fixtures" / "rocketmq_logs"
VERSIONS = ("5.3.3", "4.9.7")


def log(version: str) -> Path:
    return LOGS / f"namesrv-{version}.log"


def content(version: str) -> bytes:
    return log(version).read_bytes()


def imported(history: Path, *files: Path, code: int = 0, options: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    assert main(["import", "rocketmq-log", *map(str, files), "--history", str(history), *options]) == code
    return sorted(rows_in(history), key=lambda row: (row["event_at"], row["seq"]))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_log_of_a_real_name_server_shows_how_each_broker_left(version: str, tmp_path: Path) -> None:
    found = imported(tmp_path, log(version))

    last = [
        (row["broker_addr"].partition(":")[0][-1], row["event"], row["reason"])
        for row in found
        if row["broker_id"] is not None
    ]
    silent = ("9", "EXPIRED", "SILENCE") if version == "5.3.3" else ("9", "EXPIRED", "STREAM_BROKEN")
    assert silent in last
    # 4.9 closes a connection that was idle for its expiry, and logs that instead of the broker's expiry.
    others = [each for each in last if each[0] != "9"]
    planned = ("5", "UNREGISTERED", "SHUTDOWN")
    assert others == [
        *((n, "REGISTERED", None) for n in "12345"),
        ("3", "EXPIRED", "STREAM_BROKEN"),
        ("4", "UNREGISTERED", "SHUTDOWN"),
        *((n, "REGISTERED", None) for n in "34"),
        *((n, "EXPIRED", "STREAM_BROKEN") for n in "34"),
        ("3", "REGISTERED", None),
        # 5.x does not log which of the two of one second crashed.
        planned if version == "4.9.7" else ("5", "EXPIRED", None),
        ("2", "EXPIRED", "STREAM_BROKEN" if version == "4.9.7" else None),
        *((n, "REGISTERED", None) for n in "25"),
        # The name server was stopped, which closed its connections, and started again.
        *((n, "REGISTERED", None) for n in "123"),
    ]
    runs = [row["event"] for row in found if row["broker_id"] is None]
    assert runs == ["NAMESRV_STARTED", "NAMESRV_READY", "NAMESRV_STOPPED", "NAMESRV_STARTED", "NAMESRV_READY"]
    assert found[0]["event_at"] < "2026-11-23T05:10"  # GMT+8
    for name in files_in(tmp_path):
        assert not [problem for problem in problems_of(tmp_path / "raw" / name) if problem is not None]


def test_rotated_files_in_any_order_are_one_log_and_twice_is_once(tmp_path: Path) -> None:
    lines = content("5.3.3").splitlines(keepends=True)
    packed, plain = tmp_path / "namesrv.1.log.gz", tmp_path / "namesrv.log"
    packed.write_bytes(gzip.compress(b"".join(lines[:60])))
    plain.write_bytes(b"".join(lines[60:]))
    whole = imported(tmp_path / "whole", log("5.3.3"))

    assert imported(tmp_path / "parts", plain, packed) == whole
    names = files_in(tmp_path / "parts")
    assert imported(tmp_path / "parts", packed, plain) == whole
    assert files_in(tmp_path / "parts") == names


def test_ids_of_a_file_and_of_a_name_server_name_the_brokers(tmp_path: Path, name_server: str) -> None:
    saved = tmp_path / "ids.json"
    saved.write_text(
        json.dumps({"brokerAddrTable": {"broker-b": {"cluster": "C", "brokerAddrs": {"0": "10.0.0.3:10911"}}}})
    )
    found = imported(tmp_path / "h", log("5.3.3"), options=("--ids", str(saved), "--ids", name_server))

    names = {
        row["broker_addr"]: (row["cluster"], row["broker_name"], row["broker_id"]) for row in found if row["state"]
    }
    assert names["10.0.0.3:10911"] == ("C", "broker-b", 0)
    assert names["10.0.0.4:10911"] == ("DefaultCluster", "10.0.0.4:10911", 0)


@pytest.fixture
def name_server() -> Iterator[str]:
    """Answers one request like a real 5.3.3."""
    recorded = response("106_broker533_r0")
    assert recorded is not None
    yield from _serving(recorded)


def _serving(answer: bytes) -> Iterator[str]:
    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(1_024)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)
        thread = threading.Thread(target=serve)
        thread.start()
        host, port = listening.getsockname()
        yield f"{host}:{port}"
        thread.join(20)


def test_a_name_server_is_queried_for_its_brokers(name_server: str) -> None:
    recorded = response("106_broker533_r0")
    assert recorded is not None
    assert load(name_server) == brokers_of(frames(recorded)[0].body)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x08\x00\x00\x00\x04{}{}",
        b"\x00\x00\x00\x04\x00\x00\x00\x00",
    ],
)
def test_an_address_that_is_not_a_name_server_is_an_error_in_one_line(answer: bytes) -> None:
    for addr in _serving(answer):
        with pytest.raises(BrokerIdsError, match=addr):
            load(addr)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"brokerAddrTable":{"a":{}}}', b"[" * 100_000])
def test_a_file_that_is_not_an_answer_is_an_error_in_one_line(body: bytes, tmp_path: Path) -> None:
    path = tmp_path / "ids.json"
    path.write_bytes(body)
    with pytest.raises(BrokerIdsError, match="not a response to request 106"):
        load(str(path))
    with pytest.raises(BrokerIdsError, match="give a file or a name server"):
        load(str(tmp_path / "absent"))


def test_bare_and_quoted_ids_are_read_and_negative_ones_skipped() -> None:
    body = b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"h:1","1":"h:2",-1:"h:3"},"cluster":"c"}}}'
    assert brokers_of(body) == {"h:1": BrokerId("c", "a", 0), "h:2": BrokerId("c", "a", 1)}


def test_unreadable_lines_are_counted_named_and_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torn = tmp_path / "namesrv.log"
    bad = b"2026-11-23 13:02:20 INFO t - new broker registered, half a li\n"
    torn.write_bytes(content("5.3.3") + bad + b"\xff\xfe\x00 noise\n")
    imported(tmp_path / "h", torn, code=1)
    output = capsys.readouterr().out
    assert "1 lines about brokers cannot be read" in output
    assert "namesrv.log:" in output

    imported(tmp_path / "j", torn, options=("--output", "json", "--exit-zero"))
    document = json.loads(capsys.readouterr().out)
    assert (document["unreadable_lines"], document["runs"], document["brokers_without_id"]) == (1, 2, 6)
    assert document["undated_lines"] == 6


def test_another_file_is_read_as_far_as_it_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torn = tmp_path / "torn.log.gz"
    torn.write_bytes(gzip.compress(content("5.3.3"))[:-200])
    (tmp_path / "other.txt").write_text("nothing of a name server\n")
    assert imported(tmp_path / "h", torn, tmp_path / "other.txt", tmp_path / "absent.log", code=2)
    output = capsys.readouterr().err
    assert all(name in output for name in ("torn.log.gz", "other.txt", "absent.log"))


def test_a_log_of_another_program_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broker.log").write_text("2026-11-23 13:02:20 INFO main - The broker[a] boot success\n")
    imported(tmp_path / "h", tmp_path / "broker.log", code=1)
    assert "check that this is the log of a name server" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--timezone", "Mars"), "'Mars' is not a time zone"),
        (("--node", ""), "--node must have"),
        (("--cluster", "a\nb"), "--cluster must have"),
    ],
)
def test_bad_usage_names_the_value(
    options: tuple[str, ...], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(tmp_path, log("5.3.3"), code=2, options=options)
    assert problem in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_one_line_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raw").write_text("a file")
    assert main(["import", "rocketmq-log", str(log("5.3.3")), "--history", str(tmp_path)]) == 2
    assert "--history" in capsys.readouterr().err
