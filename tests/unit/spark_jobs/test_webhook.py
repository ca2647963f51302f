"""Posts to a webhook: a real HTTP server on loopback; pauses and time are injected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from pointsman_report import webhook
from pointsman_report.webhook import Limits, PostError, place, url_problem
from tests.kit.report.webhook_receiver import CLOSES, DRIPS, HANGS, SECRET, Receiver, receiving

BODY = b'{"text": "hello"}'


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@dataclass
class Time:
    """A clock that only pauses move."""

    now: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def post(url: str, time: Time | None = None, limits: Limits | None = None) -> int:
    time = time or Time()
    return webhook.post(url, BODY, limits=limits, clock=time.clock, sleep=time.sleep)


def test_a_message_is_posted_once_as_json(receiver: Receiver) -> None:
    assert post(receiver.url) == 1
    assert receiver.received == [(f"/hooks/{SECRET}?token={SECRET}", "application/json", BODY)]


@pytest.mark.parametrize("status", [500, 503, 408, 429, CLOSES])
def test_a_failure_that_may_pass_is_retried_after_growing_pauses(receiver: Receiver, status: int) -> None:
    receiver.statuses = [status, status, 204]
    time = Time()

    assert post(receiver.url, time) == 3
    assert time.pauses == [1.0, 4.0]
    assert [body for _, _, body in receiver.received] == [BODY] * 3


def test_after_three_attempts_the_last_problem_is_reported(receiver: Receiver) -> None:
    receiver.statuses = [502, 500, 503]

    with pytest.raises(PostError) as raised:
        post(receiver.url)
    assert str(raised.value) == f"{receiver.place}: HTTP status 503, attempts: 3"


@pytest.mark.parametrize("status", [400, 404, 410])
def test_another_client_error_is_not_retried(receiver: Receiver, status: int) -> None:
    receiver.statuses = [status]

    with pytest.raises(PostError, match=f"HTTP status {status}, attempts: 1$"):
        post(receiver.url)
    assert len(receiver.received) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(receiver: Receiver, status: int) -> None:
    receiver.statuses = [status, 200]

    with pytest.raises(PostError, match=rf"HTTP status {status} \(redirects are not followed\), attempts: 1$"):
        post(receiver.url)
    assert len(receiver.received) == 1


def test_an_attempt_without_a_response_ends_and_is_retried(receiver: Receiver) -> None:
    receiver.statuses = [HANGS, 200]

    assert post(receiver.url, limits=Limits(attempt_seconds=0.2)) == 2
    receiver.statuses = [HANGS]
    with pytest.raises(PostError, match=r"no response within 0.2 s, attempts: 1$"):
        post(receiver.url, limits=Limits(attempts=1, attempt_seconds=0.2))


def test_an_attempt_whose_response_never_ends_is_given_up(receiver: Receiver) -> None:
    receiver.statuses = [DRIPS]

    with pytest.raises(PostError, match=r"no response within 0.2 s, attempts: 1$"):
        post(receiver.url, limits=Limits(attempts=1, attempt_seconds=0.2))


def test_no_attempt_begins_after_the_deadline(receiver: Receiver) -> None:
    receiver.statuses = [500]
    time = Time()

    with pytest.raises(PostError, match=r"attempts: 2$"):
        post(receiver.url, time, Limits(deadline_seconds=5.0))
    assert time.pauses == [1.0]


def test_the_last_attempt_gets_what_remains_of_the_deadline(receiver: Receiver) -> None:
    receiver.statuses = [500, HANGS]

    with pytest.raises(PostError, match=r"no response within 0.25 s, attempts: 2$"):
        post(receiver.url, limits=Limits(attempts=2, deadline_seconds=1.25))


@pytest.mark.parametrize("statuses", [[404], [500], [302], [CLOSES], [HANGS]])
def test_an_error_names_no_path_and_no_query(receiver: Receiver, statuses: list[int]) -> None:
    receiver.statuses = statuses

    with pytest.raises(PostError) as raised:
        post(receiver.url, limits=Limits(attempt_seconds=0.1))
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("host", ["127.0.0.1:1", ".invalid", "no-such-host.invalid"])
def test_a_host_that_cannot_be_reached_is_an_error(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(PostError, match=f"^http://{host}: .*, attempts: 3$") as raised:
        post(f"http://{host}/{SECRET}")
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://chat.example.com/hooks/x?a=b", None),
        ("http://[::1]:8065/hooks/x", None),
        ("file:///etc/passwd", "is not a URL such as"),
        ("ftp://chat.example.com/x", "is not a URL such as"),
        ("chat.example.com/hooks", "is not a URL such as"),
        ("https:///hooks", "is not a URL such as"),
        ("https://chat.example.com:99999/x", "is not a URL such as"),
        ("https://[::1/x", "is not a URL such as"),
        ("https://chat.example.com/a b", "contains spaces"),
        ("https://chat.example.com/a\nb", "contains spaces"),
        ("https://chat.example.com/\N{LATIN SMALL LETTER E WITH ACUTE}", "not ASCII"),
        ("https://user:word@chat.example.com/x", "contains a user name"),
    ],
)
def test_only_an_http_url_can_be_used(url: str, problem: str | None) -> None:
    found = url_problem(url)
    assert (found is None) == (problem is None)
    assert (problem or "") in (found or "")


def test_the_place_is_the_scheme_and_the_host() -> None:
    assert place(f"https://chat.example.com:8065/hooks/{SECRET}?{SECRET}") == "https://chat.example.com:8065"
