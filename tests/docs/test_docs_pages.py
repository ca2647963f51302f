"""Pages of ``docs/`` against the code: settings, errors, words of the report, the API, metrics; all pages: links."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path

import grpc
import pytest

import pointsman_client
from deploy.dev import settings_pages
from pointsman.group_topics import RETRY_DELAYS_SECONDS
from pointsman.rocketmq.codes import ResponseCode
from pointsman.wire.error_details import ErrorDetails
from pointsman.wire.refusals import Refusal
from pointsman_client import MessageQueue, PointsmanError, Producer, PullConsumer, PushConsumer, errors
from pointsman_client.core import stream_entry as entry
from pointsman_client.core.allocation import STRATEGIES, to_strategy
from pointsman_client.core.retry_rules import MAX_RECONSUME_TIMES, SUSPEND_SECONDS
from pointsman_client.redis_streams import RedisStreamsTransport
from pointsman_ctl.command_line import cli
from pointsman_namesrv.web.status_site import LISTED
from pointsman_report.report import meanings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
REPORT = ROOT / "spark_jobs" / "pointsman_report" / "report"
REFUSALS = [
    ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)
    for folder in ("proto", "namesrv", "broker_agent")
    for path in (ROOT / folder).rglob("*.py")
    if re.search(r"^class .*\bRefus(al|ed)\):", path.read_text(encoding="utf-8"), re.MULTILINE)
]
"""Modules that define refusals."""


def prose(page: str) -> str:
    return re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)


def headings(page: str) -> list[str]:
    found = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return [re.sub(r"`|\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in found]


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, in ``docs/`` those that both MkDocs and GitHub give."""
    made = [to_anchor(each) for each in headings(path.read_text(encoding="utf-8"))]
    if DOCS in path.resolve().parents:
        assert [each for each in made if "--" in each] == [], "MkDocs would join the dashes"
        assert len(set(made)) == len(made), f"{path}: two equal headings"
    return set(made)


def to_anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def links_of(page: str) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


def links() -> Iterator[tuple[str, str]]:
    for name, page in PAGES.items():
        for link in links_of(page):
            assert "://" not in link, f"{name}: {link}: a page links to its own host only"
            yield name, link


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    pages = [*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *(ROOT / "deploy").rglob("*.md")]
    assert len(pages) > len(PAGES) + 10
    wrong = []
    for page in pages:
        for link in links_of(page.read_text(encoding="utf-8")):
            if "://" in link:
                continue
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            if not target.exists():
                wrong.append(f"{page.relative_to(ROOT)}: {link}: no such file")
            elif anchor and anchor not in anchors(target):
                wrong.append(f"{page.relative_to(ROOT)}: {link}: no such heading")
    assert wrong == []


def test_every_page_is_in_the_navigation_and_another_page_links_to_it() -> None:
    assert sorted(re.findall(r"^ +- (?:[\w -]+: )?([\w/-]+\.md)$", SITE, re.MULTILINE)) == sorted(PAGES)
    linked = {((DOCS / name).parent / link.partition("#")[0]).resolve() for name, link in links() if link[0] != "#"}
    assert [name for name in PAGES if name != "index.md" and (DOCS / name).resolve() not in linked] == []


def test_every_page_has_one_title() -> None:
    assert [name for name, page in PAGES.items() if len(re.findall(r"^# ", prose(page), re.MULTILINE)) != 1] == []


@pytest.mark.parametrize("name", settings_pages.pages())
def test_the_settings_are_those_of_the_code(name: str) -> None:
    page = PAGES[f"settings/{name}"]
    fresh = settings_pages.merged(page, settings_pages.pages()[name])
    assert page == fresh, "the page is stale: run `make docs-settings`"


def test_every_setting_is_on_its_page() -> None:
    """The generator itself must not skip one."""
    for constructor in (Producer, PushConsumer, PullConsumer, pointsman_client.NameServerClient, RedisStreamsTransport):
        for option in inspect.signature(constructor).parameters:
            assert f"| `{option}` |" in PAGES["settings/client.md"], option
    for name, file in {"namesrv": "namesrv", "agent": "agent", "report": "report"}.items():
        sample = (ROOT / "deploy" / "config" / f"{file}.example.toml").read_text(encoding="utf-8")
        for setting in re.findall(r"^(\w+) = ", sample, re.MULTILINE):
            assert f"| `{setting}` |" in PAGES[f"settings/{name}.md"], setting


