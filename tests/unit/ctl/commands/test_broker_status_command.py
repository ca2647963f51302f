"""How numbers of bytes are shown."""

from __future__ import annotations

import pytest

from pointsman_ctl.commands.broker_status_command import bytes_text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1_023, "1023 B"), (1_024, "1.0 KiB"), (1_610_612_736, "1.5 GiB"), (2**60, "1048576.0 TiB")],
)
def test_bytes_are_shown_in_the_unit_that_fits(count: int, text: str) -> None:
    assert bytes_text(count) == text
