"""Static topics in the core: the mappings that brokers register, in routes, bounds and the snapshot."""

from __future__ import annotations

import pytest

from pointsman_namesrv.core.node_refusals import LimitExceeded
from pointsman_namesrv.core.saved_settings import restore, settings_of
from pointsman_namesrv.core.static_topics import QueueMapping
from tests.kit.name_server.additive_fleet import KEY, SLAVE, A, AdditiveFleet, B


@pytest.fixture
def fleet() -> AdditiveFleet:
    return AdditiveFleet()


def mapped(*queue_ids: tuple[int, int], epoch: int = 1, broker_name: str = A.broker_name) -> QueueMapping:
    return QueueMapping(broker_name, "__global__", 4, epoch, False, queue_ids)


def shown(fleet: AdditiveFleet, topic: str = "s") -> dict[str, QueueMapping]:
    """The mappings in the route, and a check that different ones have different revisions."""
    route = fleet.core.routes.route(topic)
    content = (route.queues, route.static_mappings)
    seen: dict[int, object] = vars(fleet).setdefault(f"seen_{topic}", {})
    assert seen.setdefault(route.counter, content) == content, "the route changed and its counter did not"
    return {key.broker_name: mapping for key, mapping in route.static_mappings}


def test_a_mapping_is_in_the_route_and_follows_each_registration(fleet: AdditiveFleet) -> None:
    fleet.register("s", "t", mappings={"s": mapped((0, 0), (1, 1))})
    fleet.register("s", "t", who=B, mappings={"s": mapped((2, 0), (3, 1), broker_name="b")})
    assert shown(fleet) == {"b": mapped((2, 0), (3, 1), broker_name="b"), A.broker_name: mapped((0, 0), (1, 1))}
    assert shown(fleet, "t") == {}
    other = fleet.core.routes.counter("t")
    # Remapped: a frame of one topic, a new version of the table and the same queues.
    assert fleet.register("s", counter=2, mappings={"s": mapped(epoch=2)}) == ["TOPICS"]
    assert shown(fleet)[A.broker_name] == mapped(epoch=2)
    assert fleet.core.routes.counter("t") == other
    # A frame without the mapping is a chunk of a split registration, or of another topic.
    fleet.register("s", "t", counter=3)
    fleet.register("u", counter=4)
    assert shown(fleet)[A.broker_name] == mapped(epoch=2)
    # The version of the table is RocketMQ's only sign of a change; here the content is compared.
    fleet.register("s", "t", "u", counter=4, mappings={"s": mapped((0, 2), epoch=3)})
    assert shown(fleet)[A.broker_name] == mapped((0, 2), epoch=3)
    fleet.core.check_invariants()


def test_a_mapping_of_a_topic_that_is_not_held_is_not_kept(fleet: AdditiveFleet) -> None:
    fleet.register("t1", "t2", mappings={"s": mapped((0, 0))})
    assert fleet.core.held.static_topics.total == 0
    fleet.register("s", counter=2)
    assert shown(fleet) == {}


def test_a_mapping_ends_with_its_topic_its_broker_and_its_store(fleet: AdditiveFleet) -> None:
    fleet.register("s", "t", mappings={"s": mapped((0, 0))})
    fleet.delete("s")
    assert fleet.core.held.static_topics.total == 0
    fleet.register("s", "t", mappings={"s": mapped((0, 0))})  # the deleted topic stays hidden under this version
    assert fleet.core.held.static_topics.total == 0
    fleet.register("s", "t", counter=2)
    assert shown(fleet) == {}
    fleet.register("s", "t", counter=3, mappings={"s": mapped((0, 0))})
    assert fleet.register("s", "t", counter=1, stamp=9_999) == ["REREGISTERED"]
    assert shown(fleet) == {}
    fleet.register("s", "t", counter=2, mappings={"s": mapped((0, 0))})
    assert fleet.core.held.static_topics.total > 0
    fleet.word.unregister(KEY, A.addr, 0, stream=1, now=fleet.now)
    assert fleet.core.held.static_topics.total == 0


