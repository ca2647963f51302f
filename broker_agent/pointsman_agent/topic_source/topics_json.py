"""Read a RocketMQ broker's ``topics.json``. Pure: bytes in, a table out.

``TopicConfigManager`` writes the file: ``dataVersion`` and ``topicConfigTable``. As in the broker, absent fields have
RocketMQ's defaults, unknown ones (``attributes``, ``order``, ``topicFilterType``) are ignored, and of equal
keys the last applies. Content that a broker cannot have written makes the complete file unusable. A topic that a broker
may have but that cannot be registered here is skipped and reported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import inf

from pointsman.names import MAX_QUEUES, MAX_TOPIC_SYS_FLAG, PERM_MASK, PERM_READ, PERM_WRITE, name_problem
from pointsman.rocketmq.bodies import is_whole
from pointsman_agent.core.topic_set import DataVersion, TopicConfig, by_name
from pointsman_agent.topic_source import TopicSourceError
from pointsman_agent.topic_source.followed_file import UnusableFileError

BYTES_A_TOPIC = 1_024
"""Four times the size of a topic without attributes, as brokers write it."""

BASE_BYTES = 2**20
OBJECTS_A_TOPIC = 8
"""Limit of JSON objects per topic; a broker writes two."""

DICT_BATCH = 1_000
NAMED_EXAMPLES = 5
SHOWN_CHARACTERS = 100

MAX_UINT64 = 2**64 - 1
MAX_INT64 = 2**63 - 1

_DEFAULT_QUEUES = 16
_DEFAULT_PERM = PERM_READ | PERM_WRITE


@dataclass(frozen=True, slots=True)
class TopicTable:
    """Content of the file."""

    data_version: DataVersion
    topics: tuple[TopicConfig, ...]
    """By name; permissions as written."""
    skipped_count: int = 0
    skipped: tuple[str, ...] = ()
    """The first of them, each with its problem."""


class TopicsJson:
    """Reads the file's content repeatedly.

    Unchanged topics are the same objects as last time. So two large tables compare within microseconds, and a change
    leaves little garbage.
    """

    def __init__(self, max_topics: int) -> None:
        self.max_topics = max_topics
        self._last: tuple[TopicConfig, ...] = ()

    @property
    def max_bytes(self) -> int:
        """Maximum size of a file with ``max_topics`` topics."""
        return BASE_BYTES + BYTES_A_TOPIC * self.max_topics

    def parse(self, content: bytes) -> TopicTable:
        """Read ``content``. Raises UnusableFileError, and TopicSourceError for more than ``max_topics`` topics.

        On a thread, 100,000 topics block the event loop for some milliseconds at a time: each object passes through a
        Python function, between two of which other threads run.
        """
        if not content.strip():
            raise UnusableFileError("is empty")
        whole = _Objects(BASE_BYTES // 256 + OBJECTS_A_TOPIC * self.max_topics).load(content)
        if not isinstance(whole, dict):
            raise UnusableFileError("is not a JSON object")
        table = whole.get("topicConfigTable")
        if not isinstance(table, dict):
            raise UnusableFileError("has no object topicConfigTable")
        if not table:
            # Every broker has system topics, and an empty set would remove the broker from the routes.
            raise UnusableFileError("topicConfigTable is empty")
        if len(table) > self.max_topics:
            raise TopicSourceError(
                f"holds {len(table)} topics, more than topics.max_topics ({self.max_topics}); they are not used"
            )
        known = {topic.topic: topic for topic in self._last}
        result = _to_table(_to_data_version(whole.get("dataVersion")), table, known)
        self._last = result.topics
        return result


class _Objects:
    """Turns JSON objects into dicts, and counts them."""

    def __init__(self, most: int) -> None:
        self._left = most

    def load(self, content: bytes) -> object:
        """Parse the content. Raises UnusableFileError."""
        try:
            return json.loads(content.decode("utf-8"), object_pairs_hook=self._to_dict)
        except UnicodeDecodeError as error:
            raise UnusableFileError(f"is not UTF-8 text: {error.reason} at byte {error.start}") from error
        except RecursionError as error:
            raise UnusableFileError("is nested too deep") from error
        except ValueError as error:  # also a number of more digits than Python converts
            raise UnusableFileError(f"is not JSON: {error}") from error

    def _to_dict(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        self._left -= 1
        if self._left < 0:
            raise UnusableFileError("holds more JSON objects than topics need")
        if len(pairs) <= DICT_BATCH:
            return dict(pairs)
        whole: dict[str, object] = {}
        # dict() would block other threads until its end.
        for key, value in pairs:
            whole[key] = value  # noqa: PERF403
        return whole


def _to_data_version(value: object) -> DataVersion:
    if not isinstance(value, dict):
        raise UnusableFileError("has no object dataVersion")
    return DataVersion(
        state_version=_number(value, "stateVersion", "dataVersion", default=0, lowest=0, highest=MAX_UINT64),
        timestamp_millis=_number(value, "timestamp", "dataVersion", default=0, lowest=-MAX_INT64, highest=MAX_INT64),
        counter=_number(value, "counter", "dataVersion", default=0, lowest=0, highest=MAX_INT64),
    )


def _to_table(version: DataVersion, table: dict[str, object], known: dict[str, TopicConfig]) -> TopicTable:
    topics: list[TopicConfig] = []
    skipped: list[str] = []
    skipped_count = 0
    for name in list(table):
        # Freed one by one: freeing all entries together would block every thread.
        value = table.pop(name)
        if not isinstance(value, dict):
            raise UnusableFileError(f"topicConfigTable[{shown(name)}] is not an object")
        topic = _to_topic(name, value)
        problem = _problem(topic, value)
        if problem is None:
            same = known.get(name)
            topics.append(same if same == topic and same is not None else topic)
            continue
        skipped_count += 1
        if len(skipped) < NAMED_EXAMPLES:
            skipped.append(f"{shown(name)} {problem}")
    if not topics:
        raise UnusableFileError(f"holds no topic that can be named: {'; '.join(skipped)}")
    return TopicTable(version, by_name(topics), skipped_count, tuple(skipped))


def _to_topic(name: str, value: dict[str, object]) -> TopicConfig:
    return TopicConfig(
        topic=name,
        read_queue_nums=_number(value, "readQueueNums", name, default=_DEFAULT_QUEUES),
        write_queue_nums=_number(value, "writeQueueNums", name, default=_DEFAULT_QUEUES),
        perm=_number(value, "perm", name, default=_DEFAULT_PERM),
        topic_sys_flag=_number(value, "topicSysFlag", name, default=0),
    )


def _problem(topic: TopicConfig, value: dict[str, object]) -> str | None:
    """Return why a topic cannot be registered, as a sentence without its subject, or None."""
    own_name = value.get("topicName")
    if own_name is not None and own_name != topic.topic:
        return f"is called {shown(own_name)} in its own entry"
    if (problem := name_problem(topic.topic)) is not None:
        return problem
    for field, count in (("readQueueNums", topic.read_queue_nums), ("writeQueueNums", topic.write_queue_nums)):
        if not 0 <= count <= MAX_QUEUES:
            return f"has {field} {shown(count)}, which is not from 0 to {MAX_QUEUES}"
    if not 0 <= topic.perm <= PERM_MASK:
        return f"has perm {shown(topic.perm)}, which is not from 0 to {PERM_MASK}"
    if not 0 <= topic.topic_sys_flag <= MAX_TOPIC_SYS_FLAG:
        return f"has topicSysFlag {shown(topic.topic_sys_flag)}, which is not from 0 to {MAX_TOPIC_SYS_FLAG}"
    return None


def _number(
    value: dict[str, object], field: str, where: str, *, default: int, lowest: float = -inf, highest: float = inf
) -> int:
    number = value.get(field)
    if number is None:
        return default
    if not is_whole(number, lowest, highest):
        raise UnusableFileError(f"{shown(where)}: invalid {field} {shown(number)}")
    return number


def shown(value: object) -> str:
    """Return a value for an error message, short and without control characters."""
    if isinstance(value, str):
        return repr(value) if len(value) <= SHOWN_CHARACTERS else f"{value[:SHOWN_CHARACTERS]!r}..."
    if isinstance(value, int) and abs(value) > MAX_UINT64:
        return "a number of more than 64 bits"
    return repr(value) if isinstance(value, int | float) else f"a {'list' if isinstance(value, list) else 'table'}"
