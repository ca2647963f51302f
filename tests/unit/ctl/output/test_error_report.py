"""Texts of the channel opener name settings; in this program they name options."""

from __future__ import annotations

import grpc
import pytest

from pointsman.wire.channel_opener import explain_connection_failure
from pointsman_client import NameServerFailedError
from pointsman_ctl.command_line import cli
from pointsman_ctl.output.error_report import OPTION_OF_SETTING, failure_text


@pytest.mark.parametrize(
    ("cause", "option"),
    [
        ("failed to connect to all addresses: Socket closed", "give --tls-ca, and --tls-certificate and --tls-key"),
        ("self signed certificate", "check --tls-ca"),
        ("CERTIFICATE_VERIFY_FAILED", "check --tls-ca"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", "check --tls-certificate and --tls-key"),
        ("neither UDS or TCP loopback", "give --tls-ca"),
        ("Hostname mismatch", "or give --tls-server-name"),
    ],
)
def test_a_failed_handshake_names_the_option_of_this_program(cause: str, option: str) -> None:
    failure = NameServerFailedError("ns1:9876", grpc.StatusCode.UNAVAILABLE, explain_connection_failure(cause))
    text = failure_text(failure)
    assert option in text
    assert not any(setting in text for setting in OPTION_OF_SETTING)


def test_a_server_that_sends_the_ca_that_signed_it_is_not_called_self_signed() -> None:
    cause = "CERTIFICATE_VERIFY_FAILED: self signed certificate in certificate chain"
    assert "not signed by a trusted CA" in explain_connection_failure(cause)


def test_the_options_that_are_named_exist() -> None:
    options = {name for param in cli.params for name in param.opts}
    named = {word for text in OPTION_OF_SETTING.values() for word in text.replace(",", "").split() if word[:2] == "--"}
    assert named <= options


def test_what_an_observer_says_of_a_name_server_is_not_taken_for_its_own_connection() -> None:
    said = "the observer has not watched mq1:9876 for 3 s: cannot connect: [Errno 111] Connection refused"
    failure = NameServerFailedError("observe://o:9879/mq1:9876", grpc.StatusCode.UNAVAILABLE, said)
    assert failure_text(failure) == said
    unreachable = NameServerFailedError("observe://o:9879/mq1:9876", grpc.StatusCode.UNAVAILABLE, "Connection refused")
    assert failure_text(unreachable) == "connection refused"
