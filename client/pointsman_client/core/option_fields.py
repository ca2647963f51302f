"""Options: each is declared once, as a field of a frozen dataclass, and passed as a keyword to a constructor."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
SelfT = TypeVar("SelfT")
OptionsT = TypeVar("OptionsT")


def takes_options(
    make: Callable[P, OptionsT],
) -> Callable[[Callable[[SelfT, OptionsT], None]], Callable[Concatenate[SelfT, P], None]]:
    """Make a constructor of one options object accept the fields of that object as its arguments.

    Editors, type checkers and :func:`inspect.signature` see every option with its type and default. A TypeError for
    wrong arguments names the class that was called.
    """
    names = list(inspect.signature(make).parameters)

    def decorate(init: Callable[[SelfT, OptionsT], None]) -> Callable[Concatenate[SelfT, P], None]:
        def taking(self: SelfT, /, *args: P.args, **options: P.kwargs) -> None:
            called = type(self).__name__
            for unknown in options.keys() - set(names):
                message = f"{called}() got an unexpected keyword argument {unknown!r}"
                raise TypeError(message + _suggestion(unknown, names))
            try:
                made = make(*args, **options)
            except TypeError as error:
                if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                    raise  # from inside of it, not from the call
                raise TypeError(str(error).replace(f"{make.__name__}.__init__", called)) from None
            init(self, made)

        functools.update_wrapper(taking, init)
        itself = next(iter(inspect.signature(init).parameters.values()))
        vars(taking)["__signature__"] = inspect.Signature([itself, *inspect.signature(make).parameters.values()])
        return taking

    return decorate


def _suggestion(unknown: str, names: Sequence[str]) -> str:
    """Return ``; did you mean ...?`` with a similar option, or the first that begins with the same four letters."""
    similar = difflib.get_close_matches(unknown, names, n=1) or [name for name in names if name[:4] == unknown[:4]]
    return f"; did you mean {similar[0]}?" if similar else ""


def values_for(kind: type[Any], options: object) -> dict[str, Any]:
    """Return the values in ``options`` of the fields of ``kind``, to be passed on as keywords."""
    return {option.name: getattr(options, option.name) for option in fields(kind)}
