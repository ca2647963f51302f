"""Access control by caller and method, with credentials as the listeners pass them."""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from pointsman.config import ConfigError
from pointsman.daemon.access import access as access_module
from pointsman.daemon.access.access import (
    ADMINS,
    ANY_ROLE,
    BROKERS,
    CLIENTS,
    Access,
    Author,
    Caller,
    Denied,
    Limit,
    PermissionDenied,
    RateLimited,
    Reason,
    Rule,
    Unauthenticated,
    author,
    check_group,
    check_writes,
)
from pointsman.daemon.access.access_settings import AccessSettings, Grant, Role, check_files
from pointsman.daemon.access.token_file import new_token, read_token_file
from pointsman.daemon.tls.client_certificates import ClientCertificate
from pointsman.manual_clock import ManualClock
from tests.kit.waiting import eventually, running

ADMIN = Grant("admin", "ops")
CLIENT = Grant("client", "app.example")
BROKER = Grant("broker", "broker-a.example", cluster="c1", broker_name="a")
BROWSER = "10.0.0.9 (HTTP)"


def certificate(*names: str) -> ClientCertificate | None:
    return ClientCertificate(b"digest", names=names) if names else None


class Rig:
    """Access with these grants, and a file of tokens."""

    def __init__(self, folder: Path, *grants: Grant, own: tuple[str, str] | None = None, **settings: Any) -> None:
        self.path = folder / "tokens"
        self.lines: dict[str, str] = {}
        self.clock = ManualClock()
        self.registry = CollectorRegistry()
        self.write("# none\n")
        tokens = str(self.path) if grants else ""
        self.access = Access(
            AccessSettings(tokens=tokens, grants=grants, **settings),
            clock=self.clock,
            prefix="test",
            registry=self.registry,
            own=own,
            shown_over_http={"ListTopics": ANY_ROLE},
        )

    def write(self, content: str) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(content, encoding="utf-8")
        fresh.replace(self.path)

    def token(self, name: str) -> str:
        """Make a token and activate it."""
        made = new_token(name)
        self.lines[made.token] = made.line
        self.reload()
        return made.token

    def reload(self) -> None:
        self.write("# tokens\n" + "\n".join(self.lines.values()) + "\n")
        self.access._take(read_token_file(self.path))

    def call(self, rule: Rule = ANY_ROLE, *names: str, token: str = "") -> Caller:
        caller = self.access.admit(rule, certificate(*names), [f"Bearer {token}"] if token else [])
        assert caller is not None
        return caller

    def denied(self, rule: Rule = ANY_ROLE, *names: str, header: str | list[str] = "") -> Denied:
        headers = header if isinstance(header, list) else [header] if header else []
        with pytest.raises(Denied) as caught:
            self.access.admit(rule, certificate(*names), headers)
        return caught.value

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"test_{name}", labels)


# --- open ---------------------------------------------------------------------------------------------------------


def test_without_grants_every_caller_may_call_everything(tmp_path: Path) -> None:
    access = Rig(tmp_path).access
    assert access.is_open
    assert not access.needs_check(ANY_ROLE)
    assert access.admit(ADMINS, None, ()) is None
    assert access.admit(ADMINS, None, ["Bearer nonsense"]) is None
    assert access.connection(None, "10.0.0.1") is None
    assert access.http(None, "ListBrokers", BROWSER) is None
    check_writes(None, "any", "broker")


# --- authentication ---------------------------------------------------------------------------------------------------


def test_a_certificate_is_known_by_any_of_its_names(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ADMIN, CLIENT, BROKER)
    caller = rig.call(CLIENTS, "localhost", "app.example")
    assert (caller.identity, caller.proof, caller.roles) == ("app.example", "certificate", frozenset({Role.CLIENT}))
    assert rig.call(ANY_ROLE, "localhost", "app.example") is caller


def test_a_token_counts_before_a_certificate(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ADMIN, CLIENT)
    token = rig.token("ops")
    assert rig.access.admit(ADMINS, certificate("app.example"), [f"Bearer {token}"]).identity == "ops"  # type: ignore[union-attr]  # is not open
    assert rig.denied(ADMINS, "app.example", header="Bearer x").reason is Reason.UNREADABLE_CREDENTIALS


def test_all_grants_of_an_identity_count_together(tmp_path: Path) -> None:
    rig = Rig(
        tmp_path, BROKER, Grant("broker", BROKER.identity, cluster="c2", broker_name="*"), Grant("client", "both")
    )
    caller = rig.call(BROKERS, BROKER.identity, "both")
    assert caller.roles == {Role.BROKER, Role.CLIENT}
    assert caller.may_write("c1", "a")
    assert caller.may_write("c2", "any")
    assert not caller.may_write("c1", "b")


