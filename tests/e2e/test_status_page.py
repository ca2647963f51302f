"""The pages in a real browser, with real name servers and agents as processes."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman_agent.config import (
    AgentConfig,
    BrokerSection,
    HeartbeatSection,
    MonitoringSection,
    NameServersSection,
    TopicRow,
    TopicsSection,
)
from tests.kit.agent.process import agent_process
from tests.kit.name_server import wire
from tests.kit.name_server.process import real_name_server
from tests.kit.report.browser import browser, complaints, fits_width, set_width
from tests.kit.waiting import eventually

pytestmark = pytest.mark.e2e

MARKUP = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>'\"&amp;"
SECONDS = 45.0


def text(page: Chrome, ident: str) -> str:
    """The text of an element."""
    return page.find_element(By.ID, ident).text


async def shows(page: Chrome, ident: str, part: str) -> str:
    """Wait until an element shows a text."""
    shown, deadline = "", time.monotonic() + SECONDS
    while part not in shown:
        assert time.monotonic() < deadline, f"no {part!r} in {shown!r}"
        await asyncio.sleep(0.1)
        with suppress(StaleElementReferenceException):  # the script replaced it just now
            shown = await asyncio.to_thread(text, page, ident)
    return shown


def agent(name_server: str, name: str) -> AgentConfig:
    return AgentConfig(
        broker=BrokerSection(cluster="c1", name=name, addr=f"{name}:10911"),
        name_servers=NameServersSection(addrs=(name_server,)),
        heartbeat=HeartbeatSection(interval_seconds=1.0, expiry_seconds=3600.0),
        topics=TopicsSection(topic=(TopicRow(name="orders", read_queues=4, write_queues=4),)),
        monitoring=MonitoringSection(listen="127.0.0.1:0"),
    )


async def test_the_page_shows_that_a_broker_fails_and_is_back_without_a_reload(tmp_path: Path) -> None:
    settings = {"liveness.stream_grace_seconds": 3600}
    async with (
        real_name_server(tmp_path / "ns", settings=settings) as server,
        agent_process(tmp_path / "a", agent(server.addr, "broker-a")) as one,
        agent_process(tmp_path / "b", agent(server.addr, "broker-b")),
    ):
        await one.beats(1, patience=SECONDS)
        with browser(tmp_path / "profile") as page:
            await asyncio.to_thread(page.get, f"http://{server.monitoring_addr}/")
            await asyncio.to_thread(page.execute_script, "window.loadedOnce = true")
            await shows(page, "headline", "All 2 brokers are UP")
            assert page.title.startswith("\u2713 All 2 brokers are UP")

            page.execute_script("document.querySelector('#brokers tbody a').focus()")
            await one.kill()
            await shows(page, "brokers", "SUSPECT")
            assert page.execute_script("return document.activeElement.getAttribute('href')") == "/brokers/c1/broker-a"
            await shows(page, "verdict", "1 broker SUSPECT, heartbeats missing, still routed: c1/broker-a/0.")
            assert text(page, "brokers").index("broker-a") < text(page, "brokers").index("broker-b")
            await one.start()
            await shows(page, "headline", "All 2 brokers are UP")

            await asyncio.to_thread(set_width, page, 390)
            assert await asyncio.to_thread(fits_width, page, 390)
            await asyncio.to_thread(set_width, page, 1280)
            assert page.execute_script("return window.loadedOnce")
            assert complaints(page) == []

            await server.kill()
            lost = await shows(page, "lost", "Connection lost since")
            assert "What is shown is from before" in lost
            assert "broker-b" in text(page, "brokers")


async def test_names_with_markup_are_texts_and_run_no_script(tmp_path: Path) -> None:
    async with (
        real_name_server(tmp_path / "ns") as server,
        grpc.aio.insecure_channel(server.addr) as channel,
    ):
        names = wire.registration(wire.topic("orders"), zone=MARKUP, labels={"l": MARKUP}, host=MARKUP)
        await RegistrationServiceStub(channel).RegisterBroker(names)
        with browser(tmp_path / "profile") as page:
            await asyncio.to_thread(page.get, f"http://{server.monitoring_addr}/")
            shown = await shows(page, "brokers", "a 0\nc1, 10.0.0.1:10911")
            assert MARKUP in shown
            assert page.title.startswith("\u2713 The broker is UP")
            assert page.find_elements(By.CSS_SELECTOR, "img, main script") == []

            # The policy applies, too: foreign scripts and styles do nothing.
            page.execute_script(
                "for (const tag of ['script', 'style']) { const it = document.createElement(tag);"
                " it.textContent = tag === 'script' ? 'document.title = \"run\"' : 'body { display: none }';"
                " document.head.append(it); }"
            )
            assert page.title.startswith("\u2713 The broker is UP")
            assert page.find_element(By.TAG_NAME, "body").is_displayed()
            assert "Content Security Policy" in json.dumps(complaints(page))


async def test_every_page_is_reached_by_clicks_and_fits_a_phone(tmp_path: Path) -> None:
    async with (
        real_name_server(tmp_path / "ns") as server,
        grpc.aio.insecure_channel(server.addr) as channel,
    ):
        stub = RegistrationServiceStub(channel)
        for number in range(70):
            who = wire.identity(f"broker-{number:02}", addr=f"10.0.0.{number}:10911")
            await stub.RegisterBroker(wire.registration(wire.topic("orders"), who=who))
        with browser(tmp_path / "profile") as page:
            await asyncio.to_thread(page.get, f"http://{server.monitoring_addr}/")
            await shows(page, "brokers", "1 to 50 of 70 brokers")
            page.find_element(By.LINK_TEXT, "Next page").click()
            await shows(page, "brokers", "51 to 70 of 70 brokers")
            page.find_element(By.NAME, "name").send_keys("ER-69")
            page.find_element(By.CSS_SELECTOR, "form[role=search] button").click()
            await shows(page, "brokers", "1 to 1 of 1 brokers")
            assert "name=ER-69" in page.current_url
            assert page.find_element(By.NAME, "name").get_attribute("value") == "ER-69"

            page.find_element(By.LINK_TEXT, "broker-69 0").click()
            await shows(page, "replicas", "heartbeats arrive in time and the probe does not fail")
            page.find_element(By.LINK_TEXT, "orders").click()
            await shows(page, "diagnosis", "Nothing is wrong")
            await asyncio.to_thread(set_width, page, 390)
            for name in ("Topics", "Groups", "Events", "Changes", "Connected", "Fleet"):
                page.find_element(By.LINK_TEXT, name).click()
                assert page.find_element(By.CSS_SELECTOR, "nav [aria-current=page]").text == name
                assert await asyncio.to_thread(fits_width, page, 390), name
                tables = page.find_elements(By.TAG_NAME, "table")
                assert all(table.find_elements(By.CSS_SELECTOR, "caption") for table in tables)
                assert all(table.find_elements(By.CSS_SELECTOR, "thead th[scope=col]") for table in tables)
                assert all(table.find_elements(By.CSS_SELECTOR, "tbody th[scope=row]") for table in tables)
            assert complaints(page) == []


async def test_the_field_leads_to_the_past_which_is_loaded_once_and_back(tmp_path: Path) -> None:
    async with (
        real_name_server(tmp_path / "ns") as server,
        agent_process(tmp_path / "a", agent(server.addr, "broker-a")) as one,
    ):
        await one.beats(1, patience=SECONDS)
        rows = (tmp_path / "ns").rglob
        await eventually(lambda: any(b'"TOPICS"' in path.read_bytes() for path in rows("*.jsonl")))
        with browser(tmp_path / "profile") as page:

            def click(selector: str) -> None:
                page.find_element(By.CSS_SELECTOR, selector).click()

            for path in ("/brokers/c1/broker-a", "/topics/orders", "/"):
                await asyncio.to_thread(page.get, f"http://{server.monitoring_addr}{path}")
                moment = str(page.find_element(By.ID, "at").get_attribute("datetime"))
                page.find_element(By.CSS_SELECTOR, ".as-of input").send_keys(moment)
                await asyncio.to_thread(click, ".as-of button")
                await shows(page, "main", "As it was at 20")
                await shows(page, "main", "broker-a")
                await asyncio.to_thread(set_width, page, 390)
                assert await asyncio.to_thread(fits_width, page, 390), path
                if path == "/":
                    await asyncio.sleep(4.0)  # the script loads other pages again every 3 s
                    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
                await asyncio.to_thread(click, ".past a[rel=prev]")
                await shows(page, "main", "As it was at 20")
                await asyncio.to_thread(click, ".past p a")
                assert page.find_elements(By.CSS_SELECTOR, ".past") == []
                assert page.current_url.endswith(path)
            assert complaints(page) == []
