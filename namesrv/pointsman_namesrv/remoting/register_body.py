"""Parser for the body of a broker's registration (code 103), in slices: JSON, or compressed as RocketMQ 5 sends it.

Nothing in it is trusted: an invalid field invalidates its topic alone, and no step takes more than about a
millisecond, whatever the bytes. Sources: RocketMQ ``RegisterBrokerBody``, ``TopicConfig``, ``DataVersion``.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Final, NamedTuple

SLICE_TOPICS = 500
"""Topics read in one step; about 1 ms."""
MAX_INFLATED_BYTES = 32 * 1024 * 1024
"""Maximum size of an inflated body: twice the longest frame; topics are a sixth as long in it as in JSON."""
STEP_BYTES = 256 * 1024
"""Bytes decoded or inflated in one step."""
COMPARED_BYTES = 4 * 1024 * 1024
"""Bytes compared with another body in one step of about 1 ms."""
COMPRESSED_WITH_MAPPINGS = 413
"""5.0.0: from this header version on, a compressed body ends with mappings of static topics."""

_VALUE_BYTES = 4_096
_LONG_VALUE_BYTES = 64 * 1024
_STEP_TOKENS = 1_000
_STEP_KEYS = 500
_STEP_QUEUES = 250
_BYTES_OF_QUEUE = 250
"""Memory of a logical queue while it is read: an entry of the table and a pair of numbers."""
_BYTES_OF_MAPPING = 1_000
_NUMBER_BYTES = 32
_ID_DIGITS = 9
_QUEUE_IDS: Final = "currIdMap"
_MAPPING_FIELDS: Final = {"bname", "scope", "totalQueues", "epoch", "dirty", "topic", _QUEUE_IDS}
_WINDOW_BYTES = 32 * 1024
_ENDS_TRIED = 20
_MAX_LONG = 2**63 - 1
_ZLIB: Final = 0x78
_SPACE = re.compile(r"[ \t\r\n]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_$-]+")
_BRACKET_OR_QUOTE = re.compile(r'["\[\]{}]')
_IN_STRING = re.compile(r'["\\]')
_SCALAR = re.compile(r"[^\[\]{},\s]*")
_TABLE = b'"topicConfigTable":{'
_TOPIC_END = re.compile(rb'"writeQueueNums":-?[0-9]+},"')
"""The end of a body from RocketMQ, whose keys are sorted. No string contains this: its quotes would be escaped."""
_TABLE_END = re.compile(rb'"writeQueueNums":-?[0-9]+}(}[^0-9]*)\Z')
"""There is no digit after it, unlike after mappings of static topics."""
_AFTER_TABLE_BYTES = 256
_WRAPPER = "topicConfigSerializeWrapper"
_read_json = json.JSONDecoder().raw_decode


class UnreadableBody(Exception):
    """A body that cannot be read as a registration; the message names the place."""


class Version(NamedTuple):
    """RocketMQ ``DataVersion``."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0


class TopicConfig(NamedTuple):
    """One topic on one broker, as in routes; the defaults are those of RocketMQ ``TopicConfig``."""

    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_sys_flag: int = 0
    queue_weight: int = 1
    """RocketMQ has no weights. The field makes the tuple equal to the core's."""


class MappingInfo(NamedTuple):
    """The logical queues of a static topic that one broker leads (RocketMQ ``TopicQueueMappingInfo``)."""

    broker_name: str
    scope: str
    total_queues: int
    epoch: int
    dirty: bool
    queue_ids: tuple[tuple[int, int], ...]
    """Logical and physical id of each queue, sorted."""


