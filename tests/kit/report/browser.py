"""A headless Chromium that stores nothing and fetches nothing in the background."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@contextmanager
def browser(folder: Path) -> Iterator[Chrome]:
    """Run one for the length of the block, with its profile in ``folder``; skips the test where there is none."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs Chromium and its driver: `make setup` installs them (Debian: chromium chromium-driver)")
    options = Options()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = Chrome(options=options, service=Service(driver))
    try:
        yield running
    finally:
        running.quit()


def complaints(page: Chrome) -> list[dict[str, Any]]:
    """Violations of a page's policy and errors that the browser logged since the last call."""
    return list(page.get_log("browser"))  # type: ignore[no-untyped-call]


def set_width(page: Chrome, width: int) -> None:
    """Show pages as on a screen of this width, in pixels; a headless window is never narrower than 500."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 700}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def fits_width(page: Chrome, width: int) -> bool:
    """Whether a reader sees the whole page without scrolling sideways."""
    return int(page.execute_script("return document.documentElement.scrollWidth")) <= width
