"""Names that nearly fit: what the error of a misspelt field, option or split suggests. No I/O."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ais_tar2tf.errors import OptionTypeError

__all__ = ["known_options", "known_options_and_those_of", "suggestion", "takes_an_argument"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

_PUBLIC = {"open_source": "open", "index_shards": "index"}  # functions by the names that users call them
_LIKE = 0.6  # of difflib's ratio: `jgp` for `jpg`, `shufle` for `shuffle`, and not `jpg` for `cls`


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of an error's sentence: the known name that is most like `name`, or nothing.

    >>> suggestion("jgp", ["cls", "jpg"])
    "; did you mean 'jpg'?"
    >>> suggestion("flower", ["cls", "jpg"])
    ''
    """
    import difflib

    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=_LIKE)
    return f"; did you mean {by_lower[found[0]]!r}?" if found else ""


def known_options(function: _Function) -> _Function:
    """Let a function refuse keyword arguments that it does not take by an error that names the nearest one."""
    return _checked(function, frozenset(_names_of(function)))


def known_options_and_those_of(other: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Do as `known_options`, for a function that hands further keyword arguments on to `other`."""
    return lambda function: _checked(function, frozenset((*_names_of(function), *_names_of(other))))


def _names_of(function: Callable[..., Any]) -> list[str]:
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [each.name for each in inspect.signature(function).parameters.values() if each.kind in named]


def _checked(function: _Function, known: frozenset[str]) -> _Function:
    shown = _PUBLIC.get(function.__qualname__, function.__qualname__.removesuffix(".__init__"))

    @functools.wraps(function)
    def checked(*arguments: Any, **options: Any) -> Any:
        if not options.keys() <= known:
            unknown = next(name for name in options if name not in known)
            advice = suggestion(unknown, known) or f"; there are: {', '.join(sorted(known - {'self'}))}"
            raise OptionTypeError(f"{shown}() has no option {unknown!r}{advice}")
        return function(*arguments, **options)

    return checked  # type: ignore[return-value]


def takes_an_argument(function: Callable[..., Any]) -> bool:
    """Whether a function has to be called with one positional argument at least, as a function of a record has.

    >>> takes_an_argument(lambda record: record), takes_an_argument(lambda: ["a", "b"])
    (True, False)
    """
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function in C that does not say
        return False
    return any(each.kind in positional and each.default is each.empty for each in parameters)
