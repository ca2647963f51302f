"""Search with coverage for bytes that RocketMQ's codec reads wrongly; by hand, for an hour before a release.

``.venv/bin/pip install atheris && .venv/bin/python -m tests.property.atheris_remoting --minutes 60``. Hypothesis has
the same codec in each run of the tests; atheris follows branches, and so comes deeper. The corpus starts with the
recorded frames and is kept in ``.build/atheris``; a failure is printed, and its input is written there.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

WORK = Path(__file__).parents[2] / ".build" / "atheris"


def main() -> None:
    """Search until the time is over, or something fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, required=True)
    seconds = 60 * parser.parse_args().minutes
    atheris = importlib.import_module("atheris")  # no dependency of ours, and without types
    with atheris.instrument_imports(include=["pointsman.rocketmq"]):
        from tests.property.codec_checks import check, seeds  # noqa: PLC0415  # what is imported here is instrumented
    corpus = WORK / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = ["-max_len=8192", "-timeout=20", "-rss_limit_mb=1024", f"-max_total_time={seconds:.0f}"]
    atheris.Setup([sys.argv[0], str(corpus), f"-artifact_prefix={WORK}/", *options], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
