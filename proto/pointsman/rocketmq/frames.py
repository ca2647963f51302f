"""Frames and headers of RocketMQ's remoting protocol: decoding and encoding. No I/O.

A frame is a length, a second length whose high byte names the header's form, the header, the body
(RocketMQ ``NettyDecoder``, ``RemotingCommand``, ``RocketMQSerializable``).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, cast

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""Maximum size of a frame (``com.rocketmq.remoting.frameMaxLength``)."""
_MAX_LENGTH = MAX_FRAME_BYTES - 4
MAX_REASON_LENGTH = 300
MAX_HEADER_BYTES = 64 * 1024
"""Maximum size of a header: a longer one would occupy the reader for too long. RocketMQ has no such limit."""

JSON_FORM, BINARY_FORM = 0, 1
ANSWER_FLAG, ONE_WAY_FLAG = 1, 2
LANGUAGES = ("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST",
             "NODE_JS")  # fmt: skip
"""Languages by their number in the binary form (RocketMQ ``LanguageCode``)."""
OWN_LANGUAGE = "PYTHON"
OWN_VERSION = 479
"""The version that this package sends: 5.3.3."""

_LENGTHS = struct.Struct(">II")
_BINARY = struct.Struct(">hbhii")
_STR_ALONE = {str}
_COMPACT = json.JSONEncoder(separators=(",", ":"))
_DECODER, _JSON_BLANKS = json.JSONDecoder(), " \t\n\r"
_OPAQUE, _ZERO = b'"opaque":', ord("0")
_PROXY_V1, _PROXY_V2 = b"PROXY ", b"\r\n\r\n\x00\r\nQUIT\n"
_LONGEST_PROXY_LINE = 107
_HTTP = (b"PRI ", b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"CONN", b"PATC", b"TRAC")


class BadFrame(Exception):
    """Bytes that are not a frame of this protocol; the connection is no longer readable."""

    def __init__(self, cause: str, problem: str) -> None:
        super().__init__(problem)
        self.cause = cause
        """One word: tls, http, proxy, length, form, header."""


class Frame(NamedTuple):
    """One frame with its undecoded header."""

    form: int
    header: bytes
    body: bytes


@dataclass(slots=True, kw_only=True)
class Command:
    """A header (RocketMQ ``RemotingCommand``)."""

    code: int
    opaque: int = 0
    flag: int = 0
    language: str = OWN_LANGUAGE
    version: int = OWN_VERSION
    remark: str | None = None
    ext: Mapping[str, str] = field(default_factory=dict)
    """``extFields``: the parameters of the request, as strings."""

    @property
    def reason(self) -> str:
        """Return the remark as one line for messages, without control characters and cut to MAX_REASON_LENGTH."""
        remark = (self.remark or "")[:MAX_REASON_LENGTH]
        return "".join(each if each.isprintable() else " " for each in remark).strip() or "no reason given"

    @property
    def is_answer(self) -> bool:
        """Return whether it is a response."""
        return bool(self.flag & ANSWER_FLAG)

    @property
    def is_one_way(self) -> bool:
        """Return whether no response is expected."""
        return bool(self.flag & ONE_WAY_FLAG)


