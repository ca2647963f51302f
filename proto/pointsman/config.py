"""Load a program's configuration: defaults < TOML file < environment < flags; all problems are reported together.

A configuration is a frozen dataclass of sections, each a frozen dataclass of plain values: ``bool``, ``int``,
``float``, ``str``, tuples of these, tuples of tables (dataclasses), and a ``dict`` of the first four. A section may
define ``problems(self) -> Iterable[str]`` for its rules, each line as ``field: what is wrong``; so may the
configuration, for rules between sections. A field with ``repr=False`` is a secret: no problem shows its value.
"""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class ConfigError(Exception):
    """The configuration cannot be used. ``problems`` has one line per problem, with its place."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def load(
    config_type: type[T],
    *,
    file: Path | None,
    environment: Mapping[str, str] | None = None,
    prefix: str = "",
    flags: Mapping[str, object] | None = None,
) -> T:
    """Build ``config_type``.

    ``environment`` names are ``PREFIX_SECTION__KEY``; those without ``__`` are ignored. A list there is words between
    commas, or a TOML list. ``flags`` maps ``section.key`` to values as TOML has them; ``None`` means not given. Raises
    ConfigError, whose lines name the source of each value.
    """
    problems: list[str] = []
    values: dict[str, Any] = {}
    if file is not None:
        values = _read_toml(file)
    source = str(file) if file is not None else "configuration"
    origins: dict[str, str] = {}
    tree = _Reader()
    sections = {f.name: hint for f, hint in _fields(config_type)}
    known = ", ".join(sections)
    problems += [f"{source}: [{name}]: no such section; there are {known}" for name in values if name not in sections]
    kwargs: dict[str, Any] = {}
    for name, section_type in sections.items():
        table = values.get(name, {})
        if not isinstance(table, dict):
            problems.append(f"{source}: {name}: must be a table, not {_named(table)}")
            table = {}
        kwargs[name] = tree.table(section_type, table, where=name)
    problems += [f"{source}: {line}" for line in tree.take_problems()]
    _apply_environment(kwargs, sections, environment or {}, prefix, problems, origins)
    for path, value in (flags or {}).items():
        if value is not None:
            origins[path] = "command line"
            section, key = path.split(".", 1)
            if section in sections:
                kwargs[section] |= tree.table(sections[section], {key: value}, where=section)
            else:
                problems.append(f"command line: {path}: no such section; there are {known}")
    built: dict[str, Any] = {}
    for name, section_type in sections.items():
        built[name] = tree.build(section_type, kwargs[name], where=name)
    problems += [_with_origin(line, origins, source) for line in tree.take_problems()]
    if None in built.values():
        raise ConfigError(problems)
    config = config_type(**built)
    problems += [_with_origin(line, origins, source) for line in _own_problems(config)]
    if problems:
        raise ConfigError(problems)
    return config


def changed_settings(old: T, new: T) -> Iterator[tuple[str, object]]:
    """Name each setting that differs between two configurations of one type, as ``section.key``, with its new value."""
    for section in dataclasses.fields(old):  # type: ignore[arg-type]  # any dataclass instance
        was, now = getattr(old, section.name), getattr(new, section.name)
        for setting in dataclasses.fields(now):
            value = getattr(now, setting.name)
            if value != getattr(was, setting.name):
                yield f"{section.name}.{setting.name}", value


def to_toml(config: object) -> str:
    """Print a configuration as TOML that :func:`load` reads back to an equal one."""
    lines: list[str] = []
    for section in dataclasses.fields(config):  # type: ignore[arg-type]  # any dataclass instance
        _print_table(section.name, getattr(config, section.name), lines, array=False)
    return "\n".join(lines) + "\n"


def _print_table(path: str, table: object, lines: list[str], *, array: bool) -> None:
    lines += ["", f"[[{path}]]" if array else f"[{path}]"] if lines else [f"[{path}]"]
    nested: list[tuple[str, object]] = []
    for field in dataclasses.fields(table):  # type: ignore[arg-type]  # any dataclass instance
        value = getattr(table, field.name)
        if isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            nested += [(f"{path}.{field.name}", item) for item in value]
        else:
            lines.append(f"{field.name} = {_print_value(value)}")
    for nested_path, item in nested:
        _print_table(nested_path, item, lines, array=True)


def _print_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(_print_value(item) for item in value) + "]"
    if isinstance(value, dict):
        inner = ", ".join(f"{_print_value(key)} = {_print_value(item)}" for key, item in value.items())
        return "{ " + inner + " }" if inner else "{}"
    escaped = "".join(
        char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08x}" for char in str(value)
    )
    return f'"{escaped}"'


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"{file}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{file}: is not UTF-8 text"]) from error
    except RecursionError as error:
        raise ConfigError([f"{file}: is nested too deep"]) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{file}: is not TOML: {error}"]) from error


def _fields(config_type: type[Any]) -> list[tuple[dataclasses.Field[Any], Any]]:
    hints = typing.get_type_hints(config_type)
    return [(field, hints[field.name]) for field in dataclasses.fields(config_type)]


def _own_problems(built: object) -> Iterator[str]:
    check = getattr(built, "problems", None)
    if check is not None:
        yield from typing.cast("Iterable[str]", check())


def _with_origin(line: str, origins: Mapping[str, str], source: str) -> str:
    path = line.partition(":")[0].partition("[")[0]
    return f"{origins.get(path, source)}: {line}"


def _apply_environment(
    kwargs: dict[str, dict[str, Any]],
    sections: Mapping[str, Any],
    environment: Mapping[str, str],
    prefix: str,
    problems: list[str],
    origins: dict[str, str],
) -> None:
    for variable, text in sorted(environment.items()):
        if not variable.startswith(f"{prefix}_") or "__" not in variable:
            continue
        section, _, key = variable.removeprefix(f"{prefix}_").lower().partition("__")
        hints = {field.name: hint for field, hint in _fields(sections[section])} if section in sections else {}
        if key not in hints:
            problems.append(f"environment: {variable}: no such setting")
            continue
        try:
            kwargs[section][key] = _from_text(text, hints[key])
            origins[f"{section}.{key}"] = f"environment: {variable}"
        except ValueError as error:
            problems.append(f"environment: {variable}: {error}")


def _from_text(text: str, hint: Any) -> Any:  # noqa: ANN401  # a value of the hint's type
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        if dataclasses.is_dataclass(inner):
            raise ValueError("can be set only in the file")
        if text.lstrip().startswith("["):
            return _from_list(text, hint)
        return tuple(_from_text(part.strip(), inner) for part in text.split(",") if part.strip())
    if hint is bool:
        if text.lower() not in {"true", "false"}:
            raise ValueError(f"must be true or false, not {text!r}")
        return text.lower() == "true"
    if hint in {int, float}:
        try:
            return hint(text)
        except ValueError:
            raise ValueError(f"must be {_spoken(hint)}, not {text!r}") from None
    if hint is str:
        return text
    raise ValueError("can be set only in the file")


def _from_list(text: str, hint: Any) -> tuple[Any, ...]:  # noqa: ANN401  # as above
    try:
        found = tomllib.loads(f"list = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        found = {}
    if found.keys() != {"list"}:
        raise ValueError(f"begins with [ but is not a TOML list: {text!r}")
    reader = _Reader()
    items: tuple[Any, ...] = reader.value(found["list"], hint, where="list")
    problems = reader.take_problems()
    if problems:
        raise ValueError(problems[0].removeprefix("list"))
    return items


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _spoken(hint: Any) -> str:  # noqa: ANN401  # a type
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}.get(
        hint, "a list or table"
    )


def _named(value: object) -> str:
    """Return a value of a wrong type for a message; of a list or table only what it is: it may contain a secret."""
    return "a list" if isinstance(value, list) else "a table" if isinstance(value, dict) else repr(value)


class _Reader:
    """Converts TOML values to typed ones, collecting problems instead of raising."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._unusable: list[str] = []

    def take_problems(self) -> list[str]:
        """Return and clear the problems found; each line begins with the path of its setting."""
        found, self._problems = self._problems, []
        return found

    def table(self, table_type: type[Any], table: Mapping[str, Any], *, where: str) -> dict[str, Any]:
        fields = {field.name: (field, hint) for field, hint in _fields(table_type)}
        kwargs: dict[str, Any] = {}
        for key, value in table.items():
            if key not in fields:
                self._problems.append(f"{where}.{key}: no such setting; there are {', '.join(fields)}")
                continue
            field, hint = fields[key]
            kwargs[key] = self.value(value, hint, where=f"{where}.{key}", is_secret=not field.repr)
        return kwargs

    def value(self, value: Any, hint: Any, *, where: str, is_secret: bool = False) -> Any:  # noqa: ANN401  # typed by hint
        origin = typing.get_origin(hint)
        if origin is tuple:
            if not isinstance(value, list | tuple):
                self._refuse(where, f"must be a list, not {_named(value)}")
                return ()
            inner = typing.get_args(hint)[0]
            if isinstance(inner, type) and dataclasses.is_dataclass(inner):
                return tuple(self._row(inner, item, where=f"{where}[{i}]") for i, item in enumerate(value))
            return tuple(self.value(item, inner, where=f"{where}[{i}]") for i, item in enumerate(value))
        if origin is dict:
            if not isinstance(value, dict):
                self._refuse(where, f"must be a table, not {_named(value)}")
                return {}
            inner = typing.get_args(hint)[1]
            return {key: self.value(item, inner, where=f"{where}.{key}") for key, item in value.items()}
        if hint is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if origin is types.UnionType:
            raise TypeError(f"{where}: a setting has one type")
        if type(value) is not hint:
            self._refuse(where, f"must be {_spoken(hint)}" + ("" if is_secret else f", not {_named(value)}"))
        return value

    def _row(self, row_type: type[Any], item: Any, *, where: str) -> Any:  # noqa: ANN401  # an instance of row_type
        if not isinstance(item, dict):
            self._refuse(where, f"must be a table, not {_named(item)}")
            return None
        return self.build(row_type, self.table(row_type, item, where=where), where=where)

    def build(self, table_type: type[Any], kwargs: dict[str, Any], *, where: str) -> Any:  # noqa: ANN401  # as above
        missing = [
            field.name for field, _ in _fields(table_type) if field.name not in kwargs and not _has_default(field)
        ]
        for name in missing:
            self._refuse(f"{where}.{name}", "must be given")
        # The default replaces an unusable value, so that the other values are checked too.
        bad = {name for name in kwargs if self._is_unusable(f"{where}.{name}")}
        defaults = {f.name for f, _ in _fields(table_type) if f.name not in missing and _has_default(f)}
        if missing or bad - defaults:
            return None
        built = table_type(**{name: value for name, value in kwargs.items() if name not in bad})
        self._problems += [f"{where}.{line}" for line in _own_problems(built)]
        return None if bad else built

    def _is_unusable(self, path: str) -> bool:
        return any(bad == path or bad.startswith((f"{path}.", f"{path}[")) for bad in self._unusable)

    def _refuse(self, where: str, problem: str) -> None:
        self._unusable.append(where)
        self._problems.append(f"{where}: {problem}")
