"""Checks of the arguments of a public function: their number and their types.

The annotations of the parameters state the types. If an annotation cannot be checked here, the function itself must
check the argument. This module ignores arguments with unknown names, which `nearest.py` refuses. It must not do I/O.
"""

from __future__ import annotations

import inspect
import os
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from ais_tar2tf.base.shared_options import annotation_names
from ais_tar2tf.base.urls.locations import shown_location
from ais_tar2tf.errors import OptionTypeError

__all__ = ["Arguments"]

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_BY_EITHER = frozenset({*_BY_POSITION, *_BY_NAME})
_OPTIONS = "ais_tar2tf.options"
_SECRET = frozenset({"token"})  # options whose values must not appear in errors
_CHOICES = frozenset({"align", "at_end", "even", "exists", "format", "grouping", "on_error", "shuffle"})
"""Options whose value is one of a few texts. The function with the option checks the value, and suggests another."""

# The end of an error's text for an argument with this name.
_ADVICE = {
    "at_least": ": say (height, width)",
    "cache": ": give the path of a folder, 'memory' or t2t.options.Cache(dir)",
    "endpoint": ": give a URL, as 'http://localhost:51080'",
    "fields": ": list them, as ['jpg', 'cls']",
    "index": ": False reads without one",
    "map": ": to choose fields, use select({value})",
    "proxy_url": ": give a URL, as 'http://localhost:51080'",
    "schema": ": t2t.schema.infer(src.records()) makes one; for numbers alone write types={{'cls': 'int64'}}",
    "size": ": say (height, width)",
    "sources": ": give a list of what t2t.open gives",
    "splits": ": name them, as {{'train': 0.9, 'val': 0.1}}",
}

_ADVICE_ON_FUNCTIONS = {
    "Loaded.dataset": ": a function of a record goes behind, as .dataset('train').map(function).batch(32)",
    "Loaded.records": ": apply a function of a record outside, as map(function, loaded.records('train'))",
    "Loaded.split": ": apply a function of a record outside, as map(function, loaded.split('train'))",
}
"""Advice for a user who passes a function to a call that takes none."""


class _ValueKind(NamedTuple):
    """A kind of values that a parameter accepts: its descriptions for errors, and its check."""

    descriptions: tuple[str, ...]
    fits: Callable[[Any], bool]
    options: type | None = None  # the class, if the values are instances of a class of options