class FrameReader:
    """Splits a stream of bytes into frames; a PROXY header before the first one is skipped, as HAProxy sends it."""

    def __init__(self) -> None:
        self._data: bytes | bytearray = b""
        self._at = 0
        self._skip_preface = True

    @property
    def waiting(self) -> int:
        """Return the number of bytes that are not in a returned frame yet."""
        return len(self._data) - self._at

    def feed(self, data: bytes) -> None:
        """Add the next bytes."""
        if self._at == len(self._data):
            self._data, self._at = data, 0
        elif isinstance(self._data, bytearray):
            if self._at:
                del self._data[: self._at]
                self._at = 0
            self._data += data
        else:
            self._data, self._at = bytearray(self._data[self._at :]) + data, 0

    def next(self) -> Frame | None:
        """Return the next complete frame; None: it is incomplete. Raises BadFrame."""
        if self._skip_preface and not self._skips_preface():
            return None
        data, at = self._data, self._at
        size = len(data)
        if size - at < 8:
            if size - at >= 4:
                _check_start(int.from_bytes(data[at : at + 4], "big"), 0)
            return None
        length, second = _LENGTHS.unpack_from(data, at)
        form, header_length = second >> 24, second & 0xFFFFFF
        is_possible = 4 + header_length <= length <= _MAX_LENGTH
        if not is_possible or form > BINARY_FORM or header_length > MAX_HEADER_BYTES:
            _check_start(length, second)
        end = at + 4 + length
        if end > size:
            return None
        body_at = at + 8 + header_length
        self._at = end
        if type(data) is bytes:
            # Like Frame(...) in half the time: this runs for each request.
            frame = tuple.__new__(Frame, (form, data[at + 8 : body_at], data[body_at:end]))
        else:
            view = memoryview(data)  # one copy of a large body, not two
            frame = Frame(form, bytes(view[at + 8 : body_at]), bytes(view[body_at:end]))
            view.release()
        if end == size:
            self._data, self._at = b"", 0
        return frame

    def _skips_preface(self) -> bool:
        """Skip a PROXY header; return whether the bytes after it can be read."""
        size = proxy_header_size(self._data, self._at)
        if size is None:
            return False
        self._at += size
        self._skip_preface = False
        return True


def proxy_header_size(data: bytes | bytearray, at: int = 0) -> int | None:
    """Return the size of the PROXY header at this position, 0 without one; None: it is incomplete. Raises BadFrame."""
    head = bytes(data[at : at + 16])
    if not head:
        return None
    if head[: len(_PROXY_V1)] == _PROXY_V1[: len(head)]:
        end = data.find(b"\r\n", at, at + _LONGEST_PROXY_LINE)
        if end >= 0:
            return end + 2 - at
        if len(data) - at >= _LONGEST_PROXY_LINE:
            raise BadFrame("proxy", f"a PROXY line has no end within {_LONGEST_PROXY_LINE} bytes")
        return None
    if head[: len(_PROXY_V2)] == _PROXY_V2[: len(head)]:
        size = 16 + int.from_bytes(head[14:16], "big")
        return size if len(head) == 16 and len(data) - at >= size else None
    return 0


def _check_start(length: int, second: int) -> None:
    """Raise BadFrame if these two numbers cannot begin a frame."""
    first, form, header_length = length.to_bytes(4, "big"), second >> 24, second & 0xFFFFFF
    if not 4 <= length <= _MAX_LENGTH:
        if first.startswith(b"\x16\x03"):
            raise BadFrame("tls", "received a TLS hello; this port accepts RocketMQ's frames in plaintext only")
        if first in _HTTP:
            raise BadFrame("http", "received HTTP; this port accepts RocketMQ's frames only")
        raise BadFrame("length", f"a frame declares {length} bytes, must be from 4 to {_MAX_LENGTH}")
    if form not in {JSON_FORM, BINARY_FORM}:
        raise BadFrame("encoding", f"the header's form is {form}, neither JSON (0) nor ROCKETMQ (1)")
    if header_length > length - 4:
        raise BadFrame("length", f"a header of {header_length} bytes does not fit into a frame of {length}")
    if header_length > MAX_HEADER_BYTES:
        raise BadFrame("header", f"a header has {header_length} bytes, at most {MAX_HEADER_BYTES} are allowed")


# --- decoding -------------------------------------------------------------------------------------------------


def read_header(form: int, header: bytes) -> Command:
    """Read a header of either form. Raises BadFrame."""
    return _read_json(header) if form == JSON_FORM else _read_binary(header)


