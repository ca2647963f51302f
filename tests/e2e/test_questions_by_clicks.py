"""The pages of an eventful day in a real browser: the questions of docs/monitoring.md, answered by the clicks that it
lists alone; and every page on a screen and on a phone, bright and dark."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from tests.kit.name_server.eventful_day import eventful_day
from tests.kit.report.browser import browser, complaints, fits_width, set_width

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"
SECONDS = 45.0
STEP = re.compile(r"\*\*([^*]+)\*\*|`([^`]+)` into \"([^\"]+)\"")
"""A link or button, or a value and the label of its field."""


class Task(NamedTuple):
    """A row of the table."""

    question: str
    steps: list[tuple[str, str, str]]
    """Groups of STEP."""
    answers: list[str]
    """What the last page shows."""


def tasks() -> list[Task]:
    section = PAGE.read_text(encoding="utf-8").partition("### Five questions, by clicks")[2].partition("\n#")[0]
    rows = re.findall(r"^\| ([^|]+\?) \| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)
    return [Task(question, STEP.findall(steps), re.findall("`([^`]+)`", answer)) for question, steps, answer in rows]


def take(page: Chrome, step: tuple[str, str, str]) -> None:
    """Click the first link or button with a text, or fill in a field."""
    name, value, label = step
    if label:
        page.find_element(By.XPATH, f"//label[normalize-space(text())='{label}']/input").send_keys(value)
    else:
        page.find_element(By.XPATH, f"//a[normalize-space()='{name}'] | //button[normalize-space()='{name}']").click()


async def shows(page: Chrome, parts: list[str]) -> None:
    """Wait until the page shows all texts."""
    shown, deadline = "", time.monotonic() + SECONDS
    while missing := [part for part in parts if part not in shown]:
        assert time.monotonic() < deadline, f"{missing} not in {shown!r}"
        await asyncio.sleep(0.1)
        with suppress(StaleElementReferenceException):  # the script replaced it just now
            shown = await asyncio.to_thread(lambda: " ".join(page.find_element(By.ID, "main").text.split()))


def test_the_page_lists_five_questions() -> None:
    found = tasks()
    assert len(found) == 5
    assert all(task.steps and task.answers for task in found)


PATHS = (
    "/",
    "/?state=GONE",
    "/?at=2026-11-28T13:55Z",
    "/brokers/shop/broker-c",
    "/brokers/shop/broker-c?at=2026-11-28T03:50Z",
    "/brokers/shop/broker-e",
    "/topics",
    "/topics/orders",
    "/topics/invoices",
    "/topics/invoices?at=2026-11-28T14:00Z",
    "/topics/none",
    "/groups",
    "/groups/billing",
    "/events",
    "/changes",
    "/connected",
)
LEAST_CONTRAST = 4.5
"""Of WCAG's level AA."""
LOW_CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const rgba = (colour) => {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const light = (colour) => {
  const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const [r, g, b] = colour.slice(0, 3).map((v) => linear(v / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const below = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = rgba(getComputedStyle(at).backgroundColor);
    if (colour[3] === 255) return colour;
  }
  return [255, 255, 255];
};
const found = new Set(), texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const text = texts.currentNode.textContent.trim(), element = texts.currentNode.parentElement;
  if (!text || !element.checkVisibility() || element.closest('script, .skip, caption, svg')) continue;
  const [a, b] = [light(rgba(getComputedStyle(element).color)), light(below(element))];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < arguments[0]) found.add(text + ': ' + contrast.toFixed(2));
}
return [...found];
"""


async def test_every_page_fits_is_readable_bright_and_dark_and_asks_no_other_host(tmp_path: Path) -> None:
    async with eventful_day(tmp_path / "day") as server:
        origin = f"http://127.0.0.1:{server.monitoring_port}/"
        with browser(tmp_path / "profile") as page:
            backgrounds = set[tuple[str, str]]()
            for scheme in ("light", "dark"):
                features = [{"name": "prefers-color-scheme", "value": scheme}]
                page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
                for path in PATHS:
                    await asyncio.to_thread(page.get, origin.rstrip("/") + path)
                    assert page.execute_script(LOW_CONTRAST, LEAST_CONTRAST) == [], (scheme, path)
                    for width in (390, 1280):
                        await asyncio.to_thread(set_width, page, width)
                        assert await asyncio.to_thread(fits_width, page, width), (path, width)
                    body = page.find_element(By.TAG_NAME, "body")
                    backgrounds.add((scheme, body.value_of_css_property("background-color")))
                    requests = "return performance.getEntriesByType('resource').map((each) => each.name)"
                    assert [url for url in page.execute_script(requests) if not url.startswith((origin, "data:"))] == []
            assert len({colour for _, colour in backgrounds}) == len(backgrounds) == 2
            errors = [each for each in complaints(page) if "404" not in each["message"]]
            assert errors == []


async def test_each_question_is_answered_by_the_clicks_that_the_documentation_lists(tmp_path: Path) -> None:
    async with eventful_day(tmp_path / "day") as server:
        with browser(tmp_path / "profile") as page:
            for task in tasks():
                await asyncio.to_thread(page.get, f"http://127.0.0.1:{server.monitoring_port}/")
                for step in task.steps:
                    await asyncio.to_thread(take, page, step)
                await shows(page, task.answers)
                for width in (390, 1280):
                    await asyncio.to_thread(set_width, page, width)
                    assert await asyncio.to_thread(fits_width, page, width), task.question
            assert complaints(page) == []
