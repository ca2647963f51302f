"""Extensions of griffe for the API pages: RST in docstrings, and constructors that take options by name."""

from __future__ import annotations

import re
from typing import Any

import griffe

TAKES_OPTIONS = re.compile(r"takes_options\((\w+)\)")


class RstRoles(griffe.Extension):
    """Turns ``:class:`~a.b.C``` into code, and ``::`` before an indented block into nothing."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:  # noqa: ANN401  griffe's own types
        """Rewrite the docstring of anything that was loaded."""
        if obj.docstring is not None:
            text = re.sub(r":\w+:`~?(?:[a-z_]+\.)*(\w[^`]*)`", r"`\1`", obj.docstring.value)
            obj.docstring.value = re.sub(r"(?m)^(.*\S)?::$", lambda line: f"{line[1]}:" if line[1] else "", text)


class TakenOptions(griffe.Extension):
    """Shows the fields of ``X`` as the parameters of a constructor under ``@takes_options(X)``."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:  # noqa: ANN401  griffe's own types
        """Replace the parameters of each such constructor."""
        # It runs after ours otherwise, and the options are dataclasses.
        griffe.DataclassesExtension().on_package(pkg=pkg)
        self._replace(pkg)

    def _replace(self, module: griffe.Module) -> None:
        for inner in module.modules.values():
            if not inner.is_alias:
                self._replace(inner)
        for kind in module.classes.values():
            init = None if kind.is_alias else kind.members.get("__init__")
            if isinstance(init, griffe.Function):
                for decorator in init.decorators:
                    if named := TAKES_OPTIONS.fullmatch(str(decorator.value)):
                        options = module.modules_collection[module.resolve(named[1])]
                        init.parameters = griffe.Parameters(*sorted(options.parameters, key=_place))


def _place(parameter: griffe.Parameter) -> int:
    """The instance, then what a field with ``kw_only=False`` is, which griffe does not see, then keywords."""
    if parameter.name == "name_servers":
        parameter.kind = griffe.ParameterKind.positional_or_keyword
    return ("self", "name_servers", parameter.name).index(parameter.name)
