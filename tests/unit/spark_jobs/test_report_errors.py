"""How an error becomes one line."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pointsman_report.report_errors import one_line


def java(name: str, message: str | None, cause: Any = None) -> Any:
    kind = SimpleNamespace(getSimpleName=lambda: name)
    return SimpleNamespace(getClass=lambda: kind, getMessage=lambda: message, getCause=lambda: cause)


class JavaError(Exception):
    def __init__(self, java_exception: Any) -> None:
        super().__init__("An error occurred while calling o65.parquet.\n: org.apache.spark...")
        self.java_exception = java_exception


def test_a_java_exception_is_shown_by_its_root_cause() -> None:
    cause = java("IOException", "disk full\nat ...", java("Silent", None))

    assert one_line(JavaError(java("SparkException", "Job aborted", cause))) == "IOException: disk full"


def test_a_python_exception_is_shown_by_its_first_line() -> None:
    assert one_line(ValueError("one\ntwo")) == "ValueError: one"
    assert one_line(ValueError()) == "ValueError: no details"
