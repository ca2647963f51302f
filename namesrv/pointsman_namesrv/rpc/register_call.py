"""RegisterBroker: a complete registration in chunks, applied at a matching commit or not at all.

No step holds the loop for long. Topics are read and compared in slices, one slice per turn for all registrations in
progress, with pauses. Accepting the result is one swap, and a large index follows in slices as well. A registration
with the same bytes as the last one is recognised by them and not read again.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

from pointsman.clock import Clock
from pointsman.daemon.access.access import check_writes
from pointsman.daemon.access.fair_bound import FairBound, Share
from pointsman.daemon.rpc.calling_peer import Peer
from pointsman.daemon.rpc.handler_table import Ended
from pointsman.names import MAX_CHUNK_TOPICS
from pointsman.v1 import registration_service_pb2 as wire
from pointsman.wire.refusals import FieldViolation, InvalidRequest, TooSlow, refuse_if_any
from pointsman_namesrv.core.broker_responses import Registered
from pointsman_namesrv.core.events import RecordEvents
from pointsman_namesrv.core.model import Registration, TopicTable
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.node_refusals import LimitExceeded
from pointsman_namesrv.core.request_rules import IntervalBounds
from pointsman_namesrv.core.staging import (
    BYTES_OF_STAGED_TOPIC,
    COMING_IN_BYTES,
    COMING_IN_LIMIT,
    StagedTopics,
    Staging,
)
from pointsman_namesrv.known_registrations import KnownRegistrations
from pointsman_namesrv.rpc import broker_codec
from pointsman_namesrv.slices import PAUSE_SECONDS, SLICE_TOPICS

LARGE = 5_000
"""Topics from which a registration is kept out of the garbage collector's rounds: with a million topics one round took
70 ms, and tables of names and numbers have no cycles to find."""
FIRST_CHUNK_SECONDS = 5.0
"""How long a stream may be open before its first chunk; until then it does not count as a registration."""
COLLECT_SECONDS = 60.0
"""How long a client may take to send a complete registration; then what it sent is dropped."""
MAX_IN_PROGRESS = 2_048
"""Registrations in progress at the same time: a complete large fleet, after a restart without a snapshot.
The same number of streams may be open before their first chunk."""
BYTES_A_TOPIC = 340
"""Maximum size on the wire, rounded up: a name of 262 characters and four numbers."""
BYTES_OF_BROKER = 128 * 1024
"""Upper bound for a registration without topics, with the longest labels and strings."""
WORTH_REMEMBERING_BYTES = 4_096
IDENTITY_BYTES = 640
"""The identity comes first in a registration, and is shorter than this: these bytes distinguish brokers."""


class RegisterCalls:
    """Accepts registrations. ``max_topics`` bounds those of one broker, ``coming_in`` the memory of all in progress."""

    def __init__(
        self,
        core: NameServer,
        *,
        clock: Clock,
        bounds: IntervalBounds,
        max_topics: int,
        record: RecordEvents,
        coming_in: FairBound | None = None,
    ) -> None:
        self._core = core
        self._clock = clock
        self._bounds = bounds
        self._max_topics = max_topics
        self._record = record
        self._silent = FairBound(MAX_IN_PROGRESS)
        self._accepted = FairBound(MAX_IN_PROGRESS)
        self._memory = coming_in or FairBound(COMING_IN_BYTES)
        self._turn = asyncio.Lock()
        self._since_pause = 0
        self._known = KnownRegistrations[bytes, tuple[bytes, ...]](core, worth_bytes=WORTH_REMEMBERING_BYTES)
        """Its chunks, by the beginning of the first."""

    @property
    def coming_in_bytes(self) -> int:
        """Return the estimated memory of all registrations in progress."""
        return self._memory.total

    async def register_broker(self, requests: AsyncIterator[bytes], peer: Peer) -> wire.RegisterBrokerResponse:
        """Collect the chunks and apply them at their commit.

        Raises TooSlow, InvalidRequest and others for their content, and Ended when another peer needed its share.
        """
        place = _Place(peer)
        try:
            place.take(self._silent, "registration_streams_without_data", 1)
            first = await self._first_chunk(requests)
            place.give_back()
            place.take(self._accepted, "registrations_at_once", 1)
            place.take(self._memory, COMING_IN_LIMIT, 0)
            async with asyncio.timeout(COLLECT_SECONDS):
                registered, registration = await self._collect(first, requests, place)
        except TimeoutError:
            raise TooSlow(f"the request was not complete within {COLLECT_SECONDS:g} s; nothing was applied") from None
        except asyncio.CancelledError:
            if place.refusal is not None:
                raise Ended(place.refusal) from None
            raise
        finally:
            place.give_back()
        while self._core.routes.lags(registration.identity.group_key):
            await self.settle()
        return self._respond(registered, registration)

    async def settle(self) -> bool:
        """Let the index follow large changes by one slice, in turn with registrations; return whether it still lags."""
        async with self._turn:
            lags = self._core.routes.settle(2 * SLICE_TOPICS)
            if lags:
                await self._pause_after(SLICE_TOPICS)
        return lags

    async def _first_chunk(self, requests: AsyncIterator[bytes]) -> bytes:
        try:
            async with asyncio.timeout(FIRST_CHUNK_SECONDS):
                async for request in requests:
                    return request
        except TimeoutError:
            raise TooSlow(f"the first chunk did not arrive within {FIRST_CHUNK_SECONDS:g} s") from None
        raise _without_commit(0)

    async def _collect(
        self, first: bytes, requests: AsyncIterator[bytes], place: _Place
    ) -> tuple[Registered, Registration]:
        incoming: _Incoming | None = None
        chunks: list[bytes] = []
        known: tuple[bytes, ...] = ()
        held: Registration | None = None
        room = BYTES_OF_BROKER + BYTES_A_TOPIC * self._max_topics
        following = aiter(requests)
        while (request := await anext(following, None) if chunks else first) is not None:
            if not chunks:
                known, held = self._known.get(request[:IDENTITY_BYTES]) or ((), None)
            chunks.append(request)
            place.grow(len(request))
            room -= len(request)
            if room < 0:
                most = BYTES_OF_BROKER + BYTES_A_TOPIC * self._max_topics
                raise LimitExceeded("bytes_per_registration", most, value=most - room)
            if held is not None and known[len(chunks) - 1 : len(chunks)] == (request,):
                if len(chunks) == len(known):
                    return self._renew(held, place.peer), held
                continue
            if incoming is None:
                incoming = _Incoming(self._core, self._bounds, self._max_topics, place)
                for earlier in chunks[:-1]:
                    await self._read(incoming, earlier)
                held = None
            if await self._read(incoming, request):
                return self._accept(incoming, chunks, place.peer)
        raise _without_commit(len(chunks))

    async def _read(self, incoming: _Incoming, chunk: bytes) -> bool:
        """Read one chunk in slices; return whether it is the last."""
        request = incoming.open(chunk)
        for start in range(0, len(request.topics), SLICE_TOPICS):
            async with self._turn:
                await self._pause_after(incoming.add(request, start))
        return incoming.close(request)

    async def _pause_after(self, topics: int) -> None:
        """Pause once all registrations in progress together have processed a slice."""
        self._since_pause += topics
        if self._since_pause >= SLICE_TOPICS:
            self._since_pause = 0
            await asyncio.sleep(PAUSE_SECONDS)

    def _accept(self, incoming: _Incoming, chunks: list[bytes], peer: Peer) -> tuple[Registered, Registration]:
        registration, topics = incoming.finish()
        registered = self._core.register(registration, now=self._clock.monotonic(), topics=topics, peer=peer.key)
        self._record(registered.events)
        held = self._core.registration_of(registration.identity)
        self._known.put(chunks[0][:IDENTITY_BYTES], tuple(chunks), held, size=sum(map(len, chunks)))
        if len(registration.topics) >= LARGE:
            gc.collect(1)  # garbage that is frozen would never be freed
            gc.freeze()
        return registered, registration

    def _renew(self, registration: Registration, peer: Peer) -> Registered:
        check_writes(peer.caller, registration.identity.cluster, registration.identity.broker_name)
        unchanged = StagedTopics(registration.topics, registration.topics)
        registered = self._core.register(registration, now=self._clock.monotonic(), topics=unchanged, peer=peer.key)
        if registered.events:
            self._record(registered.events)
        return registered

    def _respond(self, registered: Registered, registration: Registration) -> wire.RegisterBrokerResponse:
        orders = self._core.kv.order_topics()
        return wire.RegisterBrokerResponse(
            generation=registered.generation,
            group=broker_codec.group_view(registered.view),
            order_topic_configuration={topic: conf for topic, conf in orders.items() if topic in registration.topics},
            heartbeat_interval=broker_codec.duration(registration.heartbeat_interval),
            expiry=broker_codec.duration(registration.expiry),
            superseded=map(broker_codec.to_identity, registered.superseded),
        )


class _Place:
    """The shares of one registration in progress in this server's bounds."""

    def __init__(self, peer: Peer) -> None:
        self.refusal: LimitExceeded | None = None
        """The bound at which it was ended; None: it was not."""
        self.peer = peer
        self._task = asyncio.current_task()
        self._shares: list[tuple[FairBound, Share, str]] = []

    def take(self, bound: FairBound, limit: str, amount: int) -> None:
        """Take a share. Raises LimitExceeded."""
        share = bound.take(self.peer.key, amount, partial(self._end_for_another, bound, limit))
        if share is None:
            raise LimitExceeded(limit, bound.bound, value=bound.total + amount)
        self._shares.append((bound, share, limit))

    def grow(self, amount: int) -> None:
        """Add to the last share. Raises LimitExceeded."""
        bound, share, limit = self._shares[-1]
        if not bound.grow(share, amount):
            raise LimitExceeded(limit, bound.bound, value=bound.total + amount)

    def give_back(self) -> None:
        """Release all shares."""
        for bound, share, _ in self._shares:
            bound.give_back(share)
        self._shares.clear()

    def _end_for_another(self, bound: FairBound, limit: str) -> None:
        self.give_back()
        note = "this registration was ended: its connection has the most, and another connection needs one"
        self.refusal = LimitExceeded(limit, bound.bound, note=note)
        if self._task is not None:
            self._task.cancel()


