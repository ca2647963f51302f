"""``python -m tests.docs.page_pictures``: draw the pictures of the pages in ``docs/images``."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from selenium.webdriver import Chrome

from tests.kit.name_server.eventful_day import eventful_day
from tests.kit.report.browser import browser, set_width

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PICTURES = {"page-fleet.png": "/", "page-topic.png": "/topics/orders"}
WIDTH = 1_280


def _draw(page: Chrome, port: int) -> None:
    page.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    for name, path in PICTURES.items():
        page.get(f"http://127.0.0.1:{port}{path}")
        set_width(page, WIDTH)
        page.save_screenshot(str(IMAGES / name))


async def main() -> None:
    """Write the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        async with eventful_day(Path(folder) / "day") as server:
            with browser(Path(folder) / "profile") as page:
                await asyncio.to_thread(_draw, page, server.monitoring_port)


if __name__ == "__main__":
    asyncio.run(main())
