"""The post of the summary after a run."""

from __future__ import annotations

import pytest

from pointsman_report import webhook
from pointsman_report.commands.computing import notify

URL = "https://chat.example.com/hooks/secret"


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (webhook.PostError("https://chat.example.com: HTTP status 404, attempts: 1"), "HTTP status 404, attempts: 1"),
        (KeyboardInterrupt(), "interrupted"),
    ],
    ids=["refused", "interrupt"],
)
def test_a_post_that_fails_is_one_line_on_standard_error(
    fault: BaseException, problem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def post(_: str, __: bytes) -> int:
        raise fault

    monkeypatch.setattr(webhook, "post", post)
    logged: list[str] = []

    notify(URL, b"{}", log=logged.append)

    assert logged == []
    assert capsys.readouterr().err == (
        f"pointsman-report: the summary was not posted to https://chat.example.com: {problem}; the report is complete\n"
    )


def test_a_post_that_succeeds_is_one_progress_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(webhook, "post", lambda _, __: 2)
    logged: list[str] = []

    notify(URL, b"{}", log=logged.append)

    assert logged == ["          summary posted to https://chat.example.com, attempts: 2"]
    assert capsys.readouterr().err == ""
