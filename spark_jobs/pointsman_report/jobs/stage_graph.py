"""Stages as data: what each one reads and writes, the check of all of them together, and a drawing of their graph.

A stage computes one table, or one intermediate that other stages of the run read. Its function gets the rows that the
stage declares and returns those to write; it has no warehouse, so it can read and write nothing else.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark.sql import DataFrame

from pointsman_report.parameters import Parameters
from pointsman_report.schemas import TABLES, Table


class Intermediate(str):
    """The name of rows that are computed once for later stages of the same run, and are not published."""

    __slots__ = ()


def _one(_: Parameters) -> int:
    return 1


@dataclass(frozen=True, slots=True)
class Before:
    """Published rows of the days before the first day of the run."""

    table: Table
    days: Callable[[Parameters], int] = _one
    """Number of days."""


@dataclass(frozen=True, slots=True)
class Since(Before):
    """Rows of the days of the run together with those of `Before`."""


@dataclass(frozen=True, slots=True)
class Context:
    """What the function of a stage may use in addition to rows."""

    first_day: date
    last_day: date
    parameters: Parameters
    checkpoint: Callable[[DataFrame], DataFrame]
    """Compute rows once that the function needs several times, at most once per stage."""

    @property
    def days(self) -> dict[str, date]:
        """The days of the run, as keyword arguments."""
        return {"first_day": self.first_day, "last_day": self.last_day}


@dataclass(frozen=True, slots=True)
class Stage:
    """Computes the rows of one table, or of one intermediate."""

    writes: Table | Intermediate
    reads: tuple[Table | Intermediate | Before, ...]
    compute: Callable[..., DataFrame]
    """Called with the `Context` and the rows of each of ``reads``, in this order."""

    @property
    def inputs(self) -> tuple[Table | Intermediate, ...]:
        """The tables and intermediates of this run that must be written first."""
        since = (read.table if isinstance(read, Since) else read for read in self.reads)
        return tuple(read for read in since if not isinstance(read, Before))

    @property
    def before(self) -> tuple[Table, ...]:
        """The tables of which it reads earlier days."""
        return tuple(read.table for read in self.reads if isinstance(read, Before))


@dataclass(frozen=True, slots=True)
class Part:
    """Stages about one subject; the log has a line for each part."""

    title: str
    stages: tuple[Stage, ...]


def checked(parts: Sequence[Part], *, given: Collection[Table]) -> tuple[Part, ...]:
    """Return the parts. ``given``: the tables that are written before the first stage.

    Raises:
        ValueError: lists all errors: an unknown table, a table that is written twice or not at all, rows that are read
            before they are written (a wrong order or a cycle) or never read, and a function with other inputs.
    """
    found = list(_problems([stage for part in parts for stage in part.stages], given))
    if found:
        raise ValueError("; ".join(found))
    return tuple(parts)


def _problems(stages: Sequence[Stage], given: Collection[Table]) -> Iterator[str]:
    writers = Counter([*given, *(stage.writes for stage in stages)])
    yield from (f"{name} is written {count} times" for name, count in writers.items() if count > 1)
    yield from (f"no stage writes the table {table}" for table in TABLES if table not in writers)
    read = {name for stage in stages for name in stage.inputs}
    written: set[str] = set(given)
    for stage in stages:
        named = (stage.writes, *stage.inputs, *stage.before)
        unknown = dict.fromkeys(name for name in named if isinstance(name, Table) and name not in TABLES)
        yield from (f"stage {stage.writes}: {name} is not a table of the schemas" for name in unknown)
        for name in stage.inputs:
            if name not in written:
                why = "before it is written" if name in writers else "which no stage writes"
                yield f"stage {stage.writes} reads {name}, {why}"
        if isinstance(stage.writes, Intermediate) and stage.writes not in read:
            yield f"no stage reads {stage.writes}"
        try:
            inspect.signature(stage.compute).bind(None, *stage.reads)
        except TypeError as error:
            yield f"stage {stage.writes} reads {len(stage.reads)} inputs, but its function differs: {error}"
        written.add(stage.writes)


def as_rows(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return a JSON object for each stage, with everything it reads."""
    return [
        {
            "part": part.title,
            "writes": stage.writes,
            "is_table": isinstance(stage.writes, Table),
            "reads": list(stage.inputs),
            "reads_earlier_days_of": list(stage.before),
        }
        for part in parts
        for stage in part.stages
    ]


def mermaid(parts: Sequence[Part], *, given: Collection[Table]) -> str:
    """Draw the graph: tables as boxes, intermediates rounded, without arrows that follow from other arrows."""
    lines = ["flowchart TD", '  subgraph given["read from the history"]', *(f"    {table}" for table in given), "  end"]
    for number, part in enumerate(parts, 1):
        lines += [f'  subgraph part{number}["{part.title}"]', *map(_node, part.stages), "  end"]
    stages = [stage for part in parts for stage in part.stages]
    earlier: dict[str, set[str]] = {table: set() for table in given}
    for stage in stages:
        of_inputs = {name: earlier[name] for name in stage.inputs}
        earlier[stage.writes] = set(of_inputs).union(*of_inputs.values())
        lines += [
            f"  {name} --> {stage.writes}"
            for name in stage.inputs
            if not any(name in others for others in of_inputs.values())
        ]
    return "\n".join(lines)


def _node(stage: Stage) -> str:
    name = stage.writes
    before = f"<br/>earlier days: {', '.join(stage.before)}" if stage.before else ""
    return f'    {name}["{name}{before}"]' if isinstance(name, Table) else f'    {name}(["{name}{before}"])'
