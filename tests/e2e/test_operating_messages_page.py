"""The commands of "Operating messages", as pasted, against the fleet of "Getting started".

Each section has a test here, which makes the incident, pastes the section's blocks in their order and sees that it is
over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.e2e.test_docs_as_pasted import DOCS, Fleet, blocks, fleet

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(300)]

PAGE = "operating-messages.md"
SECTIONS = {"Look before you act"}
"""Those with a test."""

SEND = """
import asyncio
from pointsman_client import Message, Producer
from pointsman_client.redis_streams import RedisStreamsTransport

async def main():
    async with Producer("127.0.0.1:9876", transport=RedisStreamsTransport) as producer:
        for number in range({count}):
            await producer.send(Message("orders", f"order {{number}}".encode(), keys=(str(number),)))
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One fleet for all sections; each has its own groups and keys."""
    with fleet(tmp_path_factory.mktemp("operating")) as running:
        yield running


def paste(here: Fleet, heading: str) -> list[str]:
    """Run the blocks of a section in their order; return what each printed."""
    return [here.run(block) for block in blocks("bash", PAGE, heading)]


def send(here: Fleet, count: int) -> None:
    """Send ``order 0`` to ``order COUNT-1``, with their numbers as keys."""
    here.run_python(SEND.format(count=count))


def test_every_section_has_a_test() -> None:
    page = (DOCS / PAGE).read_text(encoding="utf-8")
    assert set(re.findall(r"^## (.+)$", page, re.MULTILINE)) == SECTIONS


def test_look_before_you_act(here: Fleet) -> None:
    send(here, 4_712)
    peeked, found, body = paste(here, "Look before you act")
    # Those of the same millisecond have no order.
    assert re.search(r"order 47\d\d\n", peeked)
    (row,) = [line for line in found.splitlines() if "order 4711" in line]
    assert " 4711 " in row
    assert re.search(r"looked at \d+ of 4712 messages in 4 queues", found)
    assert re.fullmatch(r"order 47\d\d\n", body)
    (message,) = json.loads(here.run("pointsmanctl -o json messages find orders --key 0"))["messages"]
    assert (message["body"], message["keys"]) == ("order 0", ["0"])
