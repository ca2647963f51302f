"""Search with coverage for bytes that a codec reads wrongly; by hand, for an hour before a release.

``.venv/bin/pip install atheris && .venv/bin/python -m tests.property.atheris_search http2 --minutes 60``. Hypothesis
has the same checks in each run of the tests; atheris follows branches, and so comes deeper. The corpus starts with
what the checks know (``seeds``) and is kept in ``.build/atheris``, where the input of a failure is written.
``http2 --keep`` writes the short inputs of the corpus, as few as reach the same branches, to ``tests/fixtures``, from
where each run of the tests reads them.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

WORK = Path(__file__).parents[2] / ".build" / "atheris"
CODECS = {
    "remoting": (["pointsman.rocketmq"], "tests.property.codec_checks"),
    "http2": (["pointsman.http2", "pointsman.daemon.lane"], "tests.property.http2_checks"),
}
"""The packages whose branches are followed, and the module with the checks."""
KEPT_BYTES = 256
"""The longest input that is kept for the tests."""


def main() -> None:
    """Search until the time is over, or something fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("codec", choices=CODECS)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--minutes", type=float, help="how long to search")
    action.add_argument("--merge", type=Path, metavar="FOLDER", help="copy the inputs that are needed for all branches")
    action.add_argument("--keep", action="store_true", help="write those that are short to tests/fixtures (http2 only)")
    given = parser.parse_args()
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
    options = ["-max_len=8192", "-timeout=20", "-rss_limit_mb=1024", f"-artifact_prefix={work}/"]
    if given.merge is not None:
        run = ["-merge=1", str(given.merge), str(corpus)]
    else:
        run = [f"-max_total_time={60 * given.minutes:.0f}", str(corpus)]
    atheris.Setup([sys.argv[0], *options, *run], checks.check)
    atheris.Fuzz()


def _keep(codec: str) -> None:
    found = importlib.import_module(CODECS[codec][1]).FOUND
    with tempfile.TemporaryDirectory() as merged:
        # In another process: atheris ends the one that it runs in.
        subprocess.run([sys.executable, "-m", "tests.property.atheris_search", codec, "--merge", merged], check=True)
        inputs = sorted({each.read_bytes() for each in Path(merged).iterdir()})
    short = [base64.b64encode(each).decode() for each in inputs if each and len(each) <= KEPT_BYTES]
    found.write_text("".join(f"{each}\n" for each in short), encoding="ascii")
    print(f"{len(short)} of {len(inputs)} inputs in {found}")


if __name__ == "__main__":
    main()
