"""Where observed name servers differ."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pointsman_namesrv.core.model import Position
from pointsman_namesrv.observe.listings import Listings

A, B, C = (Position("c1", name, 0) for name in ("a", "b", "c"))


def missing(listings: Listings) -> dict[str, dict[str, float]]:
    return {
        addr: {position.broker_name: since for position, since in each.missing.items()}
        for addr, each in listings.by_addr.items()
        if each.missing
    }


def test_a_broker_that_one_server_lists_is_missing_at_the_other_since_then() -> None:
    listings = Listings(["ns1", "ns2"])
    listings.watched("ns1", frozenset({A, B}), now=1.0)
    assert missing(listings) == {}, "ns2 is not watched yet"
    listings.watched("ns2", frozenset({A}), now=2.0)
    assert missing(listings) == {"ns2": {"b": 2.0}}
    listings.watched("ns2", frozenset({A, C}), now=3.0)
    assert missing(listings) == {"ns1": {"c": 3.0}, "ns2": {"b": 2.0}}
    listings.watched("ns2", frozenset({A, B, C}), now=4.0)
    assert missing(listings) == {"ns1": {"c": 3.0}}


def test_a_broker_that_no_server_lists_is_missing_nowhere() -> None:
    listings = Listings(["ns1", "ns2"])
    listings.watched("ns1", frozenset({A, B}), now=1.0)
    listings.watched("ns2", frozenset({A, B}), now=1.0)
    listings.watched("ns1", frozenset({A}), now=2.0)
    assert missing(listings) == {"ns1": {"b": 2.0}}
    listings.watched("ns2", frozenset({A}), now=3.0)
    assert missing(listings) == {}


def test_a_server_that_does_not_respond_lists_nothing_that_counts_and_misses_nothing() -> None:
    listings = Listings(["ns1", "ns2"])
    listings.watched("ns1", frozenset({A, B}), now=1.0)
    listings.watched("ns2", frozenset({A}), now=1.0)
    listings.not_watched("ns2", now=2.0)
    assert missing(listings) == {}
    listings.watched("ns2", frozenset({A}), now=5.0)
    assert missing(listings) == {"ns2": {"b": 5.0}}
    listings.not_watched("ns1", now=6.0)
    assert missing(listings) == {}


def test_topics_are_known_from_a_walk_until_the_watch_ends() -> None:
    listings = Listings(["ns1", "ns2"])
    listings.watched("ns1", frozenset({A}), now=1.0)
    listings.lists_topics("ns1", 7)
    assert [each.topics for each in listings.by_addr.values()] == [7, None]
    listings.not_watched("ns1", now=2.0)
    assert listings.by_addr["ns1"].topics is None


BROKERS = st.frozensets(st.sampled_from([A, B, C]))


@given(st.lists(st.tuples(st.sampled_from(["ns1", "ns2", "ns3"]), st.none() | BROKERS), max_size=20))
def test_missing_is_what_any_other_watched_server_lists(steps: list[tuple[str, frozenset[Position] | None]]) -> None:
    listings = Listings(["ns1", "ns2", "ns3"])
    last: dict[str, frozenset[Position] | None] = dict.fromkeys(listings.by_addr)
    for now, (addr, brokers) in enumerate(steps):
        last[addr] = brokers
        if brokers is None:
            listings.not_watched(addr, now=now)
        else:
            listings.watched(addr, brokers, now=now)
        for each, listing in listings.by_addr.items():
            own = last[each]
            others = {position for name, found in last.items() if name != each and found for position in found}
            assert set(listing.missing) == (set() if own is None else others - own)
            assert all(0 <= since <= now for since in listing.missing.values())


def test_what_is_missing_is_described_with_those_that_list_it_the_longest_first() -> None:
    listings = Listings(["ns1", "ns2", "ns3"])
    listings.watched("ns1", frozenset({A, B, C}), now=1.0)
    listings.watched("ns2", frozenset({A, B}), now=1.0)
    listings.watched("ns3", frozenset({A, B, C}), now=1.0)
    listings.watched("ns2", frozenset({A}), now=3.0)
    assert listings.missing_at("ns2", now=11.0) == [
        "c1/c/0 for 10 s, which ns1 and ns3 list",
        "c1/b/0 for 8 s, which ns1 and ns3 list",
    ]
    listings.not_watched("ns3", now=12.0)
    assert listings.missing_at("ns2", now=13.0)[0] == "c1/c/0 for 12 s, which ns1 lists"
    many = frozenset(Position("c1", f"b{number}", 0) for number in range(8))
    listings.watched("ns1", many | {A}, now=14.0)
    assert listings.missing_at("ns2", now=15.0)[-1] == "3 more brokers that others list"
    assert listings.missing_at("ns1", now=15.0) == []