def _without_commit(chunks: int) -> InvalidRequest:
    return InvalidRequest([FieldViolation("commit", f"is missing: the stream ended after {chunks} chunks")])


class _Incoming:
    """One registration that must be read."""

    def __init__(self, core: NameServer, bounds: IntervalBounds, max_topics: int, place: _Place) -> None:
        self._core = core
        self._bounds = bounds
        self._max_topics = max_topics
        self._place = place
        self._chunks = 0
        self._registration: Registration | None = None
        self._held: TopicTable = {}
        self._staging = Staging({})

    def open(self, chunk: bytes) -> wire.RegisterBrokerRequest:
        """Read the next chunk apart from its topics. Raises InvalidRequest, LimitExceeded, DecodeError."""
        request = wire.RegisterBrokerRequest.FromString(chunk)
        self._chunks += 1
        if self._registration is None:
            if not request.HasField("broker"):
                raise InvalidRequest([FieldViolation("broker", "is missing in the first chunk")])
            self._registration = broker_codec.registration(request.broker, bounds=self._bounds)
            identity = self._registration.identity
            check_writes(self._place.peer.caller, identity.cluster, identity.broker_name)
            self._held = self._core.held_topics(identity)
            self._staging = Staging(self._held)
        elif request.HasField("broker"):
            problem = f"occurs again in chunk {self._chunks}; it belongs in the first"
            raise InvalidRequest([FieldViolation("broker", problem)])
        count = len(request.topics)
        if count > MAX_CHUNK_TOPICS:
            raise InvalidRequest(
                [FieldViolation("topics", f"may hold at most {MAX_CHUNK_TOPICS} per chunk, not {count}")]
            )
        topics = len(self._staging.topics) + count
        if topics > self._max_topics:
            raise LimitExceeded("topics_per_broker", self._max_topics, field="topics", value=topics)
        self._place.grow(len(chunk) + BYTES_OF_STAGED_TOPIC * count)
        return request

    def add(self, request: wire.RegisterBrokerRequest, start: int) -> int:
        """Read and compare one slice of a chunk's topics; return how many. Raises InvalidRequest."""
        part = request.topics[start : start + SLICE_TOPICS]
        self._staging.add(broker_codec.topics(part, path="topics", before=self._staging.topics, held=self._held))
        return len(part)

    def close(self, request: wire.RegisterBrokerRequest) -> bool:
        """Return whether a chunk that was read is the last. Raises InvalidRequest for a commit that does not match."""
        if not request.HasField("commit"):
            return False
        _check_commit(request.commit, topics=len(self._staging.topics), chunks=self._chunks)
        return True

    def finish(self) -> tuple[Registration, StagedTopics]:
        """Return the complete registration."""
        assert self._registration is not None, "a commit is part of a chunk"  # noqa: S101
        topics = self._staging.finish()
        return replace(self._registration, topics=topics.topics), topics


def _check_commit(commit: wire.RegistrationCommit, *, topics: int, chunks: int) -> None:
    violations = [
        FieldViolation(f"commit.{field}", f"is {said}, but {received} were received")
        for field, said, received in (
            ("topic_count", commit.topic_count, topics),
            ("chunk_count", commit.chunk_count, chunks),
        )
        if said != received
    ]
    refuse_if_any(violations)