class RegisterBody:
    """Reads one body. The attributes are complete at the end of :meth:`slices`."""

    def __init__(self) -> None:
        self.data_version = Version()
        self.filter_servers: list[str] = []
        self.mappings: dict[str, MappingInfo] = {}
        """Of static topics."""
        self.unmapped: list[str] = []
        """Static topics whose mapping cannot be read."""
        self.bad_topics = 0
        self.first_bad = ""
        """The name of the first topic that could not be read."""
        self.memory = 0
        """Bytes held during the reading in addition to the body."""
        self._configs: dict[tuple[int, ...], TopicConfig] = {}

    def slices(self, body: bytes, *, version: int) -> Iterator[dict[str, TopicConfig]]:
        """Yield the topics, some hundred at a time, sometimes none; ``version``: the header's. Raises
        UnreadableBody."""
        if not body:
            return iter(())
        return self._compressed(body, version) if body[0] == _ZLIB else self._json(body)

    # --- JSON -------------------------------------------------------------------------------------------------

    def _json(self, body: bytes) -> Iterator[dict[str, TopicConfig]]:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        parts: list[str] = []
        for start in range(0, len(body), STEP_BYTES):
            if start:
                yield {}
            parts.append(decoder.decode(body[start : start + STEP_BYTES], start + STEP_BYTES >= len(body)))
            self.memory += sys.getsizeof(parts[-1])
        text = "".join(parts)
        self.memory = sys.getsizeof(text)
        del parts
        if len(body) > STEP_BYTES:
            yield {}
        walk = _Walk(text)
        if not walk.opens():
            raise UnreadableBody("the body is not a JSON object")
        yield from self._members(walk, may_wrap=True)

    def _members(self, walk: _Walk, *, may_wrap: bool) -> Iterator[dict[str, TopicConfig]]:
        """Read a RegisterBrokerBody or, as before 3.0.11, the bare wrapper within it."""
        for number, key in enumerate(walk.members()):
            if number % _STEP_KEYS == _STEP_KEYS - 1:
                yield {}
            if key == _WRAPPER and may_wrap and walk.opens():
                yield from self._members(walk, may_wrap=False)
            elif key == "topicConfigTable" and walk.opens():
                yield from self._table(walk)
            elif key == "dataVersion":
                self.data_version = data_version(walk.value())
            elif key == "filterServerList":
                self._take_filter_servers(walk.value())
            elif key == "topicQueueMappingInfoMap" and walk.opens():
                for topic in walk.members():
                    yield from self._mapping(walk, topic)
            else:
                yield from walk.skip()

    def _table(self, walk: _Walk) -> Iterator[dict[str, TopicConfig]]:
        read: dict[str, TopicConfig] = {}
        read_count = 0
        while (many := walk.many_members()) is not None:
            yield {topic: config for topic, fields in many.items() if (config := self._config(topic, fields))}
        for topic in walk.members():
            fields = walk.small_value()
            if fields is _TOO_LARGE:
                yield from walk.skip()
            config = self._config(topic, fields)
            if config is not None:
                read[topic] = config
            read_count += 1
            if read_count == SLICE_TOPICS:
                yield read
                read, read_count = {}, 0
        yield read

    def _config(self, topic: str, fields: object) -> TopicConfig | None:
        """Convert a TopicConfig of JSON; None if a number is invalid. Equal ones share a tuple."""
        if type(fields) is dict:
            get = fields.get
            numbers = (get("readQueueNums", 16), get("writeQueueNums", 16), get("perm", 6), get("topicSysFlag", 0))
            try:
                known = self._configs.get(numbers)
            except TypeError:  # a list or an object among them
                known = None
            if known is not None:
                return known
            if all(type(number) is int for number in numbers):
                config = self._configs[numbers] = TopicConfig(*numbers)
                return config
        self._note_bad(topic)
        return None

    def _mapping(self, walk: _Walk, topic: str = "") -> Iterator[dict[str, TopicConfig]]:
        """Read the mapping of one static topic; in a compressed body its name is a field of it."""
        fields: dict[str, object] = {}
        if walk.opens():
            for key in walk.members():
                if key == _QUEUE_IDS and walk.opens():
                    fields[key] = yield from self._queue_ids(walk)
                elif key in _MAPPING_FIELDS:
                    fields[key] = walk.small_value()
                    if fields[key] is _TOO_LARGE:
                        yield from walk.skip()
                else:
                    yield from walk.skip()
        else:
            yield from walk.skip()
        self.memory += _BYTES_OF_MAPPING
        name, mapping = topic or fields.get("topic"), _to_mapping(fields)
        if mapping is None or not isinstance(name, str):
            self.unmapped.append(str(name)[:_VALUE_BYTES])
        else:
            self.mappings[name] = mapping
        yield {}

    def _queue_ids(self, walk: _Walk) -> Generator[dict[str, TopicConfig], None, tuple[tuple[int, int], ...] | None]:
        """Read the queues of a mapping; None: one is not a pair of whole numbers."""
        found, is_valid = dict[int, int](), True
        for number, logical in enumerate(walk.members()):
            physical = walk.small_value(_NUMBER_BYTES)
            if physical is _TOO_LARGE:
                yield from walk.skip()
            if type(physical) is int and logical.isascii() and logical.isdigit() and len(logical) <= _ID_DIGITS:
                found[int(logical)] = physical
            else:
                is_valid = False
            if number % _STEP_QUEUES == _STEP_QUEUES - 1:
                self.memory += _STEP_QUEUES * _BYTES_OF_QUEUE
                yield {}
        return tuple(sorted(found.items())) if is_valid else None

    def _take_filter_servers(self, value: object) -> None:
        if isinstance(value, list):
            self.filter_servers = [addr for addr in value if isinstance(addr, str)]

    def _note_bad(self, topic: str) -> None:
        self.bad_topics += 1
        self.first_bad = self.first_bad or topic

    # --- compressed -------------------------------------------------------------------------------------------

    def _compressed(self, body: bytes, version: int) -> Iterator[dict[str, TopicConfig]]:
        """Read RocketMQ ``RegisterBrokerBody.encode`` with ``compress``: lengths and strings within zlib."""
        inflater, inflated, read_to, rest = zlib.decompressobj(), bytearray(), 0, b""
        while not inflater.eof:
            if not rest:
                rest = body[read_to : read_to + STEP_BYTES]
                read_to += STEP_BYTES
            if not rest:
                raise UnreadableBody("the compressed body ends too early")
            try:
                inflated += inflater.decompress(rest, STEP_BYTES)
            except zlib.error as error:
                raise UnreadableBody(f"the compressed body cannot be inflated: {error}") from error
            rest = inflater.unconsumed_tail
            self.memory = len(inflated)
            if len(inflated) > MAX_INFLATED_BYTES:
                raise UnreadableBody(f"the compressed body inflates to more than {MAX_INFLATED_BYTES} bytes")
            yield {}
        reader = _Sized(inflated)
        self.data_version = data_version(_loaded(reader.text()))
        read: dict[str, TopicConfig] = {}
        for number in range(reader.number()):
            text = reader.text()
            name, config = _topic_from_text(text)
            if config is None:
                self._note_bad(name)
            else:
                read[name] = config
            if number % SLICE_TOPICS == SLICE_TOPICS - 1:
                yield read
                read = {}
        yield read
        self._take_filter_servers(_loaded(reader.text()))
        for _ in range(reader.number() if version >= COMPRESSED_WITH_MAPPINGS and reader.has_more else 0):
            yield from self._mapping(_Walk(reader.text()))


