"""What is wrong with a topic, by the broker names that have it: for the pages and for ``pointsmanctl``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pointsman.names import PERM_READ, PERM_WRITE
from pointsman.wire.operator_texts import counted, names_text


class TopicHolder(NamedTuple):
    """One broker name that has a topic."""

    name: str
    """CLUSTER/BROKER."""
    is_up: bool
    """Whether a replica of it is in the routes."""
    has_master: bool
    """Whether its master is in the routes."""
    perm: int
    read_queues: int
    write_queues: int
    is_wiped: bool = False
    """Whether an operator wiped its write permission."""


class TopicProblem(NamedTuple):
    """One problem."""

    kind: str
    is_alarm: bool
    """Whether the topic cannot be used, in part or in whole; else it is at risk."""
    text: str
    """Begins in lower case, without a full stop at its end."""
    broker: str = ""
    """CLUSTER/BROKER of the first broker name concerned; empty: none, or all."""


def topic_problems(holders: Sequence[TopicHolder]) -> Iterator[TopicProblem]:
    """Yield what is wrong with the routes of a topic that at least one broker name has, the worst first."""
    up = [holder for holder in holders if holder.is_up]
    if not up:
        yield TopicProblem("NO_BROKER", True, "no broker that has it is up: it can neither be written nor read")
        return
    if not any(holder.has_master and holder.perm & PERM_WRITE and holder.write_queues for holder in up):
        text = "it cannot be written: no master with writable queues is in the routes"
        yield TopicProblem("NOT_WRITABLE", True, text)
    if not any(holder.perm & PERM_READ and holder.read_queues for holder in up):
        yield TopicProblem("NOT_READABLE", True, "it cannot be read: no queue has the permission to read")
    if len(holders) > 1 and len(up) == 1:
        text = f"one broker name is left of {len(holders)}: {up[0].name}. Its outage would be one of the topic"
        yield TopicProblem("ONE_LEFT", False, text, up[0].name)
    headless = [holder.name for holder in up if not holder.has_master]
    if headless:
        text = f"no master: {names_text(headless)} {'is' if len(headless) == 1 else 'are'} read-only"
        yield TopicProblem("NO_MASTER", False, text, headless[0])
    down = [holder.name for holder in holders if not holder.is_up]
    if down:
        text = f"{counted(len(down), 'broker name')} of {len(holders)} not in the routes: {names_text(down)}"
        yield TopicProblem("BROKERS_DOWN", False, text, down[0])


def wiped_problems(holders: Sequence[TopicHolder]) -> Iterator[TopicProblem]:
    """Yield the broker names whose write permission an operator wiped."""
    for holder in holders:
        if holder.is_wiped:
            text = f"an operator wiped the write permission of {holder.name}"
            yield TopicProblem("WIPED", False, text, holder.name)
