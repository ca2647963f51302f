"""Search with coverage for bytes that a codec reads wrongly; by hand, for an hour before a release.

``.venv/bin/pip install atheris && .venv/bin/python -m tests.property.atheris_search http2 --minutes 60``. Hypothesis
has the same checks in each run of the tests; atheris follows branches, and so comes deeper. The corpus starts with
what the checks know (``seeds``) and is kept in ``.build/atheris``, where the input of a failure is written.
``http2 --keep`` writes those that reach branches which shorter ones do not to ``tests/fixtures``, from where each run
of the tests reads them.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import sys
from pathlib import Path

import coverage

WORK = Path(__file__).parents[2] / ".build" / "atheris"
CODECS = {
    "remoting": (["pointsman.rocketmq"], "tests.property.codec_checks"),
    "http2": (["pointsman.http2", "pointsman.daemon.lane"], "tests.property.http2_checks"),
}
"""The packages whose branches are followed, and the module with the checks."""


def main() -> None:
    """Search until the time is over, or something fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("codec", choices=CODECS)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--minutes", type=float, help="how long to search")
    action.add_argument("--keep", action="store_true", help="write what the corpus has found to tests/fixtures")
    given = parser.parse_args()
    if given.keep and given.codec != "http2":
        parser.error("the tests read no inputs of this codec")
    if given.keep:
        _keep(given.codec)
        return
    packages, module = CODECS[given.codec]
    atheris = importlib.import_module("atheris")  # no dependency of ours, and without types
    with atheris.instrument_imports(include=packages):
        checks = importlib.import_module(module)  # what is imported here is instrumented
    work = WORK / given.codec
    corpus = work / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(checks.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = ["-max_len=8192", "-timeout=20", "-rss_limit_mb=1024", f"-max_total_time={60 * given.minutes:.0f}"]
    atheris.Setup([sys.argv[0], str(corpus), f"-artifact_prefix={work}/", *options], checks.check)
    atheris.Fuzz()


def _keep(codec: str) -> None:
    """Write the inputs of the corpus that reach a branch which no shorter one does."""
    packages, module = CODECS[codec]
    checks = importlib.import_module(module)
    files = [f"*/{each.replace('.', '/')}/*" for each in packages]
    inputs = sorted(
        {each.read_bytes() for each in (WORK / codec / "corpus").iterdir()}, key=lambda each: (len(each), each)
    )
    reached: set[tuple[str, int, int]] = set()
    kept = []
    for each in inputs:
        measured = coverage.Coverage(data_file=None, branch=True, include=files)
        with measured.collect():
            checks.check(each)
        data = measured.get_data()
        arcs = {(file, *arc) for file in data.measured_files() for arc in data.arcs(file) or ()}
        if not arcs <= reached:
            reached |= arcs
            kept.append(base64.b64encode(each).decode())
    checks.FOUND.write_text("".join(f"{each}\n" for each in kept), encoding="ascii")
    print(f"{len(kept)} of {len(inputs)} inputs in {checks.FOUND}")


if __name__ == "__main__":
    main()