class Arguments:
    """The parameters of a function. `check` compares arguments with these parameters.

    Args:
        function: The function.
        shown: The function's name in errors.
        within: The class that errors put before the name of an argument, as in `Tls.verify`; "" for no class.

    Attributes:
        names: The names of the parameters that can be given by name.
        takes_any_name: Whether the function has a parameter such as `**options`.
    """

    def __init__(self, function: Callable[..., Any], shown: str, *, within: str = "") -> None:
        self._within = f"{within}." if within else ""
        self._function = function
        self._shown = shown
        self._parameters = dict(inspect.signature(function).parameters)
        parameters = self._parameters.values()
        self._by_position = tuple(each.name for each in parameters if each.kind in _BY_POSITION)
        self._any_number = any(each.kind is each.VAR_POSITIONAL for each in parameters)
        self._is_method = self._by_position[:1] == ("self",)
        self._required = tuple(
            each.name for each in parameters if each.kind in _BY_EITHER and each.default is each.empty
        )
        self.names: frozenset[str] = frozenset(each.name for each in parameters if each.kind in _BY_NAME)
        self.takes_any_name: bool = any(each.kind is each.VAR_KEYWORD for each in parameters)

    def check(self, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        """Refuse too many arguments, missing arguments and wrong types. Unknown options are ignored.

        Raises:
            OptionTypeError: An argument is refused.
        """
        if len(arguments) > len(self._by_position) and not self._any_number:
            raise self._too_many(arguments)
        given = dict(zip(self._by_position, arguments, strict=False))
        for name, value in options.items():
            if name not in self.names:
                continue
            if name in given:
                raise OptionTypeError(f"{self._shown}() got {name!r} twice, by position and by name: give it once")
            given[name] = value
        for name in self._required:
            if name not in given:
                raise OptionTypeError(f"{self._shown}() needs {name!r}, which was not given")
        for name, value in given.items():
            kinds = self._kinds.get(name)
            if kinds and value is not self._parameters[name].default and not any(k.fits(value) for k in kinds):
                raise self._unfit(name, kinds, value)

    @cached_property
    def _kinds(self) -> dict[str, list[_ValueKind]]:
        """The kinds of values of each parameter that can be checked.

        The kinds are found at the first use, because annotations name classes of modules that are imported later.
        """
        found: dict[str, list[_ValueKind]] = {}
        for name, parameter in self._parameters.items():
            kinds = [] if name in _CHOICES else self._kinds_of(parameter)
            if kinds:
                found[name] = kinds
        return found

    def _kinds_of(self, parameter: inspect.Parameter) -> list[_ValueKind]:
        if parameter.annotation is parameter.empty or parameter.kind not in _BY_EITHER:
            return []
        try:
            annotation = eval(parameter.annotation, annotation_names(self._function))  # noqa: S307  # our own source code
        except (NameError, AttributeError):  # a name in it is imported only for type checkers
            return []
        is_location = any(_origin(part) is os.PathLike for part in _parts_of(annotation))
        if is_location and parameter.default is parameter.empty:  # the function checks it itself
            return []
        return _kinds_in(annotation)

    def _too_many(self, given: tuple[Any, ...]) -> OptionTypeError:
        names = self._by_position[self._is_method :]
        by_name = next((e.name for e in self._parameters.values() if e.kind is e.KEYWORD_ONLY), None)
        takes = f"only {', '.join(names)} by position" if names else "nothing by position"
        extra = given[len(self._by_position)]
        advice = self.advice_on(extra) or (f": give options by name, as {by_name}=…" if by_name else "")
        count = len(given) - self._is_method
        return OptionTypeError(f"{self._shown}() takes {takes}, and {count} argument{'s' * (count > 1)} came{advice}")

    def _unfit(self, name: str, kinds: list[_ValueKind], value: Any) -> OptionTypeError:
        takes = _either_of([text for kind in kinds for text in kind.descriptions])
        option = f"{self._within}{name}"
        shown = type(value).__name__ if name in _SECRET else shown_location(value)
        advice = self.advice_on(value) or _advice(name, kinds, value)
        return OptionTypeError(f"{option} is {takes}, not {shown}{advice}")

    def advice_on(self, value: Any) -> str:
        """Return the end of an error's text: where the user can pass the function `value`; "" for other values."""
        return _ADVICE_ON_FUNCTIONS.get(self._shown, "") if callable(value) else ""


def _advice(name: str, kinds: list[_ValueKind], value: Any) -> str:
    """Return the end of an error's text: how to write the argument."""
    options = next((kind.options for kind in kinds if kind.options is not None), None)
    is_only = all(kind.options is not None or kind is _NONE for kind in kinds)
    if options is not None and (isinstance(value, Mapping) or is_only):
        return f": write {name}=t2t.options.{options.__name__}({_as_options(options, value)})"
    if value is False and _NONE in kinds:
        return f": leave {name}= out"
    if name == "map" and not isinstance(value, str | list | tuple):
        return ""
    return _ADVICE.get(name, "").format(value=shown_location(value))


def _as_options(options: type, value: Any) -> str:
    """Return, as text, the arguments of the class `options` that the user probably meant by `value`."""
    known = {each.name: each for each in fields(options)}
    if isinstance(value, Mapping) and value and value.keys() <= known.keys():
        return ", ".join(f"{name}={each!r}" for name, each in value.items())
    for name, field in known.items():
        atoms = str(field.type).partition(" | ")[0]
        kinds = {"int": int, "float": (int, float), "str": str, "bool": bool}.get(atoms)
        if kinds is not None and isinstance(value, kinds) and (atoms == "bool") == isinstance(value, bool):
            return f"{name}={value!r}"
    return f"{next(iter(known))}=…"


def _parts_of(annotation: Any) -> tuple[Any, ...]:
    is_union = isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union
    if not is_union:
        return (annotation,)
    return tuple(part for each in typing.get_args(annotation) for part in _parts_of(each))


def _kinds_in(annotation: Any) -> list[_ValueKind]:
    """Return the kinds of values that an annotation allows; an empty list if one of them cannot be checked."""
    kinds = [_kind_of(part) for part in _parts_of(annotation)]
    return [] if None in kinds else [kind for kind in kinds if kind is not None]


def _origin(annotation: Any) -> Any:
    return typing.get_origin(annotation) or annotation


def _kind_of(annotation: Any) -> _ValueKind | None:
    origin = _origin(annotation)
    if origin in _KINDS:
        return _KINDS[origin]
    if origin is Literal:
        choices = typing.get_args(annotation)
        return _ValueKind(tuple(map(repr, choices)), lambda value: value in choices)
    if origin is tuple:
        return _tuple_of(typing.get_args(annotation))
    if not isinstance(origin, type) or getattr(origin, "_is_protocol", False) or origin is object:
        return None
    if origin.__module__ == _OPTIONS and is_dataclass(origin):
        return _ValueKind((f"a t2t.options.{origin.__name__}",), lambda value: isinstance(value, origin), origin)
    return _ValueKind((f"a {origin.__name__}",), lambda value: isinstance(value, origin))


def _tuple_of(parts: tuple[Any, ...]) -> _ValueKind | None:
    """Return the kind of a tuple; None if the type of one of its parts cannot be checked. A list fits it, too."""
    endless = len(parts) == 2 and parts[1] is Ellipsis
    kinds = [_kinds_in(part) for part in (parts[:1] if endless else parts)]
    if not all(kinds):
        return None

    def fits(value: Any) -> bool:
        if not _is_list(value) or isinstance(value, Iterator):  # the check would use up an iterator
            return False
        values = list(value)
        if not endless and len(values) != len(kinds):
            return False
        each = kinds * len(values) if endless else kinds
        return all(any(kind.fits(v) for kind in of) for of, v in zip(each, values, strict=True))

    each = _either_of([text for kind in kinds[0] for text in kind.descriptions])
    return _ValueKind((f"a list of {each}" if endless else f"{len(kinds)} values, each {each}",), fits)


def _either_of(descriptions: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(descriptions[:-1]), descriptions[-1])))


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or (
        type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_")
    )


