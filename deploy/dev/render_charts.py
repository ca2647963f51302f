"""Render the chart with Helm: what ``kubectl apply`` takes in ``deploy/k8s``, and a snapshot for each file of values
in ``tests/fixtures/chart``.

``--check`` writes nothing and exits 1 if a file is stale.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "pointsman"
K8S = ROOT / "deploy" / "k8s"
SNAPSHOTS = ROOT / "tests" / "fixtures" / "chart"
APPLIED = {
    "pointsman.yaml": [],
    "pointsman-with-report.yaml": ["--set=report.enabled=true"],
    "redis-with-agent.yaml": ["--set=redis.enabled=true", "--show-only=templates/redis.yaml"],
}
"""Files of ``deploy/k8s``, and the arguments that make them."""
SECONDS = 60.0
HEAD = "# Rendered from deploy/helm/pointsman by `make charts`: change it there.\n"


class HelmFailed(Exception):
    """Helm is missing, or exited with another code than 0; the message has its output."""


def program() -> str | None:
    """Return the path of Helm: that of deploy/dev/install_programs.sh, else the one in PATH."""
    return shutil.which("helm", path=f"{ROOT / '.build' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}")


def helm(*words: str, cwd: Path = ROOT) -> str:
    """Return what a command of Helm prints. Raises HelmFailed."""
    executable = program()
    if executable is None:
        raise HelmFailed("helm is missing: deploy/dev/install_programs.sh charts")
    done = subprocess.run([executable, *words], cwd=cwd, check=False, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        raise HelmFailed(f"helm {' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def renderings() -> dict[Path, list[str]]:
    """Return the rendered files, each with its arguments of ``helm template``."""
    values = sorted(SNAPSHOTS.glob("*.values.yaml"))
    snapshots = {each.with_name(each.name.replace(".values.yaml", ".yaml")): [f"--values={each}"] for each in values}
    return {K8S / name: arguments for name, arguments in APPLIED.items()} | snapshots


def rendered(arguments: list[str]) -> str:
    """Return what ``helm template`` makes of the chart. Raises HelmFailed."""
    return HEAD + helm("template", "pointsman", str(CHART), "--namespace=pointsman", *arguments)


def main() -> int:
    """Write the files, or compare them."""
    stale = []
    for path, arguments in renderings().items():
        text = rendered(arguments)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    print(f"{'stale' if '--check' in sys.argv else 'written'}: {', '.join(stale) or 'none'}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
