"""Search with coverage for bytes that a codec reads wrongly; by hand, for an hour before a release.

``.venv/bin/pip install atheris && .venv/bin/python -m tests.property.atheris_search http2 --minutes 60``. Hypothesis
has the same checks in each run of the tests; atheris follows branches, and so comes deeper. The corpus starts with
what the checks know (``seeds``) and is kept in ``.build/atheris``, where the input of a failure is written.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

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
    parser.add_argument("--minutes", type=float, required=True)
    given = parser.parse_args()
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


if __name__ == "__main__":
    main()