def _is_whole(value: Any) -> bool:
    return not _is_bool(value) and (hasattr(value, "__index__") or (isinstance(value, float) and value.is_integer()))


def _is_number(value: Any) -> bool:
    return not _is_bool(value) and (hasattr(value, "__float__") or hasattr(value, "__index__"))


def _is_list(value: Any) -> bool:
    refused = (str, bytes, bytearray, memoryview, set, frozenset, Mapping)
    return isinstance(value, Iterable) and not isinstance(value, refused)


_NONE = _ValueKind(("None",), lambda value: value is None)
_KINDS: dict[Any, _ValueKind | None] = {
    Any: None,
    None: _NONE,
    types.NoneType: _NONE,
    bool: _ValueKind(("True", "False"), _is_bool),
    int: _ValueKind(("a whole number",), _is_whole),
    float: _ValueKind(("a number",), _is_number),
    str: _ValueKind(("text",), lambda value: isinstance(value, str)),
    os.PathLike: _ValueKind(("a path",), lambda value: isinstance(value, os.PathLike)),
    Callable: _ValueKind(("a function",), callable),
    Mapping: _ValueKind(("a dict",), lambda value: isinstance(value, Mapping)),
    Sequence: _ValueKind(("a list",), _is_list),
    Iterable: _ValueKind(
        ("a list",), lambda value: isinstance(value, Iterable) and not isinstance(value, str | bytes)
    ),
}
