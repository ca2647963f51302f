"""Find the words that this project avoids, and print what to write in their place; one of them fails the check.

Read are identifiers (split at ``_`` and capitals), comments, strings and prose. A second list applies to what operators
read: log messages, errors, help of metrics and commands. Not counted: a line with ``plain: ok`` and a reason, and what
CHANGELOG.md names in backticks.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SKIPPED = re.compile(r"_pb2(_grpc)?\.pyi?$|\.(binpb|css|bin|db|gz|log|png)$|deploy/dev/plain_words\.py$")

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
    r"MachineRoom|GO_AWAY|half_life|phase GONE|no longer|last_sign_of_life_at|_?in_all|registrations_at_once"
)
"""Terms of RocketMQ, HTTP/2 and route damping; published columns, JSON keys and metric labels."""

SHOWN = re.compile(
    r"\b(?:look(?:s|ed|ing)?(?! ?up|-?ahead)|says?|said|saying|hear[sd]?|believe[sd]?|ask(?:s|ed|ing)?"
    r"|answer(?:s|ed|ing)?|stands?|standing|stood|lives|lived|life(?! ?cycle)|gone|away|keeps|forg[eo]t(?:ten)?|forgets"
    r"|brings?|brought|complain(?:s|ts?)?|news|words?|people|room|troubled?|ill|well|faults?|beats?)\b(?![\[}])"
)
"""Words that no text shown to operators has; a bracket after one makes it a key of the JSON that a help text lists."""
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
METRICS = {"Counter", "Gauge", "Histogram", "Summary"}


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


def hits() -> Iterator[str]:
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
                yield f"{path}:{line + 1}: {word} -> {better}"


def shown(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The strings of a module that operators read, with their lines."""
    for node in ast.walk(tree):
        parts: list[ast.AST] = []
        match node:
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
                parts += node.args[:2] if name in LOG_METHODS else node.args if name in METRICS else []
                parts += [each.value for each in node.keywords if each.arg in {"help", "short_help"}]
            case ast.Raise(exc=ast.expr() as error):
                parts.append(error)
            case ast.Assign(targets=[ast.Name(id="problem" | "message")]):
                parts.append(node.value)
            case ast.FunctionDef(decorator_list=decorators) if "command" in "".join(map(ast.dump, decorators)):
                yield node.body[0].lineno, ast.get_docstring(node) or ""
        for part in parts:
            for each in ast.walk(part):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield each.lineno, each.value


def shown_hits() -> Iterator[str]:
    """Every word of the second list in what the programs show."""
    for path in git("ls-files", "--cached", "--others", "--exclude-standard", "*.py"):
        if path.startswith(("tests/", "deploy/dev/")) or SKIPPED.search(path) or not (ROOT / path).is_file():
            continue
        source = (ROOT / path).read_text(encoding="utf-8")
        lines = source.splitlines()
        for line, text in sorted(set(shown(ast.parse(source)))):
            for found in SHOWN.finditer(text):
                at = line + text.count("\n", 0, found.start())
                if "plain: ok" not in lines[at - 1]:
                    yield f"{path}:{at}: {found[0]} in a text for operators"


def main() -> int:
    """Print every word with its place; exit 1 where there is one."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    found = [*hits(), *shown_hits()]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
