"""What is raised out of a dataset, whether TensorFlow stands between or not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ais_tar2tf import errors


@contextmanager
def raises_ours(kind: type[errors.Tar2TFError] | tuple[type[errors.Tar2TFError], ...], match: str) -> Iterator[None]:
    """Expect an error of ours of exactly this kind, also behind stages of TensorFlow's own."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  # of what kind its original is
        yield
    found = errors.original(caught.value)
    assert type(found) in (kind if isinstance(kind, tuple) else (kind,)), repr(caught.value)
    assert re.search(match, str(found)), str(found)
