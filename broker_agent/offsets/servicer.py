"""OffsetService: requests to the table of offsets and back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import chain

from google.protobuf.duration_pb2 import Duration

from broker_agent.core.offsets import OffsetKey, Offsets, TooManyOffsets
from broker_agent.core.queue import QueueKey
from broker_agent.core.topic_set import TopicSet
from broker_agent.offsets.flusher import Flusher
from broker_agent.queue_stats.ends import QueueEnds, QueueEndsError
from broker_agent.rpc.calls import Context, answers
from broker_agent.rpc.fields import name_violations, refuse_if_any
from broker_agent.rpc.queue_fields import QueueFields, cut, read_page, to_queues
from broker_agent.rpc.refusals import LimitExceeded, NotReady, OutOfRange
from broker_agent.rpc.server import Service
from pointsman.v1 import offset_service_pb2 as wire
from pointsman.v1.offset_service_pb2_grpc import OffsetServiceServicer, add_OffsetServiceServicer_to_server
from pointsman.wire.violation import FieldViolation

SERVICE = wire.DESCRIPTOR.services_by_name["OffsetService"]
MOST_NAMED = 5
"""Offsets beyond an end that an answer names: it travels in trailers."""


class OffsetServicer(OffsetServiceServicer):
    """Serves ``offsets``, once ``flusher`` has loaded them. ``topics`` gives what the broker has now."""

    def __init__(self, offsets: Offsets, *, flusher: Flusher, topics: Callable[[], TopicSet], ends: QueueEnds) -> None:
        self._offsets = offsets
        self._flusher = flusher
        self._queues = QueueFields(topics)
        self._ends = ends

    def service(self) -> Service:
        """The service as the server takes it."""
        return Service(name=SERVICE.full_name, add_to=partial(add_OffsetServiceServicer_to_server, self))

    @answers
    async def CommitOffsets(self, request: wire.CommitOffsetsRequest, _context: Context) -> wire.CommitOffsetsResponse:  # noqa: N802  # gRPC
        """See offset_service.proto."""
        refuse_if_any(
            chain(
                name_violations("group", request.group),
                self._queues.violations("offsets", request.offsets, must_exist=True),
            )
        )
        self._refuse_until_loaded()
        offsets = {QueueKey(each.topic, each.queue_id): each.offset for each in request.offsets}
        _refuse_beyond(offsets, await self._max_offsets(offsets))
        try:
            kept = self._offsets.commit(request.group, offsets, reset=request.reset)
        except TooManyOffsets as error:
            raise LimitExceeded("offsets", error.bound) from error
        return wire.CommitOffsetsResponse(kept=_to_messages(kept))

    @answers
    async def GetOffsets(self, request: wire.GetOffsetsRequest, _context: Context) -> wire.GetOffsetsResponse:  # noqa: N802  # gRPC
        """See offset_service.proto. A queue that the broker no longer has may still have an offset."""
        refuse_if_any(
            chain(
                name_violations("group", request.group),
                self._queues.violations("queues", request.queues, must_exist=False),
            )
        )
        self._refuse_until_loaded()
        return wire.GetOffsetsResponse(
            offsets=_to_messages(self._offsets.get(request.group, to_queues(request.queues)))
        )

    @answers
    async def ListOffsets(self, request: wire.ListOffsetsRequest, _context: Context) -> wire.ListOffsetsResponse:  # noqa: N802  # gRPC
        """See offset_service.proto."""
        limit, after = read_page(group=request.group, page_size=request.page_size, page_token=request.page_token)
        self._refuse_until_loaded()
        found = self._offsets.page(limit=limit + 1, group=request.group, after=after)
        rows, token = cut(found, limit=limit, place_of=lambda row: row[0])
        ends = await self._max_offsets({key.queue for key, _ in rows})
        durable_within = Duration()
        durable_within.FromMilliseconds(round(self._flusher.durable_within * 1000))
        return wire.ListOffsetsResponse(
            progress=[_to_progress(key, offset, ends.get(key.queue)) for key, offset in rows],
            next_page_token=token,
            durable_within=durable_within,
        )

    def _refuse_until_loaded(self) -> None:
        if not self._flusher.is_loaded:
            why = f": {self._flusher.problem}" if self._flusher.problem else ""
            raise NotReady(f"the committed offsets are not loaded yet{why}", state="loading")

    async def _max_offsets(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, int]:
        """Where the queues end, as far as the broker tells it now."""
        try:
            return await self._ends.max_offsets(queues)
        except QueueEndsError:
            # A group must be able to say how far it is while the broker is away; it cannot be beyond what it has read.
            return {}


def _refuse_beyond(offsets: Mapping[QueueKey, int], ends: Mapping[QueueKey, int]) -> None:
    violations = [
        FieldViolation(
            f"offsets[{index}].offset",
            f"is beyond the end of queue {queue.queue_id} of topic {queue.topic!r}, which is {ends[queue]}: {offset}",
        )
        for index, (queue, offset) in enumerate(offsets.items())
        if offset > ends.get(queue, offset)
    ]
    if len(violations) > MOST_NAMED:
        more = len(violations) - MOST_NAMED
        violations[MOST_NAMED:] = [FieldViolation("...", f"and {more} more faults")]
    if violations:
        raise OutOfRange(violations)


def _to_messages(offsets: Mapping[QueueKey, int]) -> list[wire.QueueOffset]:
    return [wire.QueueOffset(topic=topic, queue_id=queue_id, offset=n) for (topic, queue_id), n in offsets.items()]


def _to_progress(key: OffsetKey, offset: int, max_offset: int | None) -> wire.QueueProgress:
    return wire.QueueProgress(
        group=key.group,
        committed=wire.QueueOffset(topic=key.topic, queue_id=key.queue_id, offset=offset),
        max_offset=max_offset,
    )
