"""The loader that all daemons share: order, types, and a list of all errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.config import ConfigError, load, to_toml


@dataclass(frozen=True, kw_only=True)
class Row:
    name: str
    size: int = 1

    def problems(self) -> Iterator[str]:
        if self.size < 0:
            yield f"size: {self.size} is below 0"


@dataclass(frozen=True, kw_only=True)
class Main:
    text: str = "default"
    number: float = 1.5
    count: int = 3
    on: bool = True
    names: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)

    def problems(self) -> Iterator[str]:
        if self.count > 9:
            yield f"count: {self.count} is above 9"


@dataclass(frozen=True, kw_only=True)
class Rows:
    row: tuple[Row, ...] = ()

    def problems(self) -> Iterator[str]:
        if len({row.name for row in self.row}) < len(self.row):
            yield "row: a name stands twice"


@dataclass(frozen=True, kw_only=True)
class Config:
    main: Main = field(default_factory=Main)
    rows: Rows = field(default_factory=Rows)

    def problems(self) -> Iterator[str]:
        if self.main.count < len(self.rows.row):
            yield f"main.count: {self.main.count} is less than the rows there are"


def read(directory: Path, toml: str = "", **environment: str) -> Config:
    file = directory / "c.toml"
    file.write_text(toml)
    return load(Config, file=file, environment=environment, prefix="APP")


def faults(directory: Path, toml: str = "", **environment: str) -> set[str]:
    with pytest.raises(ConfigError) as raised:
        read(directory, toml, **environment)
    assert str(raised.value) == "\n".join(raised.value.problems)
    return {problem.removeprefix(f"{directory / 'c.toml'}: ") for problem in raised.value.problems}


def test_without_anything_the_defaults_apply() -> None:
    assert load(Config, file=None, environment={}, prefix="APP") == Config()


def test_environment_beats_file_and_flags_beat_environment(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[main]\ntext = "file"\ncount = 1\nnumber = 2')
    environment = {"APP_MAIN__TEXT": "environment", "APP_MAIN__COUNT": "2"}
    flags = {"main.text": "flag", "main.count": None}

    config = load(Config, file=file, environment=environment, prefix="APP", flags=flags)

    assert (config.main.text, config.main.count, config.main.number) == ("flag", 2, 2.0)
    assert isinstance(config.main.number, float)


def test_environment_values_are_read_by_their_type(tmp_path: Path) -> None:
    config = read(
        tmp_path, APP_MAIN__ON="False", APP_MAIN__NAMES="a, b,", APP_MAIN__NUMBER="1e3", APP_HOME="x", OTHER__X="y"
    )

    assert (config.main.on, config.main.names, config.main.number) == (False, ("a", "b"), 1_000.0)


def test_an_error_names_the_source_of_its_value(tmp_path: Path) -> None:
    toml = '[main]\ncount = 1\n[[rows.row]]\nname = "a"'

    assert faults(tmp_path, toml, APP_MAIN__COUNT="10") == {"environment: APP_MAIN__COUNT: main.count: 10 is above 9"}
    # As do rules between sections.
    assert faults(tmp_path, toml, APP_MAIN__COUNT="0") == {
        "environment: APP_MAIN__COUNT: main.count: 0 is less than the rows there are"
    }
    assert faults(tmp_path, "[main]\ncount = 10", APP_MAIN__TEXT="fine") == {"main.count: 10 is above 9"}
    with pytest.raises(ConfigError, match=r"^command line: main.count: 11 is above 9$"):
        load(Config, file=None, environment={"APP_MAIN__COUNT": "2"}, prefix="APP", flags={"main.count": 11})


def test_a_list_in_the_environment_may_be_written_as_toml(tmp_path: Path) -> None:
    assert read(tmp_path, APP_MAIN__NAMES=' ["a, b", "c"]').main.names == ("a, b", "c")
    assert read(tmp_path, APP_MAIN__NAMES="[]").main.names == ()


@pytest.mark.parametrize("text", ['["a"', "[a]", "[1]", '["a"]\nother = 1', '["a"] b', "[" * 5_000])
def test_a_malformed_list_in_the_environment_is_an_error(tmp_path: Path, text: str) -> None:
    (fault,) = faults(tmp_path, APP_MAIN__NAMES=text)
    assert fault.startswith("environment: APP_MAIN__NAMES: ")


def test_all_errors_are_listed_together(tmp_path: Path) -> None:
    toml = """
        [main]
        count = 10
        colour = "red"
        [[rows.row]]
        name = "a"
        size = -1
        [[rows.row]]
        name = "a"
        [other]
    """

    assert faults(tmp_path, toml, APP_MAIN__NUMBER="many", APP_MAIN__NOTHING="1", APP_ROWS__ROW="x") == {
        "[other]: no such section; there are main, rows",
        "main.colour: no such setting; there are text, number, count, on, names, labels",
        "main.count: 10 is above 9",
        "rows.row[0].size: -1 is below 0",
        "rows.row: a name stands twice",
        "environment: APP_MAIN__NOTHING: no such setting",
        "environment: APP_MAIN__NUMBER: must be a number, not 'many'",
        "environment: APP_ROWS__ROW: can be set only in the file",
    }


def test_rules_of_a_table_are_not_checked_while_its_types_are_wrong(tmp_path: Path) -> None:
    toml = """
        [main]
        count = "ten"
        on = 1
        names = "a"
        labels = { a = 1 }
        [[rows.row]]
        size = 1.5
        [[rows.row]]
        name = 3
    """

    assert faults(tmp_path, toml) == {
        "main.count: must be a whole number, not 'ten'",
        "main.on: must be true or false, not 1",
        "main.names: must be a list, not 'a'",
        "main.labels.a: must be a string, not 1",
        "rows.row[0].size: must be a whole number, not 1.5",
        "rows.row[0].name: must be given",
        "rows.row[1].name: must be a string, not 3",
    }


def test_an_error_in_a_section_does_not_hide_those_of_a_section_with_the_same_prefix(tmp_path: Path) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Alike:
        log: Main
        logs: Main

    (tmp_path / "c.toml").write_text('[log]\ncount = 10\n[logs]\ncount = "x"')
    with pytest.raises(ConfigError) as raised:
        load(Alike, file=tmp_path / "c.toml", environment={}, prefix="APP")

    assert len(raised.value.problems) == 2


def test_rules_between_sections_apply_in_addition_to_those_inside_them(tmp_path: Path) -> None:
    toml = '[main]\ncount = 1\n[[rows.row]]\nname = "a"\nsize = -1\n[[rows.row]]\nname = "b"'

    assert faults(tmp_path, toml) == {
        "rows.row[0].size: -1 is below 0",
        "main.count: 1 is less than the rows there are",
    }


@pytest.mark.parametrize(("toml", "word"), [("main = 3", "must be a table"), ("[main", "is not TOML")])
def test_text_that_is_not_a_configuration_is_reported(tmp_path: Path, toml: str, word: str) -> None:
    assert word in next(iter(faults(tmp_path, toml)))


def test_a_file_that_cannot_be_read_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(Config, file=tmp_path / "missing.toml", environment={}, prefix="APP")
    (tmp_path / "c.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(Config, file=tmp_path / "c.toml", environment={}, prefix="APP")


@given(
    text=st.text(st.characters(exclude_categories=["Cs"])),
    number=st.floats(allow_nan=False, allow_infinity=False),
    names=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=3),
    labels=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.text("ab\n"), max_size=3),
    rows=st.lists(st.text("abc", min_size=1), unique=True, max_size=3),
)
def test_printed_settings_read_back_equal(
    tmp_path_factory: pytest.TempPathFactory,
    text: str,
    number: float,
    names: list[str],
    labels: dict[str, str],
    rows: list[str],
) -> None:
    config = Config(
        main=Main(text=text, number=number, names=tuple(names), labels=labels),
        rows=Rows(row=tuple(Row(name=name, size=2) for name in rows)),
    )

    assert read(tmp_path_factory.mktemp("printed"), to_toml(config)) == config
