"""Expect the package's own errors from a dataset, also when TensorFlow wraps them."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ais_tar2tf import errors


@contextmanager
def raises_ours(kind: type[errors.Tar2TFError] | tuple[type[errors.Tar2TFError], ...], match: str) -> Iterator[None]:
    """Expect an error of exactly this class, also when stages of TensorFlow have wrapped it."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  # the class of the original error is checked below
        yield
    found = errors.original(caught.value)
    assert type(found) in (kind if isinstance(kind, tuple) else (kind,)), repr(caught.value)
    assert re.search(match, str(found)), str(found)


def everything_printed(error: BaseException) -> str:
    """Return everything that can be printed about an error: text, arguments, and the traceback with every cause."""
    return "".join([str(error), repr(error), repr(error.args), *traceback.format_exception(error)])
