"""A file of tokens of a server under test."""

from __future__ import annotations

from pathlib import Path

from pointsman.daemon.access.access_settings import AccessSettings, Grant
from pointsman.daemon.access.token_file import new_token


class TokenFolder:
    """Tokens by name."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.path = folder / "tokens"
        self.tokens: dict[str, str] = {}
        self._lines: dict[str, str] = {}
        self.add(*names)

    def add(self, *names: str) -> None:
        for name in names:
            made = new_token(name)
            self.tokens[name], self._lines[name] = made.token, made.line
        self._write()

    def remove(self, name: str) -> None:
        """Remove a name from the file; its token can still be sent."""
        del self._lines[name]
        self._write()

    def _write(self) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text("\n".join(["# tokens", *self._lines.values(), ""]), encoding="utf-8")
        fresh.replace(self.path)

    def settings(self, *grants: Grant, **more: float) -> AccessSettings:
        return AccessSettings(tokens=str(self.path), grants=grants, **more)  # type: ignore[arg-type]  # numbers

    def header(self, name: str) -> tuple[tuple[str, str]]:
        """The metadata that proves a name."""
        return (("authorization", f"Bearer {self.tokens[name]}"),)

    @staticmethod
    def open(**settings: float) -> AccessSettings:
        """Without grants."""
        return AccessSettings(**settings)  # type: ignore[arg-type]  # numbers
