"""Topics rule by rule: a cluster a story, all computed in one history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.spark.histories import NameServer, Row, broker, moment
from tests.spark.storybook import FIRST, SECOND, Tables, story
from tests.spark.topic_days import Stretch, topic_book

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
DAY = 86_400.0
QUEUES = [4, 8, 6, 0]
Found = Callable[..., list[dict[str, Any]]]


@dataclass
class Story:
    """Events of a separate cluster, seen by one or two name servers."""

    cluster: str
    rows: list[Row] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    incidents: list[dict[str, Any]] = field(default_factory=list)

    def node(self, name: str = "ns1", boot_id: str = "b1") -> NameServer:
        return NameServer(node=f"{self.cluster}-{name}:9876", boot_id=boot_id, rows=[])

    def took(self, server: NameServer) -> None:
        self.rows += server.rows

    def broker(self, name: str = "a", broker_id: int = 0) -> Row:
        return broker(name, cluster=self.cluster, broker_id=broker_id)

    def is_(self, about: Row, state: str, begin: float = 0.0, end: float = 2 * DAY) -> None:
        self.stretches.append(Stretch(about, state, moment(begin), moment(end)))


def says(
    server: NameServer,
    at: float,
    about: Row,
    *topics: str,
    version: str = "0.0.1",
    base: str | None = None,
    removed: tuple[str, ...] = (),
    queues: list[int] = QUEUES,
    part: int = 1,
    parts: int = 1,
    reason: str | None = None,
) -> None:
    detail: dict[str, Any] = {"part": part, "parts": parts, "full": base is None, "base": base}
    detail |= {"topics": dict.fromkeys(topics, queues), "removed": list(removed)}
    server.say("TOPICS", moment(at), about, reason=reason, data_version=version, detail=detail)


def lost_part(story: Story) -> None:
    """A second set of two parts, of which the first is lost on both name servers."""
    server, a = story.node(), story.broker()
    says(server, 10, a, "kept", "gone")
    says(server, 20, a, "new", version="0.0.2", part=2, parts=2)
    story.is_(a, "up")
    story.took(server)


def shared_parts(story: Story) -> None:
    """Each of two name servers lost another part of the same set."""
    one, other, a = story.node(), story.node("ns2"), story.broker()
    says(one, 10, a, "old")
    says(one, 20, a, "t1", version="0.0.2", part=1, parts=2)
    other.rows.append(dict.fromkeys(("event", "event_at")))  # so that its row has the number after the lost one
    says(other, 21, a, "t2", version="0.0.2", part=2, parts=2)
    del other.rows[0]
    story.is_(a, "up")
    story.took(one)
    story.took(other)


def stale_snapshot(story: Story) -> None:
    """A restarted name server starts from its snapshot, while the other has newer topics."""
    one, other, a = story.node(), story.node("ns2"), story.broker()
    says(one, 0.5, a, "t1", reason="DAY")
    says(one, 100, a, "t2", version="0.0.2", base="0.0.1")
    says(other, 200, a, "old", version="0.0.0", reason="START")
    story.is_(a, "up")
    story.took(one)
    story.took(other)


def no_checkpoint(story: Story) -> None:
    """No row is written at the second midnight; later in the day a full set shows what remains."""
    server, a = story.node(), story.broker()
    says(server, 10, a, "t1", "t2")
    says(server, DAY + 3_600, a, "t1", version="0.0.2")
    story.is_(a, "up")
    story.took(server)


def left_and_stayed_away(story: Story) -> None:
    server, a = story.node(), story.broker()
    says(server, 10, a, "t1")
    story.is_(a, "up", 0, 100)
    story.is_(a, "left", 100)
    story.took(server)


def lost_and_stays_lost(story: Story) -> None:
    server, a = story.node(), story.broker()
    says(server, 10, a, "t1")
    story.is_(a, "up", 0, 3_600)
    story.is_(a, "down", 3_600)
    story.took(server)


def all_well(story: Story) -> None:
    server = story.node()
    for about in (story.broker(), story.broker("b"), story.broker("b", 1)):
        says(server, 10, about, "t1")
        story.is_(about, "up")
    story.took(server)


def one_of_two(story: Story) -> None:
    """One of two masters is down for ten minutes; a topic of the other alone is as it was made."""
    server, a, b = story.node(), story.broker(), story.broker("b")
    says(server, 0, a, "shared", "of_a_alone")
    says(server, 0, b, "shared", "of_b_alone")
    story.is_(a, "up")
    for state, begin, end in (("up", 0, 7_200), ("down", 7_200, 7_800), ("up", 7_800, 2 * DAY)):
        story.is_(b, state, begin, end)
    story.incidents.append(
        {
            "dt": FIRST,
            "incident_id": f"{story.cluster}-1",
            "cluster": story.cluster,
            "from_at": moment(7_200),
            "back_at": moment(7_800),
            "members": [("b", 0, moment(7_200))],
        }
    )
    story.took(server)


def only_a_slave(story: Story) -> None:
    """The master is down for ten minutes, announced or not; its slave stays."""
    server, master, slave = story.node(), story.broker(), story.broker("a", 1)
    for about in (master, slave):
        says(server, 0, about, "t1")
    for state, begin, end in (("up", 0, 7_200), ("left", 7_200, 7_800), ("up", 7_800, 2 * DAY)):
        story.is_(master, state, begin, end)
    story.is_(slave, "up")
    story.took(server)


def state_unknown(story: Story) -> None:
    """One master is down while the state of the other is unknown: that is not a finding."""
    server, a, b = story.node(), story.broker(), story.broker("b")
    for about in (a, b):
        says(server, 0, about, "t1")
    story.is_(a, "up", 0, 7_200)
    story.is_(a, "down", 7_200, 7_800)
    story.is_(a, "up", 7_800)
    story.is_(b, "up", 0, 3_600)
    story.took(server)


def absurd(story: Story) -> None:
    """A malformed detail does not affect the other rows."""
    server, a = story.node(), story.broker()
    says(server, 10, a, "t1")
    for detail in (
        {},
        {"part": "one", "parts": 1, "full": True, "topics": {}},
        {"part": 3, "parts": 1, "full": True, "topics": {}},
        {"part": 1, "parts": 1, "full": False, "base": "0.0.1", "topics": {"t2": [1], "t3": "x"}, "removed": [None]},
        {"part": 1, "parts": 1, "full": False, "base": "0.0.1", "topics": [], "removed": {}},
    ):
        server.say("TOPICS", moment(20), a, data_version="0.0.2", detail=detail)
    says(server, 30, a, "t4", version="0.0.3", base="0.0.2", removed=("t1",))
    story.is_(a, "up")
    story.took(server)


STORIES = (
    lost_part,
    shared_parts,
    stale_snapshot,
    no_checkpoint,
    left_and_stayed_away,
    lost_and_stays_lost,
    all_well,
    one_of_two,
    only_a_slave,
    state_unknown,
    absurd,
)


for _play in STORIES:
    _story = Story(_play.__name__)
    _play(_story)
    topic_book.add(_story.rows, _story.stretches, _story.incidents)


@story
def has_topics(one: NameServer, two: NameServer, b: Row) -> None:
    """Each day its brokers fail together and one of them changes its topics: for tables of the complete job."""
    fleet = [b | {"broker_name": name, "zone": "z1", "host": "h1"} for name in ("b", "c", "d")]
    stays = b | {"broker_name": "stays", "zone": "z2", "host": "h2"}
    for server in (one, two):
        for about in (*fleet, stays):
            server.say("REGISTERED", moment(10), about, data_version="0.0.1")
            says(server, 10, about, "orders", "bills")
        for day in range(3):
            for n, about in enumerate(fleet):
                server.outage(about, moment(5_000 + n, day=day), until=moment(5_600 + n, day=day))
            changed = {"orders": [4, 4 + day, 6, 0]}
            detail = {"part": 1, "parts": 1, "full": False, "base": f"0.0.{day + 1}", "topics": changed, "removed": []}
            server.say("TOPICS", moment(9_000, day=day), b, data_version=f"0.0.{day + 2}", detail=detail)
        server.stop(moment(80_000, day=2))


@pytest.fixture(scope="module")
def found(topic_tables: Tables) -> Found:
    def rows(table: str, play: Callable[[Story], None], day: Any = FIRST) -> list[dict[str, Any]]:
        name = play.__name__
        own = (row for row in topic_tables[table] if row["dt"] == day)
        return [row for row in own if row.get("cluster", str(row.get("incident_id")).removesuffix("-1")) == name]

    return rows


def spans(rows: list[dict[str, Any]], day: float = 0.0) -> list[tuple[str, float, float]]:
    start = moment(day)
    return [
        (row["topic"], (row["from_at"] - start).total_seconds(), (row["to_at"] - start).total_seconds()) for row in rows
    ]


def test_a_full_set_with_a_lost_part_removes_nothing(found: Found) -> None:
    assert spans(found("topic_intervals", lost_part)) == [("gone", 10, DAY), ("kept", 10, DAY), ("new", 20, DAY)]


def test_a_part_that_one_name_server_lost_is_read_from_another(found: Found) -> None:
    assert spans(found("topic_intervals", shared_parts)) == [("old", 10, 20), ("t1", 20, DAY), ("t2", 20, DAY)]


def test_a_snapshot_does_not_revert_newer_topics_of_other_name_servers(found: Found) -> None:
    assert spans(found("topic_intervals", stale_snapshot)) == [("t1", 0.5, DAY), ("t2", 100, DAY)]


def test_a_day_without_a_checkpoint_continues_from_yesterday(found: Found) -> None:
    second = found("topic_intervals", no_checkpoint, SECOND)

    assert spans(second, DAY) == [("t1", 0, DAY), ("t2", 0, 3_600)]
    assert [row["open"] for row in second] == [True, False]
    assert found("topic_churn", no_checkpoint) == []
    assert [(row["topic"], row["removed"]) for row in found("topic_churn", no_checkpoint, SECOND)] == [("t2", 1)]


def test_a_broker_that_stays_down_after_a_planned_shutdown_has_no_topics_from_midnight_on(found: Found) -> None:
    assert spans(found("topic_intervals", left_and_stayed_away)) == [("t1", 10, DAY)]
    assert found("topic_intervals", left_and_stayed_away, SECOND) == []
    assert found("topic_churn", left_and_stayed_away) == []


def test_a_missing_broker_keeps_its_topics_unwritable_over_midnight(found: Found) -> None:
    assert spans(found("topic_intervals", lost_and_stays_lost, SECOND), DAY) == [("t1", 0, DAY)]
    assert [row["unwritable_seconds"] for row in found("topics_at_risk", lost_and_stays_lost, SECOND)] == [DAY]


def test_a_topic_whose_brokers_are_all_up_has_no_row(found: Found) -> None:
    assert found("topics_at_risk", all_well) == []


def test_a_topic_left_to_one_of_two_brokers_differs_from_one_that_never_had_two(found: Found) -> None:
    rows = {row["topic"]: row for row in found("topics_at_risk", one_of_two)}

    assert set(rows) == {"shared", "of_b_alone"}
    shared, alone = rows["shared"], rows["of_b_alone"]
    assert (shared["brokers"], shared["one_broker_seconds"], shared["unwritable_seconds"]) == (2, 600, 0)
    assert (alone["brokers"], alone["one_broker_seconds"], alone["unwritable_seconds"]) == (1, 0, 600)
    assert (shared["worst"], alone["worst"]) == ("one_broker", "unwritable")
    assert shared["first_at"] == moment(7_200)


def test_an_incident_names_the_topics_it_hit_the_longest_unwritable_first(found: Found) -> None:
    (row,) = found("blast_radius", one_of_two)

    assert (row["topics_hit"], row["topics_unwritable"], row["unwritable_seconds"]) == (2, 1, 600)
    assert row["topics"] == ["of_b_alone", "shared"]


def test_a_slave_whose_master_is_down_counts_as_alone_planned_or_not(found: Found) -> None:
    (row,) = found("topics_at_risk", only_a_slave)

    assert (row["no_master_seconds"], row["unwritable_seconds"], row["worst"]) == (600, 600, "no_master")


def test_time_in_which_a_masters_state_is_not_known_does_not_count(found: Found) -> None:
    assert found("topics_at_risk", state_unknown) == []


def test_a_detail_that_makes_no_sense_is_passed_over(found: Found) -> None:
    assert spans(found("topic_intervals", absurd)) == [("t1", 10, 30), ("t4", 30, DAY)]
