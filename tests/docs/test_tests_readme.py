"""The examples of ``tests/README.md`` are tests: each stands in the file that the line before it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"`(tests/[^`]+\.py)`:[^`]*(?:`[^`]+`[^`]*)*?\n\n```python\n(.+?)\n```", PAGE, re.DOTALL)


def test_there_is_one_for_each_level() -> None:
    assert [Path(path).parts[1] for path, _ in EXAMPLES] == ["unit", "property", "integration", "integration", "e2e"]


@pytest.mark.parametrize(("path", "code"), EXAMPLES)
def test_an_example_stands_in_its_file(path: str, code: str) -> None:
    assert f"\n\n{code}\n" in (ROOT / path).read_text(encoding="utf-8")