def mapping_version_span(body: bytes) -> tuple[int, int]:
    """Return the position of ``mappingDataVersion`` in a JSON body: it has the time of sending, so bodies differ in it.

    No string contains that key: its quotes would be escaped there.
    """
    start = body.find(b'"mappingDataVersion":{')
    end = body.find(b"}", start)
    if start < 0 or end < 0 or end - start > 256:
        return 0, 0
    return start, end


def differing_part(body: bytes, known: bytes) -> bytes:
    """Return a JSON body without the topics before the first and after the last difference to the table in ``known``.

    ``known``: an earlier body of the same broker. A body in another form than RocketMQ's keeps more topics.
    """
    at, known_at = body.find(_TABLE), known.find(_TABLE)
    if at < 0 or known_at < 0 or len(body) > COMPARED_BYTES:
        return body
    at += len(_TABLE)
    known_at += len(_TABLE)
    old = memoryview(known)[known_at:]  # its slices copy nothing
    room = min(len(body) - at, len(old))
    alike = _longest(room, lambda low, high: body.startswith(old[low:high], at + low))
    tail = len(body) - _longest(
        room - alike, lambda low, high: body.endswith(old[len(old) - high : len(old) - low], 0, len(body) - low)
    )
    before = list(_TOPIC_END.finditer(body, max(at, at + alike - _VALUE_BYTES), at + alike))
    start = before[-1].end() - len('"') if before else at
    after = _TOPIC_END.search(body, max(start, tail), tail + _VALUE_BYTES)
    end = _TABLE_END.search(body, max(start, len(body) - _AFTER_TABLE_BYTES))
    if after is None or end is None:
        return body if start == at else body[:at] + body[start:]
    return body[:at] + body[start : after.end() - len(',"')] + end[1]


