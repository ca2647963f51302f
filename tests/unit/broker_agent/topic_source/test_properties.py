"""Java's .properties format. The expected values come from java.util.Properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_agent.topic_source.properties import PropertiesError, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a=1", {"a": "1"}, id="plain"),
        pytest.param("a : 1", {"a": "1"}, id="colon"),
        pytest.param("a 1", {"a": "1"}, id="blank"),
        pytest.param(" \t\fa = 1 ", {"a": "1 "}, id="blanks-before-are-dropped-and-after-are-kept"),
        pytest.param("a==1", {"a": "=1"}, id="one-separator-only"),
        pytest.param("a", {"a": ""}, id="no-value"),
        pytest.param("=1", {"": "1"}, id="no-key"),
        pytest.param("a=1\r\nb=2\rc=3\nd=4", {"a": "1", "b": "2", "c": "3", "d": "4"}, id="all-line-ends"),
        pytest.param("# a=1\n  ! b=2\n\nc=3", {"c": "3"}, id="comments"),
        pytest.param("# a \\\nb=2", {"b": "2"}, id="a-comment-does-not-continue"),
        pytest.param("a=1\\\n   2\\\n\t3", {"a": "123"}, id="continued"),
        pytest.param("a=1\\\r\n2", {"a": "12"}, id="continued-over-both-line-ends"),
        pytest.param("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}, id="an-even-number-does-not-continue"),
        pytest.param("a=1\\\n# b", {"a": "1# b"}, id="no-comment-in-a-continuation"),
        pytest.param("\\\n# b\nc=1", {"c": "1"}, id="but-after-nothing-it-is-one"),
        pytest.param("a=1\\\n\nb=2", {"a": "1", "b": "2"}, id="an-empty-continuation-ends-the-line"),
        pytest.param("a=1\\", {"a": "1"}, id="a-backslash-at-the-end-of-the-file"),
        pytest.param("a=1\na=2", {"a": "2"}, id="the-last-holds"),
        pytest.param(r"a\=b\:c\ d=1", {"a=b:c d": "1"}, id="escaped-key"),
        pytest.param(r"a=\t\n\r\f\q\"\#", {"a": '\t\n\r\fq"#'}, id="escapes"),
        pytest.param(r"\u0061=\u00E9\ud83d\ude00", {"a": "é😀"}, id="unicode"),
        pytest.param("a=é", {"a": "é"}, id="latin"),
    ],
)
def test_reads_what_java_reads(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\u12g4", r"\u=1", "a=\\u12\n34"])
def test_refuses_what_java_refuses(text: str) -> None:
    with pytest.raises(PropertiesError, match="malformed escape"):
        parse_properties(text)


def written(text: str, *, is_key: bool) -> str:
    """Escape as java.util.Properties.store does."""
    out = []
    for index, char in enumerate(text):
        if char in "=:#!\\" or (char == " " and (is_key or index == 0)):
            out.append(f"\\{char}")
        elif char in "\t\n\r\f":
            out.append({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[char])
        elif " " <= char <= "~":
            out.append(char)
        else:
            halves = char.encode("utf-16-be").hex()
            out += [f"\\u{halves[i : i + 4]}" for i in range(0, len(halves), 4)]
    return "".join(out)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(
    properties=st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=6),
    separator=st.sampled_from(["=", ":", " ", " = ", "\t:\f", "=  "]),
    line_end=st.sampled_from(["\n", "\r", "\r\n"]),
    noise=st.sampled_from(["", "# comment \\", "  ", "!x=1"]),
    data=st.data(),
)
def test_what_was_written_is_read_back(
    properties: dict[str, str], separator: str, line_end: str, noise: str, data: st.DataObject
) -> None:
    lines = []
    for key, value in properties.items():
        escaped = written(value, is_key=False)
        # Anywhere but inside an escape a line may be broken.
        if escaped and "\\" not in escaped:
            at = data.draw(st.integers(0, len(escaped) - 1))
            rest = escaped[at:]
            escaped = f"{escaped[:at]}\\{line_end}  {rest}" if not rest.startswith(" ") else escaped
        lines.append(f"{written(key, is_key=True)}{separator}{escaped}")
        lines.append(noise)

    assert parse_properties(line_end.join(lines)) == properties


@given(st.text(st.sampled_from("ab=: \t\f\\\n\r#!u0é"), max_size=40))
def test_no_text_causes_an_internal_error(text: str) -> None:
    try:
        properties = parse_properties(text)
    except PropertiesError:
        return
    assert all(isinstance(part, str) for pair in properties.items() for part in pair)