def test_a_call_without_credentials_is_unauthenticated(tmp_path: Path) -> None:
    denied = Rig(tmp_path, ADMIN).denied()
    assert isinstance(denied, Unauthenticated)
    assert (denied.code, denied.status) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
    assert dict(denied.facts) == {"identity": "''", "method": "", "reason": "no_credentials"}
    assert "authorization: Bearer TOKEN" in str(denied)


def test_a_grant_that_matches_nothing_gives_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ADMIN)
    for denied in (rig.denied(ANY_ROLE, "OPS"), rig.denied(ANY_ROLE, "ops.example")):
        assert isinstance(denied, PermissionDenied)
        assert denied.reason is Reason.NO_GRANT
    assert rig.denied(ANY_ROLE, header=f"Bearer {rig.token('other')}").identity == "other"


def test_a_header_is_one_scheme_one_space_and_one_token(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ADMIN)
    token = rig.token("ops")
    assert rig.call(token=token).identity == "ops"
    assert rig.access.admit(ANY_ROLE, None, [f"bEARER {token}"])
    for header in (
        token,
        f"Bearer  {token}",
        f"Bearer {token} ",
        f"Bearer\t{token}",
        f"Bearer {token}\n",
        f"Bearer {token} {token}",
        f"Bearer{token}",
        f"Token {token}",
        "Bearer ",
        "Bearer",
        " ",
        "Bearer " + "ö" * 43,
        "Bearer " + "x" * 1024 * 1024,
        "Basic " + "x" * 1024 * 1024,
        "Basic öö",
        "Basic " + base64.b64encode(b"\xff:\xff").decode(),
    ):
        assert rig.denied(header=header).reason is Reason.UNREADABLE_CREDENTIALS, header[:80]
    assert rig.denied(header=[f"Bearer {token}"] * 2).reason is Reason.UNREADABLE_CREDENTIALS
    for other in (token.swapcase(), token[:-1], f"{token}x", new_token("ops").token):
        denied = rig.denied(header=f"Bearer {other}")
        assert denied.reason is Reason.UNKNOWN_TOKEN
        assert other not in str(denied) + str(denied.facts)


def test_identities_of_strangers_are_quoted_and_cut(tmp_path: Path) -> None:
    denied = Rig(tmp_path, ADMIN).denied(ANY_ROLE, "\x1b[31m\n" + "é" * 1_000)
    assert "\x1b" not in str(denied)
    assert all(value.isascii() and len(value) <= 80 for value in denied.facts.values())


# --- what it may --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grant", "allowed"),
    [(ADMIN, [ADMINS, CLIENTS, BROKERS, ANY_ROLE]), (CLIENT, [CLIENTS, ANY_ROLE]), (BROKER, [BROKERS, ANY_ROLE])],
)
def test_a_role_may_call_what_its_rule_allows(tmp_path: Path, grant: Grant, allowed: list[Rule]) -> None:
    rig = Rig(tmp_path, grant)
    for rule in (ADMINS, CLIENTS, BROKERS, ANY_ROLE):
        if rule in allowed:
            assert rig.call(rule, grant.identity).identity == grant.identity
        else:
            denied = rig.denied(rule, grant.identity)
            assert (denied.code, denied.reason) == ("PERMISSION_DENIED", Reason.WRONG_ROLE)
            assert "admin" in str(denied)


def test_a_broker_writes_its_own_name_and_an_admin_any(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ADMIN, BROKER)
    check_writes(rig.call(ANY_ROLE, "ops"), "c2", "z")
    broker = rig.call(ANY_ROLE, BROKER.identity)
    check_writes(broker, "c1", "a")
    for cluster, name in (
        ("c1", "A"),
        ("c1", "*"),
        ("c1", ""),
        ("c2", "a"),
        ("", ""),
        ("c1\n", "a"),
        ("x" * 9_999, "a"),
    ):
        with pytest.raises(PermissionDenied, match="may not write broker") as caught:
            check_writes(broker, cluster, name)
        assert caught.value.reason is Reason.OTHER_BROKER
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("grants", "may", "may_not"),
    [
        (
            ("billing",),
            ("billing", "%RETRY%billing", "%DLQ%billing"),
            ("billing2", "bill", "Billing", "%RETRY%audit", ""),
        ),
        (("billing*",), ("billing", "billing-eu", "%DLQ%billing-eu"), ("bil", "audit", "%RETRY%", "")),
        (("billing", "audit*"), ("billing", "audit-1"), ("billing-1",)),
        (("*",), ("billing", "audit", ""), ()),
        (("billing", ""), ("billing", "audit", ""), ()),
    ],
)
def test_a_client_uses_the_groups_of_its_grants(
    tmp_path: Path, grants: tuple[str, ...], may: tuple[str, ...], may_not: tuple[str, ...]
) -> None:
    caller = Rig(tmp_path, *(Grant("client", "app", group=each) for each in grants)).call(CLIENTS, "app")
    for group in may:
        check_group(caller, group)
    for group in may_not:
        with pytest.raises(PermissionDenied, match=r"may not use (group|all groups together)") as caught:
            check_group(caller, group)
        assert caught.value.reason is Reason.OTHER_GROUP


