"""Topics from a Redis server that is the broker: queue N of a topic is the stream ``topic:queue:N``.

A topic has as many queues as its highest queue number plus one, readable and writable. A missing number below that is a
queue without messages: a stream is created by its first message, in any order. Counting only unbroken numbers would
remove queues with messages from the routes. So a topic shrinks only when its highest streams are deleted, or when an
operator limits its queues (``redis_topic_limits.py``).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pointsman.deadline import finish
from pointsman.names import MAX_NAME_LENGTH, MAX_QUEUES, split_addr
from pointsman.single_call_thread import SingleCallThread
from pointsman_agent.core.topic_set import TopicConfig, TopicSet
from pointsman_agent.topic_source import TopicSourceError, TopicSourceNotInstalledError
from pointsman_agent.topic_source.paused_collector import collector_paused
from pointsman_agent.topic_source.redis_topic_limits import LIMITS_KEY, UNLIMITED, TopicLimit

try:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import NoPermissionError, RedisError
except ModuleNotFoundError as error:
    raise TopicSourceNotInstalledError(
        "topics.source redis needs the redis package: pip install 'pointsman-agent[redis]'"
    ) from error

PATTERN = "*:queue:[0-9]*"
GROUP_PATTERN = "%[RD]*:queue:[0-9]*"
"""Retry topics and dead letters of consumer groups."""
KEYS_A_STEP = 500
"""COUNT of SCAN: keys per step; Redis serves other clients between steps."""

MAX_STEPS = 40_000
"""Limits a read to about 20 million keys of any kind."""

MAX_STREAMS = 2_000_000
MAX_SKIPPED = 1_000
"""Maximum number that is remembered and counted."""

NAMED_EXAMPLES = 5

_STREAM = re.compile(rb"([%%|a-zA-Z0-9_-]{1,%d}):queue:(0|[1-9][0-9]{0,4})" % MAX_NAME_LENGTH)

log = logging.getLogger(__name__)


class RedisTopicSource:
    """Finds streams with SCAN, on a single connection; the caller has the deadline.

    SCAN returns every stream that existed all the time. An incomplete scan is discarded: half a list would remove
    queues. So would a server that restarted in between, so the connection is not renewed.
    """

    def __init__(
        self,
        target: str,
        *,
        max_topics: int,
        state_version: int,
        username: str = "",
        password: str = "",
        pattern: str = PATTERN,
        on_skipped: Callable[[int], None] | None = None,
    ) -> None:
        self._target = target
        self._host, self._port = split_addr(target)
        self._max_topics = max_topics
        self._state_version = state_version
        self._username = username or None
        self._password = password or None
        self._pattern = pattern
        self._on_skipped = on_skipped
        self._thread = SingleCallThread("topics-redis", busy=TopicSourceError)
        self._content: tuple[Mapping[str, int], Mapping[str, TopicLimit]] | None = None
        self._held: TopicSet | None = None
        self._skipped = _Skipped()

    async def read(self) -> TopicSet:
        """See :meth:`pointsman_agent.topic_source.TopicSource.read`."""
        found = await self._scan()
        if (skipped := found.skipped) != self._skipped:
            self._log_skipped(skipped)
        content = found.queue_nums, found.limits
        if self._held is None or content != self._content:
            self._held = await self._thread.run(lambda: self._to_set(*content))
            self._content = content
        return self._held

    async def _scan(self) -> _Found:
        redis = Redis(
            host=self._host,
            port=self._port,
            username=self._username,
            password=self._password,
            socket_timeout=None,
            socket_connect_timeout=None,
            # No HELLO: see RedisProbe.
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            # A pool would continue the scan on a new connection, possibly to a restarted server.
            single_connection_client=True,
        )
        found = _Found(self._target, self._max_topics)
        cursor = 0
        try:
            if self._pattern == PATTERN:
                found.limits = await self._limits(redis)
            for _ in range(MAX_STEPS):
                cursor, keys = await redis.scan(cursor, match=self._pattern, count=KEYS_A_STEP, _type="STREAM")
                for key in keys:
                    found.take(key if isinstance(key, bytes) else key.encode())
                if cursor == 0:
                    return found
        except (RedisError, OSError, ValueError, EOFError) as error:  # ValueError: the peer does not speak RESP
            raise TopicSourceError(f"redis {self._target}: {error}") from error
        finally:
            await finish(redis.aclose())
        raise TopicSourceError(
            f"redis {self._target}: SCAN is not complete after {MAX_STEPS} steps of {KEYS_A_STEP} keys"
        )

    async def _limits(self, redis: Redis) -> dict[str, TopicLimit]:
        """Return the limits of topics. Raises TopicSourceError and what redis-py raises."""
        try:
            if await redis.hlen(LIMITS_KEY) > self._max_topics:
                raise TopicSourceError(
                    f"redis {self._target}: {LIMITS_KEY} has more than topics.max_topics ({self._max_topics}) fields"
                )
            fields = await redis.hgetall(LIMITS_KEY)
        except NoPermissionError:
            return {}  # an account of an older agent, which cannot set them either
        read = {_text(topic): TopicLimit.of_text(_text(text)) for topic, text in fields.items()}
        # Not ours: as without it.
        return {topic: limit for topic, limit in read.items() if limit is not None}

    def _to_set(self, queue_nums: Mapping[str, int], limits: Mapping[str, TopicLimit]) -> TopicSet:
        def topics() -> Iterator[TopicConfig]:
            for name, streams in queue_nums.items():
                topic = limits.get(name, UNLIMITED).to_topic(name, streams)
                if topic is not None:
                    yield topic

        with collector_paused():
            return TopicSet.from_content(topics(), state_version=self._state_version)

    def _log_skipped(self, skipped: _Skipped) -> None:
        self._skipped = skipped
        if self._on_skipped is not None:
            self._on_skipped(skipped.count)
        if skipped.count:
            facts = {"skipped": skipped.count, "first": list(skipped.examples)}
            log.warning("ignored streams with an invalid name", extra={"facts": facts})


@dataclass(frozen=True, slots=True)
class _Skipped:
    count: int = 0
    examples: tuple[str, ...] = ()


class _Found:
    """Intermediate result of a scan."""

    def __init__(self, target: str, max_topics: int) -> None:
        self._target = target
        self._max_topics = max_topics
        self._streams = 0
        self._skipped: set[bytes] = set()
        self.queue_nums: dict[str, int] = {}
        self.limits: Mapping[str, TopicLimit] = {}

    @property
    def skipped(self) -> _Skipped:
        """Number of streams that cannot be queues, and the first by name."""
        return _Skipped(len(self._skipped), tuple(repr(key[:200]) for key in sorted(self._skipped)[:NAMED_EXAMPLES]))

    def take(self, key: bytes) -> None:
        """Add a stream; SCAN may return one twice. Raises TopicSourceError if there are too many."""
        self._streams += 1
        if self._streams > MAX_STREAMS:
            raise TopicSourceError(
                f"redis {self._target}: holds more than {MAX_STREAMS} streams named like queues; they are not used"
            )
        match = _STREAM.fullmatch(key)
        count = int(match[2]) + 1 if match is not None else 0
        if match is None or count > MAX_QUEUES:
            if len(self._skipped) < MAX_SKIPPED:
                self._skipped.add(key)
            return
        topic = match[1].decode("ascii")
        held = self.queue_nums.get(topic, 0)
        if held == 0 and len(self.queue_nums) >= self._max_topics:
            raise TopicSourceError(
                f"redis {self._target}: holds streams of more than topics.max_topics ({self._max_topics}) topics; "
                "they are not used"
            )
        self.queue_nums[topic] = max(held, count)


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
