"""systemd's unit files as tests read them: sections of names that may come more than once."""

from __future__ import annotations

import shlex
from pathlib import Path


class UnitFile:
    """One unit; lines that end in a backslash are joined, as systemd does."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._lines: list[tuple[str, str]] = []
        for line in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.startswith(("#", ";")):
                self._lines.append((name.strip(), value.strip()))

    def all(self, name: str) -> list[str]:
        """Every value of a directive, in order."""
        return [value for given, value in self._lines if given == name]

    def one(self, name: str) -> str:
        """The only value of a directive."""
        (value,) = self.all(name)
        return value

    def environment(self) -> dict[str, str]:
        """What Environment= sets."""
        return dict(word.split("=", 1) for line in self.all("Environment") for word in shlex.split(line))

    def command(self, **specifiers: str) -> list[str]:
        """ExecStart as the words that are executed: variables of Environment= filled in, specifiers as given."""
        environment = self.environment()
        words: list[str] = []
        for word in shlex.split(self.one("ExecStart")):
            if word.startswith("$") and word[1:] in environment:
                words += environment[word[1:]].split()  # unquoted, systemd splits it
                continue
            for letter, value in specifiers.items():
                word = word.replace(f"%{letter}", value)  # noqa: PLW2901  # the word as it becomes
            words.append(word.replace("%%", "%").replace("$$", "$"))
        return words