def test_an_admin_and_the_broker_itself_use_every_group(tmp_path: Path) -> None:
    limited = Grant("client", "x", group="billing")
    check_group(None, "audit")
    for more in (Grant("admin", "x"), Grant("broker", "x", cluster="c1", broker_name="a")):
        caller = Rig(tmp_path, limited, more, own=("c1", "a")).call(CLIENTS, "x")
        check_group(caller, "audit")
    other = Rig(tmp_path, limited, Grant("broker", "x", cluster="c1", broker_name="a"), own=("c1", "b"))
    with pytest.raises(PermissionDenied):
        check_group(other.call(CLIENTS, "x"), "audit")


def test_on_an_agent_a_broker_needs_the_grant_of_that_agents_broker(tmp_path: Path) -> None:
    own = Rig(tmp_path, BROKER, own=("c1", "a"))
    assert own.call(BROKERS, BROKER.identity).identity
    other = Rig(tmp_path, BROKER, own=("c1", "b"))
    assert other.denied(BROKERS, BROKER.identity).reason is Reason.NO_GRANT


def test_the_author_of_a_change_is_the_authenticated_caller_and_the_claimed_name_is_kept_next_to_it() -> None:
    ops = Caller("ops", "token")
    assert author("alice", None) == Author("alice")
    assert author("", ops) == author("ops", ops) == Author("ops")
    assert author("alice", ops) == Author("ops", "alice")


# --- addresses ----------------------------------------------------------------------------------------------------


def test_an_address_has_the_roles_of_every_network_that_it_is_in(tmp_path: Path) -> None:
    rig = Rig(
        tmp_path,
        Grant("client", address="10.0.0.0/8"),
        Grant("broker", address="10.1.0.0/16", cluster="c1", broker_name="*"),
        Grant("admin", address="fd00::1"),
    )

    def roles(host: str, *names: str) -> set[str]:
        caller = rig.access.connection(certificate(*names), host)
        assert caller is not None
        return {str(role) for role in caller.roles}

    assert roles("10.2.0.1") == {"client"}
    assert roles("10.1.0.1") == roles("::ffff:10.1.0.1") == {"client", "broker"}
    assert roles("fd00::1") == roles("fd00::1%eth0") == {"admin"}
    assert roles("11.0.0.1") == roles("") == roles("not an address") == set()
    assert rig.denied(ANY_ROLE).reason is Reason.NO_CREDENTIALS, "over gRPC an address does not count"


def test_a_certificate_with_a_grant_counts_before_the_address(tmp_path: Path) -> None:
    rig = Rig(tmp_path, CLIENT, Grant("admin", address="10.0.0.0/8"))
    assert rig.access.connection(certificate("app.example"), "10.0.0.1").identity == "app.example"  # type: ignore[union-attr]  # is not open
    assert rig.access.connection(certificate("stranger"), "10.0.0.1").identity == "10.0.0.0/8"  # type: ignore[union-attr]
    assert rig.access.connection(certificate("stranger"), "11.0.0.1").identity == "stranger"  # type: ignore[union-attr]


# --- HTTP ---------------------------------------------------------------------------------------------------------


def test_a_browser_sends_the_token_as_its_password(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ADMIN, CLIENT)
    token = rig.token("ops")
    for login in (f":{token}", f"ops:{token}", f"anything:{token}"):
        header = "Basic " + base64.b64encode(login.encode()).decode()
        assert rig.access.http(header, "ListBrokers", BROWSER).identity == "ops"  # type: ignore[union-attr]  # is not open
    assert rig.access.http(f"Bearer {token}", "ListBrokers", BROWSER)
    with pytest.raises(Unauthenticated):
        rig.access.http(None, "ListBrokers", BROWSER)
    with pytest.raises(PermissionDenied):
        rig.access.http(f"Bearer {rig.token('app.example')}", "ListBrokers", BROWSER)
    assert rig.access.http(f"Bearer {rig.token('app.example')}", "ListTopics", BROWSER)
    assert rig.sample("denied_calls_total", method="ListBrokers", reason="no_credentials") == 1
    assert rig.sample("denied_calls_total", method="ListBrokers", reason="wrong_role") == 1


