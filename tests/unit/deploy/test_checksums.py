"""deploy/dev/checksums.sh: the sums of a release's files, as its users check them."""

from __future__ import annotations

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "deploy/dev/checksums.sh"


def test_the_sums_are_those_of_the_files_each_time_that_they_are_written(tmp_path: Path) -> None:
    for name in ("a b.whl", "pointsman_0.2.0~dev0_amd64.deb"):
        (tmp_path / name).write_text(name)
    for _ in range(2):
        subprocess.run([SCRIPT, tmp_path], check=True, capture_output=True, timeout=60)
        check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
        found = subprocess.run(check, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60)
        assert found.stdout.splitlines() == ["a b.whl: OK", "pointsman_0.2.0~dev0_amd64.deb: OK"]
