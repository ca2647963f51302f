"""A hook of MkDocs: links of ``docs/`` to files outside of it work in the sources; on the site they are plain paths."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:  # noqa: ANN401  MkDocs' own type
    """Replace each link that leaves ``docs/`` by its text and the path from the top of the sources."""
    folder = PurePosixPath(page.file.src_uri).parent

    def to_path(link: re.Match[str]) -> str:
        text, target = link.groups()
        ups = target.count("../")
        if ups <= len(folder.parts):
            return link[0]
        path = target.replace("../", "")
        return f"`{path}`" if text in (path, f"`{path}`") else f"{text} (`{path}` in the sources)"

    return OUTSIDE.sub(to_path, markdown)
