"""Questions about the past over gRPC: what is refused, pages, hidden values, and the bounds of the worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from grpc_status import rpc_status

from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.wire.error_details import read_status
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.history.past_worker_link import MAX_WAITING
from tests.kit.name_server import wire
from tests.kit.name_server.peer import Peer, serving
from tests.kit.refusal import refusal_of
from tests.kit.waiting import eventually

Served = tuple[NameServerApp, Peer]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(history=tmp_path) as (app, peer):
        yield app, peer


def at(request: Any, moment: datetime) -> Any:
    request.at.FromDatetime(moment)
    return request


NOW, LATER = datetime.now(UTC), datetime.now(UTC) + timedelta(days=1)
EARLY = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("call", "request_of", "field"),
    [
        ("GetPastRoute", lambda: admin.GetPastRouteRequest(topic="orders"), "at"),
        ("GetPastRoute", lambda: at(admin.GetPastRouteRequest(), EARLY), "topic"),
        ("GetPastRoute", lambda: at(admin.GetPastRouteRequest(topic="orders"), LATER), "at"),
        ("GetPastBroker", lambda: at(admin.GetPastBrokerRequest(broker_name="a b"), EARLY), "broker_name"),
        ("GetPastBroker", lambda: at(admin.GetPastBrokerRequest(broker_name="a", limit=1_001), EARLY), "limit"),
        ("ListPastEvents", lambda: admin.ListPastEventsRequest(kinds=["EXPIRED", "LATER"]), "kinds[1]"),
        ("ListPastEvents", lambda: admin.ListPastEventsRequest(page_token="x"), "page_token"),
        ("ListPastEvents", lambda: admin.ListPastEventsRequest(page_token="2026-13-01/1/b/1"), "page_token"),
        ("ListPastEvents", lambda: admin.ListPastEventsRequest(page_size=1_001), "page_size"),
        ("ListChanges", lambda: admin.ListChangesRequest(by="x" * 129), "by"),
        ("ListChanges", lambda: admin.ListChangesRequest(cluster="/"), "cluster"),
    ],
)
async def test_a_question_against_the_rules_names_the_field(
    served: Served, call: str, request_of: Any, field: str
) -> None:
    _, peer = served
    refusal = await refusal_of(getattr(peer.admin, call)(request_of()))

    assert (refusal.status, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, [field])


async def test_a_page_continues_where_the_last_one_ended(served: Served) -> None:
    _, peer = served
    for number in range(7):
        await peer.admin.PutKv(admin.PutKvRequest(namespace="n", key="k", value=str(number), by="ann"))

    request, found = admin.ListChangesRequest(page_size=3), list[str]()
    while True:
        page = await peer.admin.ListChanges(request)
        found += [change.after.string_value for change in page.changes]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token

    assert found == ["6", "5", "4", "3", "2", "1", "0"]


async def test_an_unset_old_value_is_null_and_an_unknown_one_absent(served: Served) -> None:
    _, peer = served
    await peer.register("orders", who=wire.identity("broker-a"))
    await peer.admin.PutKv(admin.PutKvRequest(namespace="n", key="k", value="1", by="ann"))
    await peer.admin.EvictBroker(admin.EvictBrokerRequest(cluster="c1", broker_name="broker-a", by="ann"))

    evicted, put = (await peer.admin.ListChanges(admin.ListChangesRequest())).changes

    assert (put.HasField("before"), put.before.WhichOneof("kind")) == (True, "null_value")
    assert (evicted.event, evicted.HasField("before"), evicted.undo) == ("UNREGISTERED", False, "")


async def test_closed_files_of_earlier_runs_are_indexed_a_minute_after_the_start(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with serving(clock=clock, history=tmp_path) as (_, peer):
        await peer.register("orders", who=wire.identity("broker-a"))
    async with serving(clock=clock, history=tmp_path) as (app, _):
        await eventually(lambda: app.parts.memory.state == "READ")
        assert not list((tmp_path / "index").rglob("*.json"))
        await eventually(lambda: list((tmp_path / "index").rglob("*.json")), clock=clock, step=5.0)


async def test_more_questions_than_may_wait_are_refused_with_the_time_to_retry(served: Served) -> None:
    _, peer = served
    request = admin.ListPastEventsRequest()
    asked = await asyncio.gather(
        *(peer.admin.ListPastEvents(request) for _ in range(3 * MAX_WAITING)), return_exceptions=True
    )

    answered = [each for each in asked if isinstance(each, Message)]
    errors = [each for each in asked if isinstance(each, grpc.aio.AioRpcError)]
    assert len(answered) >= MAX_WAITING + 1
    assert len(answered) + len(errors) == 3 * MAX_WAITING
    assert errors
    assert {error.code() for error in errors} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    details = read_status(rpc_status.from_call(errors[0]))
    assert details.code == "TOO_MANY_QUESTIONS"
    assert float(details.facts["retry_after_seconds"]) >= 1.0
