"""Converts locations (paths and URLs), which users pass as `str` or `os.PathLike`, to text.

This module must not access files, and must not connect to anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from ais_tar2tf.base.urls.signed import shown_url
from ais_tar2tf.errors import OptionError, TemplateError

__all__ = ["Location", "Locations", "local_folder", "location_text", "location_texts", "shown_location"]

Location = str | os.PathLike[str]
"""A path, a URL, or a template of paths or URLs."""

Locations = Location | Iterable[Location]

_MAX_SHOWN = 200  # characters of a location in the text of an error
_MAX_LISTED = 10_000_000  # locations in a list; for more shards, a template is shorter
# Iterable types that are refused as lists of locations, because their items are numbers, have no fixed order, or are
# the keys of a dict.
_REFUSED = (bytes, bytearray, memoryview, set, frozenset, dict)
# Schemes for which `_check_scheme` notices a misspelt URL such as `s3:bucket`.
_SCHEMES = frozenset({"ais", "az", "file", "gs", "http", "https", "s3"})
# `pathlib.Path` turns a URL such as `s3://bucket/a` into `s3:/bucket/a`.
_URL_IN_A_PATH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)(.*)", re.DOTALL)


def location_text(location: object, what: str = "a template is a str or a path") -> str:
    """Return a location as text, with the home folder in place of a `~` at the text's beginning.

    Args:
        location: Text, or an `os.PathLike` such as `pathlib.Path`.
        what: The beginning of the error's text, which states the expected types.

    Raises:
        TemplateError: The location has another type, is a URL that lacks a slash, or is a command (`pipe:`).

    >>> from pathlib import PurePosixPath
    >>> location_text(PurePosixPath("shards") / "train-{0..3}.tar")
    'shards/train-{0..3}.tar'
    """
    text = _name_text(location, what)
    if text == "~" or text.startswith("~/"):
        return os.path.expanduser(text)  # noqa: PTH111  # a Path would drop a slash at the end
    _check_scheme(text)
    return text


def _check_scheme(text: str) -> None:
    """Refuse a misspelt URL, which would be read as a path, and `pipe:`, with which webdataset runs a command."""
    scheme, colon, rest = text.partition(":")
    if not colon or rest.startswith("//"):
        return
    if scheme == "pipe":
        raise TemplateError(f"{shown_location(text)} would run a command: give the URL that the command reads")
    if scheme.lower() in _SCHEMES and (scheme.lower() != "file" or rest.startswith("/")):
        url = f"{scheme}://{rest}" if scheme.lower() == "file" else f"{scheme}://{rest.lstrip('/')}"
        raise TemplateError(f"{shown_location(text)} is no URL: did you mean {shown_location(url)}?")


def _name_text(location: object, what: str) -> str:
    if isinstance(location, str):
        return location
    if not isinstance(location, os.PathLike):
        raise TemplateError(f"{what}, not {type(location).__name__} {shown_location(location)}")
    text: Any = os.fspath(location)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if not isinstance(text, str):
        raise TemplateError(f"{what}, not a path of {type(text).__name__}: {shown_location(text)}")
    broken = _URL_IN_A_PATH.fullmatch(text)
    if broken is not None:
        url = f"{broken[1]}://{broken[2]}"
        raise TemplateError(f"a Path of a URL has lost one of its slashes; give the text {shown_location(url)}")
    return text


def location_texts(locations: object, text_of: Callable[[Location], str] | None = None) -> list[str]:
    """Return one or several locations as a list of texts.

    Args:
        locations: A location, or an iterable of locations in a fixed order.
        text_of: A function that converts a location to text, for example `location_text`. By default, a `~` is not
            replaced by the home folder, because the `~` may be a part of an object's name.

    Raises:
        TemplateError: There is no location, a location has the wrong type, or the iterable has no order or too many
            items.
    """
    if isinstance(locations, str | os.PathLike):
        return [_text(locations, text_of, "a template is a str or a path")]
    if not isinstance(locations, Iterable) or isinstance(locations, _REFUSED):
        given: Any = locations
        raise TemplateError(
            f"a template is a str, a path, or a sequence of these, not {type(given).__name__} {shown_location(given)}"
        )
    some = islice(locations, _MAX_LISTED + 1)  # the iterable may be an endless generator
    texts = [_text(each, text_of, "every template in a list is a str or a path") for each in some]
    if not texts:
        raise TemplateError("the list of templates is empty: name at least one shard, prefix or glob")
    if len(texts) > _MAX_LISTED:
        raise TemplateError(f"the list has over {_MAX_LISTED:,} templates: name shards by ranges, as train-{{0..9}}")
    return texts


def _text(location: object, text_of: Callable[[Location], str] | None, what: str) -> str:
    text = _name_text(location, what)
    if not text:
        raise TemplateError("the template is empty: name a shard, a prefix that ends in '/', or a glob")
    return text if text_of is None else text_of(location)  # type: ignore[arg-type]  # `_name_text` accepted its type


def local_folder(location: object, what: str) -> str:
    """Return the path of a folder on this machine. Refuse a URL: as a path, it names a folder such as `s3:`.

    Args:
        location: Text, or an `os.PathLike`.
        what: The purpose of the folder, for the error.

    Raises:
        OptionError: The location is a URL.
        TemplateError: The location is neither text nor an `os.PathLike`, or is a misspelt URL.

    >>> local_folder("s3://bucket/cache", "a cache")
    Traceback (most recent call last):
        ...
    ais_tar2tf.errors.OptionError: a cache is a folder on this machine, not 's3://bucket/cache'
    """
    text = location_text(location, f"{what} is a folder (a str or a path)")
    if "://" in text:
        raise OptionError(f"{what} is a folder on this machine, not {shown_location(text)}")
    return text


def shown_location(value: object) -> str:
    """Return a value as errors show it: quoted, shortened, and without the secrets of a signed URL."""
    text = repr(shown_url(value) if isinstance(value, str) else value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