def test_a_slave_shows_its_copy_of_the_mapping_when_its_master_left(fleet: AdditiveFleet) -> None:
    fleet.register("s", "t", mappings={"s": mapped((0, 0))})
    fleet.register("s", "t", who=SLAVE, mappings={"s": mapped((0, 0), (1, 1))})
    assert shown(fleet) == {A.broker_name: mapped((0, 0))}
    fleet.word.unregister(KEY, A.addr, 0, stream=1, now=fleet.now)
    assert shown(fleet) == {A.broker_name: mapped((0, 0), (1, 1))}


def test_a_zone_does_not_take_logical_queues_away(fleet: AdditiveFleet) -> None:
    fleet.register("s", "t", zone="z1", mappings={"s": mapped((0, 0))})
    fleet.register("s", "t", who=B, zone="z2", mappings={"s": mapped((1, 0), broker_name="b")})
    route = fleet.core.routes.route("s", zone="z2")
    assert [key.broker_name for key, _ in route.queues] == ["b"]
    assert [key.broker_name for key, _ in route.static_mappings] == ["b", A.broker_name]


@pytest.mark.parametrize(
    ("mapping", "problem"),
    [
        (mapped(broker_name="a b"), "bname"),
        (mapped()._replace(scope="x" * 128), "scope"),
        (mapped()._replace(total_queues=65_536), "totalQueues must be from 0 to 65535, not 65536"),
        (mapped(epoch=-1), "epoch must be from 0"),
        (mapped((0, -1)), "currIdMap has -1, a queue id is from 0 to 65535"),
        (mapped((65_536, 0)), "currIdMap has 65536"),
    ],
)
def test_a_static_topic_with_an_invalid_mapping_is_not_added(
    fleet: AdditiveFleet, mapping: QueueMapping, problem: str
) -> None:
    incoming = fleet.word.begin(A)
    incoming.add_mappings({"s": mapping}, [])
    assert problem in incoming.first_bad
    assert incoming.bad_topics == 1
    fleet.register("s", "t", "u", mappings={"s": mapping}, unmapped=("u",))
    assert list(fleet.topics()) == ["t"]
    fleet.register("s", "t", "u", counter=2, unmapped=("s", "u"))
    assert list(fleet.topics()) == ["t"]
    fleet.register("s", "t", "u", counter=1, stamp=9_999, unmapped=("s",))
    assert list(fleet.topics()) == ["t", "u"]


def test_the_logical_queues_of_a_broker_and_the_mappings_of_a_node_are_bounded(
    fleet: AdditiveFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    incoming = fleet.word.begin(A)
    many = {f"s{i}": mapped(*((j, j) for j in range(1_000))) for i in range(50)}
    incoming.add_mappings(many, [])
    with pytest.raises(LimitExceeded, match="static_topic_queues_per_broker"):
        incoming.add_mappings({**many, "t": mapped()}, [])
    fleet.register("s", "t", mappings={"s": mapped((0, 0))})
    bound = fleet.core.held.static_topics.total
    monkeypatch.setattr(fleet.core.held.static_topics, "_bound", bound)
    fleet.register("s", "t", counter=2, mappings={"s": mapped((1, 0))})
    before = fleet.core.registration_of(A)
    with pytest.raises(LimitExceeded, match="bytes_of_static_topics"):
        fleet.register("s", "t", counter=3, mappings={"s": mapped((0, 0), (1, 1))})
    with pytest.raises(LimitExceeded, match="bytes_of_static_topics"):
        fleet.register("s", "t", who=B, mappings={"s": mapped((0, 0))})
    assert fleet.core.registration_of(A) is before
    assert fleet.core.registration_of(B) is None
    fleet.core.check_invariants()


def test_a_broker_of_the_snapshot_has_its_mappings_but_not_of_a_deleted_topic(fleet: AdditiveFleet) -> None:
    fleet.register("s", "t", mappings={"s": mapped((0, 0)), "t": mapped((1, 0))})
    registration = fleet.core.registration_of(A)
    assert registration is not None
    fleet.delete("s")
    restarted = AdditiveFleet()
    restore(restarted.core, settings_of(fleet.core), now=restarted.now)
    restarted.core.restore(registration, 7, now=restarted.now)
    assert shown(restarted, "t") == {A.broker_name: mapped((1, 0))}
    held = restarted.core.registration_of(A)
    assert held is not None
    assert list(held.static_topics.mappings) == ["t"]
    restarted.core.check_invariants()
