"""What the worker process for questions about the past needs of its environment."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pointsman_namesrv.history import past_worker
from pointsman_namesrv.history.past_files import PastFiles
from pointsman_namesrv.history.past_worker_link import MEMORY_BYTES
from tests.kit.history.own_files import write_own_files
from tests.spark.histories import NameServer, broker, moment

WITHOUT_NICE = """
import os, sys
def forbidden(_):
    raise PermissionError("Operation not permitted")
os.nice = forbidden
from pointsman_namesrv.history.past_worker import main
main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""
"""As under the systemd unit, which allows no change of priorities."""


def test_a_worker_that_may_not_lower_its_priority_answers(tmp_path: Path) -> None:
    server = NameServer().start(moment(0))
    server.say("REGISTERED", moment(1), broker("a"))
    write_own_files(tmp_path, server.rows)
    question = json.dumps({"kind": "broker", "broker_name": "a", "at": moment(60).isoformat(), "limit": 10}).encode()

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NICE, str(tmp_path), "ns1:9876", str(MEMORY_BYTES)],
        input=len(question).to_bytes(4, "big") + question,
        capture_output=True,
        timeout=60,
        check=True,
    )

    head, size = done.stdout[4:], int.from_bytes(done.stdout[:4], "big")
    found = json.loads(head[:size])["answer"]
    assert [each["broker_name"] for each in found["brokers"]] == ["a"]


def test_the_size_of_a_grpc_message_does_not_bound_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_worker, "MAX_REPLY_BYTES", 10)
    server = NameServer().start(moment(0))
    server.say("REGISTERED", moment(1), broker("a"))
    write_own_files(tmp_path, server.rows)
    files = PastFiles(tmp_path, "ns1:9876")

    def head(**question: Any) -> Any:
        asked = json.dumps({"at": moment(60).isoformat(), **question}).encode()
        return json.loads(past_worker._answered(files, asked)[0])

    assert head(kind="fleet")["list"] == "replicas"
    assert head(kind="broker", broker_name="a") == {"too_large": True}


def test_within_an_answer_it_sleeps_again_and_again_and_not_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: list[Any] = []
    armed: list[float] = []
    slept: list[float] = []
    monkeypatch.setattr(signal, "signal", lambda _, handler: handlers.append(handler))
    monkeypatch.setattr(signal, "setitimer", lambda _, seconds: armed.append(seconds))
    monkeypatch.setattr(time, "sleep", slept.append)
    with past_worker._yielding():
        handlers[-1](signal.SIGALRM, None)
        handlers[-1](signal.SIGALRM, None)
    monkeypatch.undo()
    assert slept == [past_worker.YIELD_SECONDS] * 2
    assert armed == [past_worker.WORK_SECONDS] * 3 + [0.0]
    assert handlers[-1] is signal.SIG_IGN