def test_a_page_without_its_marks_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs the two marks"):
        settings_pages.merged("# Settings\n", "")


def first_cells() -> set[str]:
    """The code in the first cell of each row of errors.md."""
    rows = re.findall(r"^\| ([^|]*) \|", PAGES["errors.md"], re.MULTILINE)
    return {code for row in rows for code in re.findall(r"`([^`]+)`", row)}


def test_every_error_of_the_client_is_explained_with_its_code() -> None:
    found = [
        each
        for each in (getattr(pointsman_client, name) for name in pointsman_client.__all__)
        if isinstance(each, type) and issubclass(each, PointsmanError)
    ]
    assert len(found) > 30
    page = PAGES["errors.md"]
    assert [each.__name__ for each in found if f"`{each.__name__}`" not in page or f"`{each.code}`" not in page] == []
    for name, code in re.findall(r"^\| `(\w+Error)`<br>`(\w+)` \|", page, re.MULTILINE):
        assert getattr(pointsman_client, name).code == code


QUEUE = MessageQueue("orders", "home", "broker-a", 3)
REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, "why", ErrorDetails())
ERRORS: tuple[PointsmanError, ...] = (
    errors.SendFailedError(
        "orders",
        [errors.FailedTry("home", "broker-a", "ADDR", 0, errors.BrokerTimeoutError("ADDR", "why"), 1.5)] * 3,
        timed_out=False,
    ),
    errors.NoBrokerUpError("orders", []),
    errors.NoWritableQueueError("orders", "why"),
    errors.QueueUnavailableError(str(QUEUE), "why"),
    errors.OutboxFullError("FILE", 64 * 1024 * 1024),
    errors.OutboxFailedError("FILE", "why"),
    errors.NoReplyError("questions", "ID", 5.0),
    errors.TooManyInFlightError(10_000, 5_000_000),
    errors.BrokerUnreachableError("ADDR", "cannot connect: refused"),
    errors.BrokerTimeoutError("ADDR", "no response within 1.5 s"),
    errors.BrokerRefusedError("ADDR", 16, "why"),
    errors.RequesterGoneError("ADDR", "push reply message fail, channel of <ID> not found."),
    errors.OffsetBeyondEndError("ADDR", "orders:queue:3", offset=20, end=10),
    errors.UnreadableMessageError(
        "ADDR", str(QUEUE), offset=5, problem="its body is compressed with zstd, which needs zstandard"
    ),
    errors.NameServerFailedError("ADDR", grpc.StatusCode.UNAVAILABLE, "why"),
    errors.NameServersUnavailableError([]),
    errors.TopicNotFoundError("orders", addrs=["ns1:9876"], similar="order"),
    errors.ClusterNotFoundError("c1"),
    errors.RequestRejectedError("ADDR", *REFUSED),
    errors.AccessDeniedError("ADDR", grpc.StatusCode.PERMISSION_DENIED, "why", ErrorDetails()),
    errors.OrderTopicConfError("orders", "x", "why"),
    errors.AgentFailedError("ADDR", grpc.StatusCode.UNAVAILABLE, "why"),
    errors.OffsetFileError("FILE", "why"),
    errors.OffsetResetError(str(QUEUE), offset=10, epoch=1),
    errors.LeaseExpiredError(["0A0B0C"]),
    errors.UndecodableMessageError("0A0B0C", "JSONDecodeError: why"),
    errors.GroupModeError("billing", "orders", "why"),
    errors.AllocationError("Machine room is null for consumer id c"),
    errors.InvalidNameError("topic", "a b", "why"),
    errors.InvalidAddressError(
        "name server address 'http://ns1:9876' must be host:port without a scheme, or rocketmq://host:port"
    ),
    errors.InvalidOptionError("poll_jitter", 2, "must be from 0 to 1"),
    errors.InvalidMessageError("body", b"", "must not be empty: brokers refuse it"),
    errors.MessageTooLargeError("orders", 5_000_000, 4 * 1024 * 1024),
)


