"""``pointsmanctl nsaddr`` changes the lists of real name servers, and shows them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import AddressServerConfig
from tests.kit.ctl.command import Ended, Terminal, ctl
from tests.kit.ctl.keys import undocumented_keys
from tests.kit.http_answer import ask
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.scripted_routes import refused_addr

ON = AddressServerConfig(listen="127.0.0.1:0")


@dataclass
class Pair:
    """Two name servers that share nothing."""

    one: NameServerApp
    two: NameServerApp

    async def ctl(self, *arguments: str, typed: str | None = None) -> Ended:
        stdin = None if typed is None else Terminal(typed)
        return await ctl("--namesrv", f"{self.one.addr},{self.two.addr}", *arguments, stdin=stdin)

    async def json(self, *arguments: str) -> list[dict[str, object]]:
        ended = await self.ctl("-o", "json", *arguments)
        assert ended.code == 0, ended.err
        nodes: list[dict[str, object]] = ended.document["nodes"]
        return nodes

    async def lists(self, path: str = "/rocketmq/nsaddr") -> list[str]:
        """What brokers and clients get from each."""
        answers = [await ask(app.address_server_port, path) for app in (self.one, self.two)]
        return [answer.body.decode() if answer.status == 200 else "" for answer in answers]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with running_name_server(address_server=ON) as one, running_name_server(address_server=ON) as two:
        yield Pair(one, two)


async def test_a_list_is_set_grows_shrinks_and_ends_at_every_name_server(pair: Pair) -> None:
    first = await pair.json("nsaddr", "set", "ns1:9876", "ns2:9876", "--yes")
    assert [(node["changed"], node["before"], node["after"]) for node in first] == [
        (True, [], ["ns1:9876", "ns2:9876"])
    ] * 2
    assert await pair.lists() == ["ns1:9876;ns2:9876"] * 2

    await pair.json("nsaddr", "add", "ns3:9876", "ns1:9876", "--yes")
    assert await pair.lists() == ["ns1:9876;ns2:9876;ns3:9876"] * 2
    again = await pair.json("nsaddr", "add", "ns3:9876", "--yes")
    assert [node["changed"] for node in again] == [False, False]

    await pair.json("nsaddr", "remove", "ns1:9876", "ns2:9876", "--yes")
    assert await pair.lists() == ["ns3:9876"] * 2
    await pair.json("nsaddr", "remove", "ns3:9876", "--yes")
    assert await pair.lists() == ["", ""]
    assert [node["changed"] for node in await pair.json("nsaddr", "remove", "ns3:9876", "--yes")] == [False, False]


async def test_each_server_is_changed_from_its_own_list_and_the_difference_is_shown(pair: Pair) -> None:
    pair.one.core.kv.put("NSADDR", "nsaddr", "ns1:9876")
    refused = await pair.ctl("nsaddr", "add", "ns2:9876", typed="n\n")
    assert refused.code == 1
    assert "list: none -> ns2:9876; ns1:9876 -> ns1:9876, ns2:9876. Change it?" in refused.err
    assert await pair.lists() == ["ns1:9876", ""]

    assert (await pair.ctl("nsaddr", "add", "ns2:9876", typed="y\n")).code == 0
    assert await pair.lists() == ["ns1:9876;ns2:9876", "ns2:9876"]


async def test_without_a_terminal_yes_is_needed_and_a_dry_run_changes_nothing(pair: Pair) -> None:
    refused = await pair.ctl("nsaddr", "set", "ns1:9876")
    assert (refused.code, "list: none -> ns1:9876" in refused.err, "add --yes" in refused.err) == (2, True, True)
    dry = await pair.json("nsaddr", "set", "ns1:9876", "--dry-run")
    assert [(node["changed"], node["after"]) for node in dry] == [(False, ["ns1:9876"])] * 2
    assert await pair.lists() == ["", ""]


async def test_a_unit_has_a_list_of_its_name_and_the_lists_are_shown(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    await pair.json("nsaddr", "set", "ns1:9876", "--unit", "blue", "--yes")
    assert (await pair.lists("/rocketmq/nsaddr-blue"), await pair.lists()) == (["ns1:9876"] * 2, ["", ""])
    shown = await pair.ctl("nsaddr", "show")
    assert shown.code == 0
    assert shown.out.count("blue  ns1:9876") == 2
    [one, _] = await pair.json("nsaddr", "show")
    assert one["lists"] == [{"unit": "blue", "addrs": ["ns1:9876"]}]
    assert undocumented_keys({"nodes": [one]}, ["nsaddr", "show"], capsys=capsys) == set()


async def test_the_author_is_recorded_with_the_command_that_undoes_it(pair: Pair) -> None:
    await pair.json("nsaddr", "set", "ns1:9876", "--yes", "--by", "ann")
    differ = await ctl("diff", pair.one.addr, pair.two.addr)
    assert differ.code == 0, differ.out
    pair.two.core.kv.put("NSADDR", "nsaddr", "ns9:9876")
    assert "NSADDR" in (await ctl("diff", pair.one.addr, pair.two.addr)).out


async def test_a_server_that_is_away_is_named_and_the_other_changed(pair: Pair) -> None:
    async with refused_addr() as away:
        ended = await ctl("--namesrv", f"{pair.one.addr},{away}", "nsaddr", "set", "ns1:9876", "--yes")
    assert (ended.code, f"1 of 2 name servers failed: {away}" in ended.err) == (1, True)
    assert await pair.lists() == ["ns1:9876", ""]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["set", "ns1"], "'ns1' must be host:port"),
        (["set", *(f"a:{port}" for port in range(1, 18))], "the list has 17 addresses, at most 16 are allowed"),
        (["set", "a:1", "--unit", "a b"], "unit 'a b'"),
        (["add"], "Missing argument 'HOST:PORT...'"),
    ],
)
async def test_wrong_usage_is_refused_before_a_server_is_called(words: list[str], problem: str) -> None:
    ended = await ctl("nsaddr", *words)
    assert (ended.code, problem in ended.err) == (2, True), ended.err