def _longest(most: int, is_alike: Callable[[int, int], bool]) -> int:
    """Return the greatest length, up to ``most``, for which all parts from ``low`` to ``high`` are alike."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if is_alike(low, middle):
            low = middle
        else:
            high = middle - 1
    return low


def data_version(value: object) -> Version:
    """Convert a DataVersion of JSON; missing parts are 0. Raises UnreadableBody."""
    if value is None:
        return Version()
    if not isinstance(value, dict):
        raise UnreadableBody("the data version is not a JSON object")
    numbers = [value.get(name, 0) for name in ("stateVersion", "timestamp", "counter")]
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _MAX_LONG:
            raise UnreadableBody("a part of the data version is not a whole number from 0 to 2^63 - 1")
    return Version(*numbers)


def read_data_version(body: bytes) -> Version | None:
    """Read the body of a query for a data version (code 322); None: it is empty. Raises UnreadableBody."""
    if not body:
        return None
    if len(body) > _LONG_VALUE_BYTES:
        raise UnreadableBody(f"the data version has {len(body)} bytes")
    return data_version(_loaded(body.decode(errors="replace")))


def _to_mapping(fields: Mapping[str, object]) -> MappingInfo | None:
    """Convert a TopicQueueMappingInfo of JSON; None: a field is missing or of another type."""
    broker_name, scope = fields.get("bname"), fields.get("scope")
    total_queues, epoch = fields.get("totalQueues"), fields.get("epoch")
    dirty, queue_ids = fields.get("dirty", False), fields.get(_QUEUE_IDS, ())
    if (
        isinstance(broker_name, str)
        and isinstance(scope, str)
        and type(total_queues) is int
        and type(epoch) is int
        and isinstance(dirty, bool)
        and isinstance(queue_ids, tuple)
    ):
        return MappingInfo(broker_name, scope, total_queues, epoch, dirty, queue_ids)
    return None


class _TooLarge:
    """Marks a value that was not read."""


_TOO_LARGE = _TooLarge()


def _topic_from_text(text: str) -> tuple[str, TopicConfig | None]:
    """``name readQueues writeQueues perm SINGLE_TAG {attributes}`` (RocketMQ ``TopicConfig.encode``)."""
    name, *numbers = text.split(" ", 4)
    if len(numbers) < 3 or not all(
        number.isascii() and number.isdigit() and len(number) <= 9 for number in numbers[:3]
    ):
        return name[:_VALUE_BYTES], None
    return name, TopicConfig(int(numbers[0]), int(numbers[1]), int(numbers[2]))


def _loaded(text: str) -> object:
    if len(text) > _LONG_VALUE_BYTES:
        raise UnreadableBody(f"a value has {len(text)} characters in place of a short one")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableBody("a value is not JSON") from error


class _Walk:
    """Steps through JSON text without recursion. Keys may be numbers without quotes, as RocketMQ writes some maps."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0
        self._skip_space()

    def _skip_space(self) -> None:
        found = _SPACE.match(self._text, self.at)
        assert found is not None  # noqa: S101  # it matches nothing as well
        self.at = found.end()

    def opens(self) -> bool:
        """Enter the object that stands here; False when another value does."""
        if self._text[self.at : self.at + 1] != "{":
            return False
        self.at += 1
        return True

    def members(self) -> Iterator[str]:
        """The keys of the object that was entered; the caller takes each value before it asks for the next key."""
        text = self._text
        self._skip_space()
        if text[self.at : self.at + 1] == "}":
            self.at += 1
            return
        while True:
            self._skip_space()
            key = self._key()
            self._skip_space()
            if text[self.at : self.at + 1] != ":":
                raise self._fault("a colon")
            self.at += 1
            self._skip_space()
            yield key
            self._skip_space()
            char = text[self.at : self.at + 1]
            self.at += 1
            if char == "}":
                return
            if char != ",":
                self.at -= 1
                raise self._fault("a comma or the end of an object")

    def _key(self) -> str:
        text = self._text
        if text[self.at : self.at + 1] == '"':
            key = self.small_value()
            if not isinstance(key, str):
                raise self._fault("a key")
            return key
        found = _BARE_KEY.match(text, self.at, self.at + _VALUE_BYTES)
        if found is None:
            raise self._fault("a key")
        self.at = found.end()
        return found[0]

    def many_members(self) -> dict[str, object] | None:
        """Return the next members of the entered object, some hundred; None: continue one by one.

        A topic ends with a number and a brace. If the text up to the last such end can be read as an object, the end
        belongs to a member: within a member or a string, a bracket or a quote would be open.
        """
        window = self._text[self.at : self.at + _WINDOW_BYTES]
        end = len(window)
        for _ in range(_ENDS_TRIED):
            end = window.rfind('},"', 0, end)
            if end <= 0:
                return None
            if window[end - 1].isdigit():
                try:
                    members, length = _read_json("{" + window[: end + 1] + "}")
                except (ValueError, RecursionError):
                    return None
                if length != end + 3:
                    return None
                self.at += end + 2
                return members if isinstance(members, dict) else None
        return None

    def small_value(self, most: int = _VALUE_BYTES) -> object:
        """Return the value at this position if it is short and JSON; else read nothing."""
        try:
            value, length = _read_json(self._text[self.at : self.at + most])
        except (ValueError, RecursionError):
            return _TOO_LARGE
        self.at += length
        return value

    def value(self) -> object:
        """Return the value at this position. Raises UnreadableBody if it is too long or not JSON."""
        value = self.small_value(_LONG_VALUE_BYTES)
        if value is _TOO_LARGE:
            raise self._fault("a short value")
        return value

    def skip(self) -> Iterator[dict[str, TopicConfig]]:
        """Skip the value at this position, in steps: brackets are counted, nothing within them is read."""
        text, depth, tokens = self._text, 0, 0
        if text[self.at : self.at + 1] not in {"{", "[", '"'}:
            scalar = _SCALAR.match(text, self.at, self.at + _VALUE_BYTES)
            if scalar is None or scalar.end() == self.at:
                raise self._fault("a value")
            self.at = scalar.end()
            return
        in_string = False
        while True:
            found = (_IN_STRING if in_string else _BRACKET_OR_QUOTE).search(text, self.at, self.at + STEP_BYTES)
            if found is None:
                self.at += STEP_BYTES
                if self.at >= len(text):
                    raise self._fault("the end of a value")
                yield {}
                continue
            char, self.at = found[0], found.end()
            tokens += 1
            if tokens % _STEP_TOKENS == 0:
                yield {}
            if char == "\\":
                self.at += 1
                continue
            if char == '"':
                in_string = not in_string
            depth += (char in "{[") - (char in "}]")
            if depth <= 0 and not in_string:
                return

    def _fault(self, wanted: str) -> UnreadableBody:
        return UnreadableBody(f"the body is not JSON: {wanted} is missing at character {self.at}")


class _Sized:
    """Reads 32-bit numbers, and strings after their length."""

    def __init__(self, data: bytearray) -> None:
        self._data = data
        self._at = 0

    @property
    def has_more(self) -> bool:
        """Return whether there are more bytes."""
        return self._at < len(self._data)

    def number(self) -> int:
        """Return the next number. Raises UnreadableBody."""
        end = self._at + 4
        if end > len(self._data):
            raise UnreadableBody("the compressed body ends within a length")
        number = int.from_bytes(self._data[self._at : end], "big", signed=True)
        self._at = end
        return number

    def text(self) -> str:
        """Return the next string. Raises UnreadableBody."""
        length = self.number()
        left = len(self._data) - self._at
        if not 0 <= length <= min(left, _LONG_VALUE_BYTES):
            raise UnreadableBody(f"a length in the compressed body is {length}, {left} bytes are left")
        end = self._at + length
        text = self._data[self._at : end].decode(errors="replace")
        self._at = end
        return text
