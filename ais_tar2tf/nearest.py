"""Names that nearly fit: what the error of a misspelt field, option or split suggests. No I/O."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ais_tar2tf.arguments import Arguments
from ais_tar2tf.errors import OptionError, OptionTypeError

__all__ = [
    "check_choice",
    "checked_class",
    "known_options",
    "known_options_and_those_of",
    "known_options_unlike_those_of",
    "suggestion",
    "takes_an_argument",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)

_PUBLIC = {"open_source": "open", "index_shards": "index"}  # functions by the names that users call them
_ELSEWHERE = {
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
"""What options are called in tf.data, elsewhere, and in the other half of this package."""

_LIKE = 0.6  # of difflib's ratio: `jgp` for `jpg`, `shufle` for `shuffle`, and not `jpg` for `cls`
_BEGINNING = 3  # letters with which a name may begin to be meant: `skip` for `skip-record`


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
    if not found and len(name) >= _BEGINNING:
        found = [each for each in by_lower if each.startswith(name.lower())]
    return f"; did you mean {by_lower[found[0]]!r}?" if found else ""


def check_choice(name: str, value: Any, choices: Iterable[str], more: str = "") -> None:
    """Refuse an option that is none of a few words; `more` is what it may be besides.

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
    """Let a class check the arguments of its instances as `known_options` does."""
    kind.__init__ = _checked(kind.__init__, lambda _: [], within=kind.__name__)
    return kind


def known_options(function: _Function) -> _Function:
    """Let a function check its arguments before it runs: how many there are, their names and their types.

    The error of a misspelt name suggests the nearest one. The annotations of the parameters say the types.
    """
    return _checked(function, lambda _: [])


def known_options_and_those_of(other: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Do as `known_options`, for a function that hands further keyword arguments on to `other`."""
    return lambda function: _checked(function, lambda shown: Arguments(other, shown).names)


def known_options_unlike_those_of(*methods: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Do as `known_options`; its error names those `methods` of the returned object that have the option."""
    return lambda function: _checked(function, lambda _: [], methods=methods)


def _checked(
    function: _Function,
    further: Callable[[str], Iterable[str]],
    *,
    within: str = "",
    methods: Iterable[Callable[..., Any]] = (),
) -> _Function:
    shown = _PUBLIC.get(function.__qualname__, function.__qualname__.removesuffix(".__init__"))
    takes = Arguments(function, shown, within=within)
    known = frozenset((*takes.names, *further(shown)))
    any_name = takes.takes_any_name and not further(shown)

    @functools.wraps(function)
    def checked(*arguments: Any, **options: Any) -> Any:
        if not any_name and not options.keys() <= known:
            unknown = next(name for name in options if name not in known)
            meant = _ELSEWHERE.get(unknown, unknown)
            having = [f".{each.__name__}()" for each in methods if unknown in inspect.signature(each).parameters]
            advice = f"; give it to {' or '.join(having)} of what {shown}() returns" if having else ""
            advice = advice or takes.advice_on(options[unknown])
            advice = advice or suggestion(meant if meant in known else unknown, known)
            advice = advice or f"; there are: {', '.join(sorted(known - {'self'}))}"
            raise OptionTypeError(f"{shown}() has no option {unknown!r}{advice}")
        takes.check(arguments, options)
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