# --- limits -------------------------------------------------------------------------------------------------------

REGISTERS = Rule(BROKERS.roles, Limit.REGISTRATIONS)


async def test_an_identity_has_a_limit_to_itself(tmp_path: Path) -> None:
    other = Grant("broker", "broker-b.example", cluster="c1", broker_name="b")
    rig = Rig(tmp_path, BROKER, other, registrations_per_second=0.5, registrations_burst=2)
    for _ in range(2):
        rig.call(REGISTERS, BROKER.identity)
    denied = rig.denied(REGISTERS, BROKER.identity)
    assert isinstance(denied, RateLimited)
    assert (denied.status, denied.facts["retry_after_seconds"]) == ("RESOURCE_EXHAUSTED", "2.000")
    assert "retry after 2.0 s" in str(denied)
    rig.call(REGISTERS, other.identity)
    rig.call(BROKERS, BROKER.identity)
    await rig.clock.advance(2.0)
    rig.call(REGISTERS, BROKER.identity)


def test_without_authentication_the_limit_is_that_of_the_node(tmp_path: Path) -> None:
    rig = Rig(tmp_path, admin_calls_burst=2)
    assert rig.access.needs_check(ADMINS)
    assert not rig.access.needs_check(BROKERS)
    for _ in range(2):
        rig.access.admit(ADMINS, None, ())
    assert "of all callers together" in str(rig.denied(ADMINS))


def test_a_limit_of_0_is_none(tmp_path: Path) -> None:
    rig = Rig(tmp_path, admin_calls_per_second=0.0, admin_calls_burst=1)
    assert not rig.access.needs_check(ADMINS)
    for _ in range(100):
        rig.access.admit(ADMINS, None, ())


def test_the_defaults_allow_a_restart_of_10_000_brokers(tmp_path: Path) -> None:
    shared = Grant("broker", "fleet", cluster="c1", broker_name="*")
    rig = Rig(tmp_path, shared)
    for _ in range(10_000):
        rig.call(REGISTERS, "fleet")


# --- the log ------------------------------------------------------------------------------------------------------


def test_a_denied_call_is_counted_and_logged_and_a_flood_logged_in_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(tmp_path, ADMIN)
    caplog.set_level(logging.WARNING)
    denied = rig.denied(ADMINS, "stranger")
    rig.access.note(denied, "SetGuard", "10.0.0.7:1234")
    [record] = caplog.records
    facts: dict[str, object] = record.facts  # type: ignore[attr-defined]  # of ours
    assert {name: facts[name] for name in ("identity", "method", "peer", "reason")} == {
        "identity": "stranger",
        "method": "SetGuard",
        "peer": "10.0.0.7:1234",
        "reason": "no_grant",
    }
    assert denied.facts["method"] == "SetGuard"
    for _ in range(5_000):
        rig.access.note(denied, "SetGuard", "10.0.0.7:1234")
    assert len(caplog.records) == access_module.LOGGED_BURST
    rig.clock.now += 60.0
    rig.access.note(denied, "SetGuard", "10.0.0.7:1234")
    assert caplog.records[-1].facts["not_logged"] == 5_001 - access_module.LOGGED_BURST  # type: ignore[attr-defined]
    assert rig.sample("denied_calls_total", method="SetGuard", reason="no_grant") == 5_002


# --- the file -----------------------------------------------------------------------------------------------------


async def test_the_file_is_read_again_by_itself(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ADMIN)
    async with running(rig.access.follow()):
        made = new_token("ops")
        rig.write(made.line)
        await eventually(lambda: rig.sample("access_tokens") == 1, clock=rig.clock, step=1.0)
        assert rig.call(token=made.token).identity == "ops"