def test_the_messages_equal_those_of_the_errors() -> None:
    rows = re.findall(r"^\| `(\w+)`<br>`\w+` \| `([^|]+)` \|", PAGES["errors.md"], re.MULTILINE)
    shown = dict(rows)
    assert sorted(shown) == sorted(type(error).__name__ for error in ERRORS)
    for error in ERRORS:
        pattern = ".*".join(map(re.escape, shown[type(error).__name__].split("...")))
        assert re.fullmatch(pattern, str(error), re.DOTALL), f"{pattern} is shown for: {error}"


def test_applications_import_from_these_modules() -> None:
    code = [path.read_text(encoding="utf-8") for path in (ROOT / "client" / "examples").rglob("*.py")]
    code += [*PAGES.values(), (ROOT / "README.md").read_text(), (ROOT / "client" / "README.md").read_text()]
    imported = re.findall(
        r"^ *(?:from|:::) (pointsman_client\b[\w.]*?)(?: import|\.\w+$)", "\n".join(code), re.MULTILINE
    )
    below = {"memory", "message_trace", "opentelemetry", "opentelemetry_metrics", "prometheus"}
    below |= {"redis_streams", "rocketmq", "sync", "testing"}
    assert set(imported) == {"pointsman_client", *(f"pointsman_client.{name}" for name in below)}


def refusals(kind: type[Refusal] = Refusal) -> Iterator[type[Refusal]]:
    for each in kind.__subclasses__():
        yield each
        yield from refusals(each)


def test_every_refusal_of_the_servers_is_explained_with_its_status() -> None:
    for module in REFUSALS:
        importlib.import_module(module)
    found = {each.code: each.status for each in refusals() if hasattr(each, "code") and "tests" not in each.__module__}
    assert len(found) > 15
    page = PAGES["errors.md"]
    table = page[page.index("## Refusals of the servers") : page.index("## pointsmanctl")]
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", table, re.MULTILINE))
    assert rows == found | {"INTERNAL": "INTERNAL"}


def test_every_code_of_pointsmanctl_and_of_rocketmqs_protocol_is_explained() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "client" / "pointsman_ctl").rglob("*.py"))
    codes = re.findall(r'(?:ErrorReport|\.warn|not_there)\([^"]*"([A-Z_]+)"', sources)
    codes += re.findall(r'^    code = "([A-Z_]+)"', sources, re.MULTILINE)
    assert len(codes) > 15
    assert set(codes) - first_cells() == set()
    page = PAGES["errors.md"]
    table = page[page.index("## RocketMQ's protocol") :]
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", table, re.MULTILINE)
    assert {int(number): name for number, name in rows} == {int(code): code.name for code in ResponseCode}


def words_of_the_report() -> Iterator[str]:
    """Titles of sections and columns, classes, causes, kinds of findings."""
    for path in (REPORT / "sections").glob("*.py"):
        titles = re.findall(r'\bsection\(\s*"\w+",\s*"([^"]+)"', path.read_text(encoding="utf-8"))
        yield from titles
    templates = (REPORT / "templates" / "sections.html").read_text(encoding="utf-8")
    for columns in re.findall(r"call\(\w+\) table\([^\[]*\[([^\]]*)\]", templates):
        yield from re.findall(r'"([^"]+)"', columns)
    yield from meanings.WORST_FIRST
    yield from map(meanings.cause_name, meanings.CAUSES)
    findings = (REPORT / "findings.py").read_text(encoding="utf-8")
    for kind in re.findall(r'(?:Finding|yield )\(\s*"([a-z_]+)"', findings):
        yield f"`{kind}`"


def test_every_term_of_the_report_is_explained() -> None:
    words = set(words_of_the_report())
    assert len(words) > 120
    page = " ".join(PAGES["report.md"].split())
    assert sorted(word for word in words if word not in page) == []


def test_every_public_name_of_the_client_is_in_the_reference() -> None:
    reference = "".join(page for name, page in PAGES.items() if name.startswith("api/"))
    named = re.findall(r"^::: [\w.]+\.(\w+)$", reference, re.MULTILINE)
    assert sorted(set(pointsman_client.__all__) - set(named)) == []