def cut_opaque(form: int, header: bytes) -> tuple[tuple[bytes, bytes], bytes] | None:
    """Split a header around its first opaque, returned as digits; None if it is not in the form that clients write.

    Repeated requests differ only in this number, so the rest identifies them. A caller that caches the rest must check
    that it contains no other opaque: here that would take time with each request.
    """
    if form == BINARY_FORM:
        if len(header) < _BINARY.size:
            return None
        return (header[:5], header[9:]), b"%d" % int.from_bytes(header[5:9], "big", signed=True)
    before, _, rest = header.partition(_OPAQUE)
    opaque, _, after = rest.partition(b",")
    digits = opaque if opaque.isdigit() else opaque.removeprefix(b"-")
    if not 0 < len(digits) <= 10 or not digits.isdigit() or (digits[0] == _ZERO and len(digits) > 1):
        return None
    return (before, after), opaque


def _read_json(header: bytes) -> Command:
    try:
        text = header.decode().strip(_JSON_BLANKS)
        fields, end = _DECODER.raw_decode(text)  # json.loads takes half as long again
    except (ValueError, RecursionError) as error:
        raise BadFrame("header", "a header is not JSON") from error
    if end != len(text) or not isinstance(fields, dict):
        raise BadFrame("header", "a header is not a JSON object")
    get = fields.get
    language, remark, ext = get("language"), get("remark"), get("extFields")
    if ext is not None and not isinstance(ext, dict):
        raise BadFrame("header", "extFields of a header is not a JSON object")
    return Command(
        code=_int32("code", get("code", 0)),
        opaque=_int32("opaque", get("opaque", 0)),
        flag=_int32("flag", get("flag", 0)),
        language=language if isinstance(language, str) else _language(language),
        version=_int32("version", get("version", 0)),
        remark=remark if isinstance(remark, str) else None,
        ext=_texts(ext) if ext else {},
    )


def _texts(ext: dict[str, object]) -> dict[str, str]:
    """Return extFields as str; some writers have numbers there."""
    if set(map(type, ext.values())) == _STR_ALONE:
        return cast("dict[str, str]", ext)
    return {key: text for key, value in ext.items() if (text := _text(value)) is not None}


def _int32(name: str, value: object) -> int:
    if type(value) is not int or not -(2**31) <= value < 2**31:  # not isinstance: a bool is not a number
        raise BadFrame("header", f"{name} of a header is not a number of 32 bits")
    return value


