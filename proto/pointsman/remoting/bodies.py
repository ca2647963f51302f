"""Parser for the bodies of a RocketMQ name server's responses. No I/O."""

from __future__ import annotations

import json
import re

_TEXT_OR_BARE_KEY = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")|(?<=[{,])(-?\w+)(?=:)')


def read_json(body: bytes) -> object:
    """Parse JSON as RocketMQ's own name server writes it: number keys without quotes (fastjson).

    Raises ValueError.
    """
    try:
        try:
            return json.loads(body)
        except json.JSONDecodeError:
            return json.loads(_TEXT_OR_BARE_KEY.sub(lambda found: found[1] or b'"%b"' % found[2], body))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
