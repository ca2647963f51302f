"""The wire holds buf's rules for breaking changes against each released version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.compatibility.record import buf
from tests.compatibility.released import ROOT, Release

NO_RULES = '{"version":"v2"}'
"""buf's own default: the category FILE, which is the strictest: clients generate code from these files."""


def breaking(protos: Path, release: Release, cache: Path) -> list[str]:
    """The rules that these protos break, as buf names them."""
    command = [buf(), "breaking", ".", "--config", NO_RULES, "--error-format", "json"]
    done = subprocess.run(
        [*command, "--against", str(release.fixtures / "protos.binpb")],
        cwd=protos,
        env=os.environ | {"BUF_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, 100), done.stderr
    return re.findall(r'"type":"([A-Z_]+)"', done.stdout)


def test_the_protos_break_no_rule_against_a_released_version(release: Release, tmp_path: Path) -> None:
    assert breaking(ROOT / "proto", release, tmp_path) == []


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [
        ("  string version = 2;", "  string version = 200;", "FIELD_NO_DELETE"),
        ("  string version = 2;", "  bytes version = 2;", "FIELD_SAME_TYPE"),
        ("  rpc GetNodeInfo(", "  rpc GetInfo(", "RPC_NO_DELETE"),
        ("  string version = 2;", "  string version = 2;\n  string later = 200;", None),
    ],
)
def test_a_change_that_breaks_a_rule_is_found_and_an_added_field_is_none(
    release: Release, tmp_path: Path, before: str, after: str, rule: str | None
) -> None:
    protos = Path(shutil.copytree(ROOT / "proto", tmp_path / "proto", ignore=shutil.ignore_patterns("*.py*")))
    file = protos / "pointsman" / "v1" / "admin_service.proto"
    text = file.read_text(encoding="utf-8")
    assert before in text
    file.write_text(text.replace(before, after, 1), encoding="utf-8")
    assert breaking(protos, release, tmp_path) == ([] if rule is None else [rule])
