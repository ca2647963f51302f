"""Java's ``.properties`` format, read as ``java.util.Properties.load`` reads it. Pure.

Lines end with LF, CR or both. A line whose first visible character is ``#`` or ``!`` is a comment. An odd number of
backslashes at the end continues the line, without the leading blanks of the next one; ``#`` starts no comment there.
A key ends at the first ``=``, ``:`` or blank without a backslash before it. Of equal keys the last applies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"((?:[^\\:= \t\f]|\\.)*)[ \t\f]*(?:[=:][ \t\f]*)?", re.DOTALL)
_ESCAPE = re.compile(r"\\(u.{0,4}|.)", re.DOTALL)
_UNICODE_ESCAPE = re.compile(r"u[0-9A-Fa-f]{4}")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(Exception):
    """The text is invalid for Java; the message has the place."""


def parse_properties(text: str) -> dict[str, str]:
    """Read ``text``, decoded from ISO-8859-1. Raises PropertiesError for a malformed ``\\uXXXX``."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        if match is not None:
            properties[_unescape(match[1])] = _unescape(line[match.end() :])
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    natural = iter(_LINE_END.split(text))
    for first in natural:
        line = first.lstrip(_BLANKS)
        # A line with only a backslash continues nothing: in Java the next line is a new one, possibly a comment.
        if line.startswith(("#", "!")) or line == "\\":
            continue
        while _is_continued(line):
            line = line[:-1] + next(natural, "").lstrip(_BLANKS)
        if line:
            yield line


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_escaped, text)
    # A character beyond U+FFFF is written as two escapes, one for each of its UTF-16 halves.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _escaped(match: re.Match[str]) -> str:
    char = match[1]
    if char[0] != "u":
        return _CONTROL.get(char, char)
    if _UNICODE_ESCAPE.fullmatch(char) is None:
        raise PropertiesError(f"malformed escape {match[0]!r}: four hexadecimal digits must follow \\u")
    return chr(int(char[1:], 16))
