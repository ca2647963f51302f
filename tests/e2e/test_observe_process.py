"""``pointsman-observe`` as a process next to a name server."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pointsman_namesrv.config import RemotingConfig
from tests.kit.broker.redis.process import free_port
from tests.kit.broker.rocketmq.frames import broker_ext, register
from tests.kit.broker.rocketmq.peer import remoting_peer
from tests.kit.history.rows import files_in, rows_in
from tests.kit.http_answer import ask
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.observed import scripted_fleet
from tests.kit.operations.prometheus_process import prometheus
from tests.kit.report.browser import browser, complaints, fits_width, set_width
from tests.kit.waiting import eventually, read_until

pytestmark = pytest.mark.e2e


async def test_sigterm_writes_the_end_packs_the_file_and_exits_with_0(tmp_path: Path) -> None:
    async with (
        running_name_server(remoting=RemotingConfig(listen="127.0.0.1:0")) as server,
        remoting_peer(server.remoting_addr) as broker,
    ):
        broker.send(register())
        assert (await broker.answer()).code == 0
        port = free_port()
        observer = f"127.0.0.1:{free_port()}"
        serving = ("--monitoring", f"127.0.0.1:{port}", "--listen", observer)
        options = ("--namesrv", server.remoting_addr, "--history", tmp_path, "--poll-seconds", "0.2", *serving)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pointsman_namesrv.observe", *options, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await eventually(lambda: files_in(tmp_path))
            listed = f'pointsman_observe_brokers{{name_server="{server.remoting_addr}"}} 1.0'
            await read_until(lambda: ask(port, "/metrics"), lambda answer: listed in answer.body.decode())
            health = await ask(port, "/healthz")
            assert (health.status, health.document["watched"]) == (200, {server.remoting_addr: True})
            page = await ask(port, "/")
            assert f"At {server.remoting_addr}" in page.body.decode()
            command = (
                "-m",
                "pointsman_ctl",
                "--namesrv",
                f"observe://{observer}",
                "--output",
                "json",
                "why",
                "broker-a",
            )
            ctl = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
            output, _ = await ctl.communicate()
            assert ctl.returncode == 0
            [node] = json.loads(output)["nodes"]
            assert (node["addr"], node["node"]) == (
                f"observe://{observer}/{server.remoting_addr}",
                server.remoting_addr,
            )
            assert [(each["state"], each["silenceSeconds"]) for each in node["brokers"]] == [("UP", None)]
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert [name.endswith(".jsonl.gz") for name in files_in(tmp_path)] == [True]
    events = [row["event"] for row in rows_in(tmp_path)]
    assert (events[0], events[-1]) == ("NAMESRV_STARTED", "NAMESRV_STOPPED")
    assert "CHECKPOINT" in events


async def test_sighup_applies_list_and_level_and_names_what_needs_a_restart(tmp_path: Path) -> None:
    def configure(*addrs: str, level: str = "INFO", more: str = "") -> None:
        file.write_text(
            f"[observed]\nname_servers = {list(addrs)}\npoll_seconds = 0.2\n"
            f'[history]\ndirectory = "history"\n{more}\n[log]\nlevel = "{level}"\nformat = "json"\n'
        )

    def said(text: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
        return [line for line in lines if text in line["message"]]

    file = tmp_path / "observe.toml"
    async with scripted_fleet("T") as one, scripted_fleet("T") as two:
        configure(one.addr)
        with (tmp_path / "log").open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "pointsman_namesrv.observe", "--config", file, cwd=tmp_path, stderr=output
            )
        try:
            await eventually(lambda: said("started watching"))
            configure(two.addr, level="DEBUG", more="retain_days = 7")
            process.send_signal(signal.SIGHUP)
            await eventually(lambda: len(said("started watching")) == 2 and said("ended watching"))
            (reloaded,) = said("configuration reloaded")
            assert (reloaded["settings"], reloaded["log_level"]) == (["history.retain_days"], "DEBUG")
            assert "other changes need a restart" in reloaded["message"]
            configure()
            process.send_signal(signal.SIGHUP)
            await eventually(lambda: said("nothing is reloaded"))
            before = len(two.asked)
            await eventually(lambda: len(two.asked) > before + 2)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert {row["node"] for row in rows_in(tmp_path / "history")} == {one.addr, two.addr}


async def test_the_fleet_has_a_column_for_each_name_server_in_a_browser(tmp_path: Path) -> None:
    async with (
        running_name_server(remoting=RemotingConfig(listen="127.0.0.1:0")) as one,
        running_name_server(remoting=RemotingConfig(listen="127.0.0.1:0")) as two,
        remoting_peer(one.remoting_addr) as at_one,
        remoting_peer(two.remoting_addr) as at_two,
    ):
        for peer in (at_one, at_two):
            peer.send(register())
            assert (await peer.answer()).code == 0
        port = free_port()
        servers = ("--namesrv", one.remoting_addr, "--namesrv", two.remoting_addr)
        options = (*servers, "--history", tmp_path / "history", "--monitoring", f"127.0.0.1:{port}")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pointsman_namesrv.observe", *options, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await eventually(lambda: len(files_in(tmp_path / "history")) == 2)
            await read_until(lambda: ask(port, "/v1/status"), lambda answer: answer.document["states"] == {"UP": 1})
            with browser(tmp_path / "profile") as page:

                async def shows(part: str) -> None:
                    await read_until(
                        lambda: asyncio.to_thread(page.execute_script, "return document.body.innerText"),
                        lambda text: part in str(text),
                    )

                await asyncio.to_thread(page.get, f"http://127.0.0.1:{port}/")
                await asyncio.to_thread(page.execute_script, "window.loadedOnce = true")
                await shows("The broker is UP")
                await shows(f"At {two.remoting_addr}")
                assert (await at_two.ask(104, broker_ext())).code == 0
                await shows("MISSING")
                assert page.execute_script("return window.loadedOnce") is True, "without a reload"
                set_width(page, 500)
                assert fits_width(page, 500)
                assert complaints(page) == []
        finally:
            process.kill()
            await process.wait()


async def test_a_broker_that_one_name_server_drops_fires_its_alerts_in_a_real_prometheus(tmp_path: Path) -> None:
    async with scripted_fleet("T") as one, scripted_fleet("T") as two:
        for fleet in (one, two):
            fleet.holds("V", "b")
        port = free_port()
        servers = [word for fleet in (one, two) for word in ("--namesrv", fleet.addr)]
        options = ("--history", tmp_path / "history", "--poll-seconds", "0.2", "--monitoring", f"127.0.0.1:{port}")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pointsman_namesrv.observe", *servers, *options, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            async with prometheus(tmp_path, {"pointsman-observe": f"127.0.0.1:{port}"}) as monitor:
                await eventually(lambda: [row["event"] for row in rows_in(tmp_path / "history")].count("TOPICS") == 4)
                await monitor.await_series("pointsman_observe_routes_differing == 0", 2)
                del two.routes["T"]
                for alert, expected in (
                    ("PointsmanObservedBrokersMissing", {two.addr}),
                    ("PointsmanObservedRoutesDiffer", {one.addr, two.addr}),
                ):
                    fires = await read_until(partial(monitor.firing, alert), lambda found: len(found) == len(expected))  # noqa: B023
                    assert {each["name_server"] for each in fires} == expected
                two.holds("T", "a")
                for alert in ("PointsmanObservedBrokersMissing", "PointsmanObservedRoutesDiffer"):
                    await read_until(partial(monitor.firing, alert), lambda found: found == [])
        finally:
            process.kill()
            await process.wait()
