"""The link to one broker: a connection that is opened when it is first needed, and again after it broke."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pointsman.remoting.frames import Command
from pointsman_client.transports.rocketmq.rocketmq_options import RocketmqOptions


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to a request of the broker."""

    code: int = 0
    remark: str | None = None
    body: bytes = b""


RequestHandler = Callable[[Command, bytes, Callable[[Reply], None]], None]
"""Called with each request of the broker: header, body, and a function that sends the reply, now or later.

Runs in the event loop and must not block. For a one-way request the reply is dropped.
"""


@dataclass(frozen=True, slots=True)
class Response:
    """A broker's response to a request."""

    command: Command
    body: bytes


class Link:
    """One connection at a time to the broker at ``addr``. Brokers count each link as a separate client."""

    def __init__(
        self,
        addr: str,
        options: RocketmqOptions,
        *,
        on_request: RequestHandler | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """``on_request``: without it the reply to every request of the broker is REQUEST_CODE_NOT_SUPPORTED (3).

        ``on_lost``: called when an open connection ended without :meth:`close` or :meth:`retire`.
        """
        self.addr = addr
        self._options = options
        self._on_request = on_request
        self._on_lost = on_lost
        self.version = 0
        """Of the broker, from its last response (479 is 5.3.3); 0 before the first one."""

    async def request(
        self, code: int, ext: Mapping[str, str], body: bytes = b"", *, timeout_seconds: float, is_read: bool = False
    ) -> Response:
        """Send a request and return its response, regardless of its code.

        ``is_read``: it changes nothing, so it is sent again when a connection that was open before breaks.
        Raises :class:`BrokerUnreachableError` when nothing was written (or ``is_read``), :class:`BrokerTimeoutError`
        when no response came, :class:`ClientClosedError`.
        """
        raise NotImplementedError

    async def send_one_way(
        self, code: int, ext: Mapping[str, str], body: bytes = b"", *, timeout_seconds: float
    ) -> None:
        """Send a one-way request. Raises :class:`BrokerUnreachableError`, :class:`ClientClosedError`."""
        raise NotImplementedError

    def retire(self) -> None:
        """Close the connection when all its requests have ended; the next request opens another."""

    async def close(self) -> None:
        """End the connection and all calls, for good."""