@pytest.mark.parametrize("content", ["", "ops", "ops sha256:abc\n", "\x00"])
async def test_invalid_content_leaves_the_last_valid_one_in_force(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(tmp_path, ADMIN)
    token = rig.token("ops")
    async with running(rig.access.follow()):
        rig.write(content)
        await eventually(lambda: rig.sample("access_tokens_file_invalid") == 1, clock=rig.clock, step=1.0)
        await rig.clock.advance(60.0)
        assert rig.call(token=token).identity == "ops"
        assert [record.levelname for record in caplog.records] == ["ERROR"], "logged once"
        rig.path.unlink()
        await eventually(lambda: len(caplog.records) == 2, clock=rig.clock, step=1.0)
        assert rig.call(token=token).identity == "ops"
        rig.write("# none\n")
        await eventually(lambda: rig.sample("access_tokens_file_invalid") == 0, clock=rig.clock, step=1.0)
        assert rig.denied(header=f"Bearer {token}").reason is Reason.UNKNOWN_TOKEN


def test_a_removed_token_is_revoked_and_the_other_of_its_name_stays(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ADMIN)
    revoked: list[Caller] = []
    rig.access.on_revoked(revoked.extend)
    old, new = rig.token("ops"), rig.token("ops")
    callers = [rig.call(token=token) for token in (old, new)]
    del rig.lines[old]
    rig.reload()
    assert revoked == [callers[0]]
    assert [caller.is_revoked for caller in callers] == [True, False]
    assert rig.denied(header=f"Bearer {old}").reason is Reason.UNKNOWN_TOKEN
    assert rig.call(token=new) is callers[1]


def test_a_token_that_gets_another_name_is_another_caller(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ADMIN, Grant("client", "app"))
    token = rig.token("ops")
    before = rig.call(token=token)
    rig.lines[token] = rig.lines[token].replace("ops ", "app ")
    rig.reload()
    assert before.is_revoked
    assert rig.call(token=token).roles == {Role.CLIENT}


def test_a_start_with_an_unusable_file_fails(tmp_path: Path) -> None:
    settings = AccessSettings(tokens=str(tmp_path / "missing"), grants=(ADMIN,))
    with pytest.raises(ConfigError, match="cannot be read"):
        Access(settings, clock=ManualClock(), prefix="test", registry=CollectorRegistry())
    with pytest.raises(ConfigError, match=r"x: access.tokens: .*missing: cannot be read"):
        check_files(settings, where="x")


def test_check_warns_of_tokens_without_a_grant_and_of_loose_permissions(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ADMIN)
    rig.token("stray")
    rig.path.chmod(0o644)
    without, loose = check_files(rig.access.settings, where="x")
    assert without == "x: access.tokens: token 'stray' has no grant: its calls are denied"
    assert "can read it" in loose


# --- settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grant", "problem"),
    [
        (Grant("owner", "x"), "role: 'owner' is none of broker, client, viewer, admin"),
        (Grant("admin"), "exactly one of them must be given"),
        (Grant("admin", "x", address="10.0.0.0/8"), "exactly one of them must be given"),
        (Grant("admin", "x\n"), "identity: "),
        (Grant("admin", address="10.0.0.1/8"), "is not a network such as 10.0.0.0/24"),
        (Grant("broker", "x"), "cluster: ''"),
        (Grant("broker", "x", cluster="c1", broker_name="a b"), "broker_name: 'a b'"),
        (Grant("broker", "x", cluster="*", broker_name="*"), "cluster: '*'"),
        (Grant("client", "x", cluster="c1"), "remove cluster and broker_name"),
        (Grant("client", "x", group="b*c"), "group: 'b*c'"),
        (Grant("admin", "x", group="billing"), "group: 'billing' has no effect for role 'admin'"),
    ],
)
def test_a_grant_that_cannot_be_is_named(grant: Grant, problem: str) -> None:
    assert problem in "\n".join(grant.problems())


def test_sound_grants_have_no_problem() -> None:
    more = [Grant("client", "x", group=group) for group in ("billing", "billing*", "*")]
    for grant in (ADMIN, CLIENT, BROKER, Grant("admin", "spiffe://x/ops"), Grant("client", address="10.0.0.7"), *more):
        assert list(grant.problems()) == []


def test_grants_need_an_authenticator_and_tokens_need_grants() -> None:
    grants = AccessSettings(grants=(ADMIN,))
    assert "need an authenticator" in "".join(grants.unauthenticated(has_certificates=False, has_remoting=True))
    assert list(grants.unauthenticated(has_certificates=True, has_remoting=False)) == []
    assert "has no effect without [[access.grants]]" in "".join(AccessSettings(tokens="x").problems())
    assert "grants[1]: is a duplicate of grants[0]" in list(
        AccessSettings(tokens="x", grants=(ADMIN, ADMIN)).problems()
    )


def test_an_address_without_its_port_has_no_effect() -> None:
    settings = AccessSettings(tokens="x", grants=(Grant("client", address="10.0.0.0/8"),))
    assert "has no effect" in "".join(settings.unauthenticated(has_certificates=False, has_remoting=False))