def _text(value: object) -> str | None:
    """Return a value of extFields as a string; it may have been written as a number."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | int | float) else None


def _language(number: object) -> str:
    is_known = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < len(LANGUAGES)
    return LANGUAGES[number] if is_known and isinstance(number, int) else "OTHER"


def _read_binary(header: bytes) -> Command:
    try:
        code, language, version, opaque, flag = _BINARY.unpack_from(header)
        remark, at = _sized(header, _BINARY.size, 4)
        rest, _ = _sized(header, at, 4)
        ext, at = dict[str, str](), 0
        while at < len(rest):
            key, at = _sized(rest, at, 2)
            value, at = _sized(rest, at, 4)
            ext[key.decode()] = value.decode()
        return Command(
            code=code,
            opaque=opaque,
            flag=flag,
            language=_language(language),
            version=version,
            remark=remark.decode() or None,
            ext=ext,
        )
    except (struct.error, UnicodeDecodeError) as error:
        raise BadFrame("header", f"a binary header cannot be read: {error}") from error


def _sized(data: bytes, at: int, width: int) -> tuple[bytes, int]:
    """Return the bytes after their length of ``width`` bytes, and the position of their end."""
    start = at + width
    length = int.from_bytes(data[at:start], "big", signed=True)
    if start > len(data) or not 0 <= length <= len(data) - start:
        raise BadFrame("header", f"a length in a binary header is {length}, {max(0, len(data) - start)} bytes follow")
    return data[start : start + length], start + length


# --- encoding -------------------------------------------------------------------------------------------------


def compact(value: object) -> bytes:
    """Encode strict JSON without blanks, which every reader of this protocol accepts (the Go client accepts no
    other)."""
    return _COMPACT.encode(value).encode()


def encode(command: Command, body: bytes = b"", *, form: int = JSON_FORM) -> bytes:
    """Encode a frame."""
    header = _binary_header(command) if form == BINARY_FORM else _json_header(command)
    return _LENGTHS.pack(4 + len(header) + len(body), form << 24 | len(header)) + header + body


def _json_header(command: Command) -> bytes:
    fields: dict[str, object] = {
        "code": command.code,
        "extFields": dict(command.ext),
        "flag": command.flag,
        "language": command.language,
        "opaque": command.opaque,
        "remark": command.remark,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version,
    }
    return compact({name: value for name, value in fields.items() if value is not None and value != {}})


def _binary_header(command: Command) -> bytes:
    language = LANGUAGES.index(command.language) if command.language in LANGUAGES else LANGUAGES.index("OTHER")
    remark = (command.remark or "").encode()
    ext = b"".join(
        struct.pack(">h", len(key.encode())) + key.encode() + struct.pack(">i", len(value.encode())) + value.encode()
        for key, value in command.ext.items()
    )
    fixed = _BINARY.pack(command.code, language, command.version, command.opaque, command.flag)
    return fixed + struct.pack(">i", len(remark)) + remark + struct.pack(">i", len(ext)) + ext


class ReadyResponse:
    """A response in the JSON form whose bytes are ready except for the request's opaque."""

    __slots__ = ("_after", "_before", "_frame_bytes", "_header_bytes", "_prefixes", "code")

    def __init__(
        self, *, code: int = 0, remark: str | None = None, ext: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        """``ext``: if given, it is part of the response even when empty, as RocketMQ sends it for some codes."""
        self.code = code
        facts = b"" if ext is None else b'"extFields":' + compact(dict(ext)) + b","
        said = b"" if remark is None else b',"remark":' + compact(remark)
        before = b'{"code":%d,%b"flag":1,"language":"%b","opaque":' % (code, facts, OWN_LANGUAGE.encode())
        after = said + b',"serializeTypeCurrentRPC":"JSON","version":%d}' % OWN_VERSION
        self._header_bytes = len(before) + len(after)
        self._frame_bytes = 4 + self._header_bytes + len(body)
        self._before = before
        self._prefixes: dict[int, bytes] = {}
        """Lengths and header up to the opaque, by the opaque's number of digits."""
        self._after = after + body

    def __len__(self) -> int:
        """Return the approximate number of bytes of the frame."""
        return self._frame_bytes + 8

    def to(self, opaque: bytes) -> bytes:
        """Return the frame for a request with this opaque, in digits."""
        prefix = self._prefixes.get(len(opaque))
        if prefix is None:
            digits = len(opaque)
            lengths = _LENGTHS.pack(self._frame_bytes + digits, self._header_bytes + digits)
            prefix = self._prefixes[digits] = lengths + self._before
        return b"".join((prefix, opaque, self._after))

    def parts(self, opaque: bytes) -> tuple[bytes, memoryview]:
        """Return the same frame in two parts. The second has the body, which is not copied."""
        size = len(opaque)
        lengths = _LENGTHS.pack(self._frame_bytes + size, self._header_bytes + size)
        return b"".join((lengths, self._before, opaque)), memoryview(self._after)


class BodyCrc32:
    """``bodyCrc32`` of a body that is added in parts (RocketMQ ``UtilAll.crc32``)."""

    __slots__ = ("_crc",)

    def __init__(self) -> None:
        self._crc = 0

    def add(self, part: bytes | memoryview) -> None:
        """Add the next part."""
        self._crc = zlib.crc32(part, self._crc)

    @property
    def value(self) -> int:
        """Return the checksum of all parts. Only here the sign bit is cut off: it is needed for further parts."""
        return self._crc & 0x7FFFFFFF


def version_text(version: int) -> str:
    """Return a header's version in the usual form, 479 as 5.3.3 (RocketMQ ``MQVersion``); empty outside 4.0.0 to
    5.x."""
    if not 212 <= version < 612:
        return ""
    snapshot = "-SNAPSHOT" if version % 2 == 0 else ""
    major, rest = divmod(version + (version % 2 == 0) - 213, 200)
    return f"{4 + major}.{rest // 20}.{rest % 20 // 2}{snapshot}"
