"""Errors for misspelt names of fields, options and splits. Each error suggests the most similar name.

The decorators of this module make a function check its arguments before it runs. The decorators themselves check the
names of the arguments; `Arguments` checks the number and the types. This module must not do I/O.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ais_tar2tf.base.arguments import Arguments
from ais_tar2tf.errors import OptionError, OptionTypeError

__all__ = [
    "check_choice",
    "checked_class",
    "known_options",
    "known_options_and_those_of",
    "known_options_with_hints_to",
    "suggestion",
    "takes_an_argument",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)

_PUBLIC = {"open_source": "open", "index_shards": "index"}  # from a function's name to its public name
_SYNONYMS = {
    "buffer_size": "shuffle",
    "columns": "fields",
    "endpoint": "proxy_url",
    "epochs": "repeat",
    "map_func": "map",
    "num_epochs": "repeat",
    "num_parallel_calls": "parallel",
    "proxy_url": "endpoint",
    "transform": "map",
}
"""From names of options that users know from elsewhere, such as tf.data, to the names that are used here instead."""

# The least ratio that difflib must give for a suggestion: `jpg` is suggested for `jgp`, but `cls` is not for `jpg`.
_SIMILAR = 0.6
# If a name has so many letters, a longer known name that begins with it may be suggested: `skip-record` for `skip`.
_PREFIX_LETTERS = 3


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message, which suggests the most similar known name; "" if none is similar.

    >>> suggestion("jgp", ["cls", "jpg"])
    "; did you mean 'jpg'?"
    >>> suggestion("flower", ["cls", "jpg"])
    ''
    """
    import difflib

    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=_SIMILAR)
    if not found and len(name) >= _PREFIX_LETTERS:
        found = [each for each in by_lower if each.startswith(name.lower())]
    return f"; did you mean {by_lower[found[0]]!r}?" if found else ""


def check_choice(name: str, value: Any, choices: Iterable[str], more: str = "") -> None:
    """Raise OptionError if the value of an option is not one of the allowed words.

    Args:
        name: The name of the option.
        value: The option's value.
        choices: The allowed words.
        more: A text that follows these words in the error message, about other values that the caller accepts.

    >>> check_choice("align", "shards", ["stream", "shard"])
    Traceback (most recent call last):
        ...
    ais_tar2tf.errors.OptionError: align is one of stream, shard, not 'shards'; did you mean 'shard'?
    """
    known = list(choices)
    if not isinstance(value, str) or value not in known:
        near = suggestion(value, known) if isinstance(value, str) else ""
        raise OptionError(f"{name} is one of {', '.join(known)}{more}, not {value!r}{near}")


def checked_class(kind: _Class) -> _Class:
    """Let the constructor of a class check its arguments, as `known_options` does for a function."""
    kind.__init__ = _checked(kind.__init__, lambda _: [], within=kind.__name__)
    return kind


def known_options(function: _Function) -> _Function:
    """Let a function check the number, the names and the types of its arguments before it runs.

    The annotations of the function's parameters state the types. The error for a misspelt name suggests the most
    similar name.
    """
    return _checked(function, lambda _: [])


def known_options_and_those_of(other: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Return a decorator like `known_options`, for a function that passes the options of `other` on to `other`."""
    return lambda function: _checked(function, lambda shown: Arguments(other, shown).names)


def known_options_with_hints_to(*methods: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Return a decorator like `known_options`, for a function whose result has the given methods.

    If a user gives the function an option that it lacks, the error names the methods that have this option.
    """
    return lambda function: _checked(function, lambda _: [], methods=methods)


def _checked(
    function: _Function,
    further_names: Callable[[str], Iterable[str]],
    *,
    within: str = "",
    methods: Iterable[Callable[..., Any]] = (),
) -> _Function:
    """Return a function that checks its arguments and then calls `function`.

    Args:
        function: The function.
        further_names: A function that returns the names of further options to accept. Its argument is the name by
            which errors call `function`.
        within: The name of the class if `function` is a constructor; otherwise "".
        methods: Methods of the function's result. The error for an unknown option names the methods that have it.
    """
    shown = _PUBLIC.get(function.__qualname__, function.__qualname__.removesuffix(".__init__"))
    parameters = Arguments(function, shown, within=within)
    further = further_names(shown)
    known = frozenset((*parameters.names, *further))
    any_name = parameters.takes_any_name and not further

    @functools.wraps(function)
    def checked(*arguments: Any, **options: Any) -> Any:
        if not any_name and not options.keys() <= known:
            unknown = next(name for name in options if name not in known)
            synonym = _SYNONYMS.get(unknown, unknown)
            others = [f".{each.__name__}()" for each in methods if unknown in inspect.signature(each).parameters]
            advice = f"; give it to {' or '.join(others)} of what {shown}() returns" if others else ""
            advice = advice or parameters.advice_on(options[unknown])
            advice = advice or suggestion(synonym if synonym in known else unknown, known)
            advice = advice or f"; there are: {', '.join(sorted(known - {'self'}))}"
            raise OptionTypeError(f"{shown}() has no option {unknown!r}{advice}")
        parameters.check(arguments, options)
        return function(*arguments, **options)

    return checked  # type: ignore[return-value]


def takes_an_argument(function: Callable[..., Any]) -> bool:
    """Return whether a function must be called with at least one positional argument, such as a record.

    >>> takes_an_argument(lambda record: record), takes_an_argument(lambda: ["a", "b"])
    (True, False)
    """
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # no signature is known, as for some functions in C
        return False
    return any(each.kind in positional and each.default is each.empty for each in parameters)