def test_the_fields_of_an_entry_in_redis_equal_the_format() -> None:
    fields = re.findall(r"^``(\w+)``", entry.__doc__ or "", re.MULTILINE)
    page = PAGES["redis.md"]
    rows = re.findall(r"^\| ([^|]+) \|", page[page.index("| Field |") :], re.MULTILINE)
    assert sorted(code for row in rows for code in re.findall(r"`(\w+)`", row)) == sorted(fields)


def test_every_strategy_is_named_with_rocketmqs_name() -> None:
    page = PAGES["consumer.md"]
    rows = re.findall(r"^\| `(\w+)\(.*?\)`[^|]* \| `([A-Z_]+)` \|", page[page.index("## Strategies") :], re.MULTILINE)
    made = {name: to_strategy(name, rooms=[]) if name == "MACHINE_ROOM" else to_strategy(name) for _, name in rows}
    assert {name: type(strategy).__name__ for name, strategy in made.items()} == {name: class_ for class_, name in rows}
    assert {type(strategy) for strategy in made.values()} == set(STRATEGIES.values())


def test_the_delays_of_retries_are_those_of_the_code() -> None:
    minutes = [*range(1, 11), 20, 30]
    assert list(RETRY_DELAYS_SECONDS) == [10, 30, *(60 * each for each in minutes), 3600, 7200]
    assert "after 10 s, 30 s, 1 to 10 min, 20 min, 30 min, 1 h, 2 h" in PAGES["consumer.md"]
    assert f"After {MAX_RECONSUME_TIMES} retries" in PAGES["consumer.md"]
    assert f"The queue pauses for {SUSPEND_SECONDS:g} s" in PAGES["consumer.md"]


def test_every_metric_that_is_named_exists() -> None:
    named = set(re.findall(r"\bpointsman_(?:namesrv|agent|client|report)_\w+", PAGES["monitoring.md"]))
    named |= set(re.findall(r"\bpointsman_(?:namesrv|agent|client|report)_\w+", PAGES["operations.md"]))
    assert named
    folders = ("namesrv", "broker_agent", "client", "spark_jobs")
    readmes = "".join((ROOT / folder / "README.md").read_text(encoding="utf-8") for folder in folders)
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "spark_jobs").rglob("*.py"))
    short = {name.removeprefix("pointsman_client_") for name in named}
    assert [
        n for n in sorted(short) if f"`{n}" not in readmes and n.removeprefix("pointsman_report_") not in sources
    ] == []


def test_every_path_of_the_pages_is_named() -> None:
    for path in LISTED:
        assert any(each in PAGES["monitoring.md"] for each in (path, path.replace("TOPIC", "orders"))), path


def test_every_alert_that_is_named_exists() -> None:
    rules = (ROOT / "deploy" / "monitoring" / "prometheus" / "rules.yaml").read_text(encoding="utf-8")
    named = re.findall(r"`(Pointsman[A-Z]\w+)`", PAGES["monitoring.md"])
    assert len(named) > 10
    assert [alert for alert in named if f"alert: {alert}\n" not in rules] == []


def test_the_defaults_of_the_migration_tables_are_true() -> None:
    constructors: tuple[Callable[..., object], ...] = (PushConsumer, PullConsumer, Producer)
    parameters = {name: each for make in constructors for name, each in inspect.signature(make).parameters.items()}
    rows = re.findall(
        r"^\|[^|]*\|[^|]*\| `(\w+)` \| `([^`]+)`", PAGES["migrating-from-rocketmq-client.md"], re.MULTILINE
    )
    assert len(rows) > 20
    shown = {name: str(parameters[name].default) if parameters[name].default != "" else '""' for name, _ in rows}
    # Their close_timeout_seconds differ: the table is about consumers there.
    shown["close_timeout_seconds"] = str(inspect.signature(PushConsumer).parameters["close_timeout_seconds"].default)
    enums = {"message_model": "MessageModel.", "consume_from": "ConsumeFrom."}
    expected = {name: default.removeprefix(enums.get(name, "")) for name, default in rows}
    assert {name: unescape(value) for name, value in shown.items()} == expected


def test_the_commands_named_in_prose_exist() -> None:
    for name, page in PAGES.items():
        for command in re.findall(r"`pointsmanctl(?: --\w+ [^\s`]+)* ([a-z][a-z-]+)", prose(page)):
            assert command in cli.commands, f"{name}: pointsmanctl {command}"
