"""Count the words that this project avoids, per top-level folder; a folder with more than its ceiling fails.

Read are identifiers (split at ``_`` and capitals), comments, strings and prose. Not counted: a line with ``plain: ok``
and a reason, and what CHANGELOG.md names in backticks.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
CEILINGS = Path(__file__).with_suffix(".txt")
SKIPPED = re.compile(r"_pb2(_grpc)?\.pyi?$|\.(css|bin|log|png)$|deploy/dev/plain_words\.(py|txt)$")

INSTEAD = {
    r"told|tells?|telling|untold": "report, emit, record, notify, pass",
    r"nobody": "no broker, no member, none",
    r"who(so)?ever|whomever": "the caller, any client",
    r"everybody|somebody|anybody": "all brokers, an operator",
    r"anew": "again, re-",
    r"manieth": "nth",
    r"mend(s|ed)?": "fix, repair, recover",
    r"politely|polite leave|take leave|took leave": "gracefully, planned shutdown, unregister",
    r"signs? of life": "heartbeat",
    r"lets? go": "release",
    r"at once": "immediately, at the same time",
    r"so long(?! as)|so many": "for N seconds; N",
    r"of (its|their) own": "its own X, a separate X",
    r"any more|no more(?! than)": "no longer",
    r"goes on|went on": "continue",
    r"(?<!there )is no (?!longer|more|less|fewer|such|way)\w+": "is not a",
    r"in all(?=[.,;:!?)])": "total",
    r"in sight": "observed",
    r"stood still": "stalled, paused",
    r"brought up to date": "updated",
    r"(put|left) aside": "staged, moved, skipped",
    r"held against": "compared with",
    r"ever later": "with backoff",
    r"in vain": "timed out",
    r"by the word of": "according to",
    r"lone": "single",
    r"owed": "pending",
}
ALLOWED = re.compile(
    r"MachineRoom|GO_AWAY|half_life|phase GONE|no longer|last_sign_of_life_at|_?in_all|told_before|[\"']told_(at|by)"
    r"|registrations_at_once"
)
"""Terms of RocketMQ, HTTP/2 and route damping; published columns, JSON keys and metric labels."""


class Hit(NamedTuple):
    """One word in one line."""

    folder: str
    path: str
    line: int
    text: str


def combined() -> re.Pattern[str]:
    """All words at once; a phrase may go over the end of a line and the sign of a comment."""
    # The blank in `(?<!there )` stays: a look-behind has one length.
    parts = [re.sub(r"(?<!there) ", r"[\\s#]+", pattern) for pattern in INSTEAD]
    return re.compile(r"\b(?:" + "|".join(f"(?P<w{n}>{part})" for n, part in enumerate(parts)) + r")\b", re.IGNORECASE)


def git(*arguments: str) -> list[str]:
    """The lines that git prints; none where it fails, as for the commit before the first."""
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=False, capture_output=True, text=True
    ).stdout.splitlines()


def hits() -> Iterator[Hit]:
    """Every word in every file that is, or is about to be, under version control."""
    words, instead = combined(), list(INSTEAD.values())
    for path in git("ls-files", "--cached", "--others", "--exclude-standard"):
        if SKIPPED.search(path) or not (ROOT / path).is_file():
            continue
        text = ALLOWED.sub("", (ROOT / path).read_text(encoding="utf-8"))
        if path == "CHANGELOG.md":
            text = re.sub("`[^`\n]*`", "", text)
        lines = text.splitlines()
        split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text.replace("_", " "))
        for found in words.finditer(split):
            line = split.count("\n", 0, found.start())
            if "plain: ok" not in lines[line]:
                word = " ".join(found[0].replace("#", " ").split())
                better = instead[int((found.lastgroup or "w0")[1:])]
                folder = path.partition("/")[0] if "/" in path else "."
                yield Hit(folder, path, line + 1, f"{path}:{line + 1}: {word} -> {better}")


def changed() -> set[tuple[str, int]]:
    """The lines that the last commit and the work after it added; new files as a whole."""
    lines, path = {(path, n) for path in git("ls-files", "--others", "--exclude-standard") for n in range(10_000)}, ""
    for line in git("diff", "-U0", "HEAD~1"):
        if line.startswith("+++ b/"):
            path = line[6:]
        elif at := re.match(r"@@ \S+ \+(\d+),?(\d*) @@", line):
            lines |= {(path, int(at[1]) + n) for n in range(int(at[2] or 1))}
    return lines


def main() -> int:
    """Compare with the ceilings; exit 1 where one is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lower", action="store_true", help="lower the ceilings to today's counts")
    parser.add_argument("--list", metavar="FOLDER", help="print every word of a folder with its place")
    arguments = parser.parse_args()
    found = list(hits())
    if arguments.list:
        print("\n".join(hit.text for hit in found if hit.folder == arguments.list))
        return 0
    counts = Counter(hit.folder for hit in found)
    ceilings = Counter({name: int(most) for name, most in map(str.split, CEILINGS.read_text().splitlines())})
    if arguments.lower:
        ceilings &= counts
        CEILINGS.write_text("".join(f"{name} {ceilings[name]}\n" for name in sorted(ceilings)))
    over = counts - ceilings
    new = changed() if over else set()
    print("\n".join(hit.text for hit in found if hit.folder in over and (hit.path, hit.line) in new), end="")
    for name in sorted(counts | ceilings):
        if counts[name] != ceilings[name]:
            hint = f"see --list {name}" if name in over else "run it with --lower"
            print(f"\n{name}: {counts[name]} words to avoid, ceiling {ceilings[name]}: {hint}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
