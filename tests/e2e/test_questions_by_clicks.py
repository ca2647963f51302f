"""The questions of docs/monitoring.md, answered in a real browser by the clicks that the page lists alone."""

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
