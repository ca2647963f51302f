"""The names of ``pointsman_client``: each is imported when it is used first."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pointsman_client


def imports_for_type_checkers() -> dict[str, set[str]]:
    """By module: the names that a type checker sees."""
    (block,) = (
        each for each in ast.parse(Path(pointsman_client.__file__).read_text("utf-8")).body if isinstance(each, ast.If)
    )
    return {
        each.module or "": {name.name for name in each.names} for each in block.body if isinstance(each, ast.ImportFrom)
    }


def test_the_three_lists_of_names_agree() -> None:
    by_module = {module: set(names.split()) for module, names in pointsman_client._NAMES_OF.items()}
    assert by_module == imports_for_type_checkers()
    assert sorted(name for names in by_module.values() for name in names) == sorted(pointsman_client.__all__)
    assert set(pointsman_client.__all__) <= set(dir(pointsman_client))


def test_each_name_is_what_its_module_defines() -> None:
    for module, names in pointsman_client._NAMES_OF.items():
        for name in names.split():
            assert getattr(pointsman_client, name) is getattr(sys.modules[module], name), name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'pointsman_client' has no attribute 'Produccer'"):
        pointsman_client.Produccer  # noqa: B018


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("import pointsman_client", "False False"),
        ("from pointsman_client import PointsmanError", "False False"),
        ("import pointsman_client; pointsman_client.consumer", "False False"),
        ("from pointsman_client import *", "True True"),
    ],
)
def test_a_program_loads_what_it_uses(code: str, loaded: str) -> None:
    names = ("pointsman_client.consumer.pull_consumer", "pointsman_client.producer.producer")
    made = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*(name in sys.modules for name in {names}))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert made.stdout.strip() == loaded
