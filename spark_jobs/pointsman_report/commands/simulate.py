"""``simulate``: what other parameters would have flagged."""

from __future__ import annotations

import argparse
import tomllib
from dataclasses import replace

from pointsman_report import parameters
from pointsman_report.commands import arguments
from pointsman_report.commands.command import Command, UsageError
from pointsman_report.commands.running import answered, running

EXAMPLE = "flapping.suppress_above=2000"


def _setting(text: str) -> tuple[str, str, object]:
    name, equals, written = text.partition("=")
    section, dot, key = name.strip().partition(".")
    if not (equals and dot):
        raise argparse.ArgumentTypeError(f"{text!r} is not TABLE.NAME=VALUE, such as {EXAMPLE}")
    try:
        return section, key, tomllib.loads(f"value = {written}")["value"]
    except tomllib.TOMLDecodeError:
        raise argparse.ArgumentTypeError(f"{written!r} is no value of TOML; such is {EXAMPLE}") from None


def with_settings(given: parameters.Parameters, settings: list[tuple[str, str, object]]) -> parameters.Parameters:
    """Put values over parameters.

    Raises:
        UsageError: a name is unknown, or a value makes no sense.
    """
    own = given.as_dict()
    values: dict[str, dict[str, object]] = {}
    for section, key, value in settings:
        if section not in own or key not in own[section]:
            known = ", ".join(own.get(section, own))
            raise UsageError(f"--set {section}.{key}: unknown; known: {known}")
        values.setdefault(section, {})[key] = value
    changed = given
    for section, over in values.items():
        try:
            changed = replace(changed, **{section: replace(getattr(given, section), **over)})
        except parameters.ParametersError as error:
            raise UsageError(f"--set {section}: {error}") from error
    return changed


def _arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--set",
        dest="settings",
        action="append",
        type=_setting,
        required=True,
        metavar="TABLE.NAME=VALUE",
        help=f"a number of the parameters file, such as {EXAMPLE}; repeat for more",
    )
    arguments.add_range(command)
    arguments.add_warehouse(command)
    arguments.add_parameters(command)
    arguments.add_outcome(command)
    arguments.add_spark(command)


def _run(options: argparse.Namespace) -> int:
    first_day, last_day = arguments.checked_range(options)
    warehouse = arguments.checked_warehouse(options)
    given = arguments.loaded_parameters(options)
    others = with_settings(given, options.settings)
    with running(options, reads=[warehouse]) as (spark, _):
        # Only now: these import pyspark, whose absence has been said in one line.
        from pointsman_report.io import Warehouse  # noqa: PLC0415
        from pointsman_report.questions.simulate import simulate  # noqa: PLC0415

        answer = simulate(Warehouse(spark, warehouse), first_day, last_day, given=given, others=others)
    return answered(answer, options, given.report.zone)


COMMAND = Command(
    name="simulate",
    summary="what other thresholds would have flagged on days that were computed",
    details=f"""\
  pointsman-report simulate --set {EXAMPLE} --from 2026-11-01 --to 2026-11-20 --warehouse /srv/warehouse

changes nothing. The days must have been computed with the numbers of --parameters, which --set is held against.""",
    arguments=_arguments,
    run=_run,
)
