"""Fingerprints of functions, and the comparison of plans that hold them. This module must not do I/O.

The plan of an export has a fingerprint of each function that decides the content of the files. So the plan changes
when the code of such a function changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import google_crc32c

__all__ = ["fingerprint", "is_same_plan"]


def fingerprint(value: Callable[..., Any] | str | None) -> str | None:
    """Return the name of a function with a checksum of its code; return a text or None unchanged."""
    if value is None or isinstance(value, str):
        return value
    name = getattr(value, "__qualname__", type(value).__qualname__)
    code = getattr(value, "__code__", None)
    text = b"" if code is None else _code(code)
    return f"{getattr(value, '__module__', '')}.{name} {google_crc32c.value(text):08x}"


def is_same_plan(earlier: Any, plan: dict[str, Any]) -> bool:
    """Return whether an earlier run had the same plan.

    Earlier versions wrote only the names of the functions that divide records into splits. Such a plan does
    not show whether the code of these functions has changed, so these functions are compared by their names alone.
    """
    splits = plan.get("splits")
    if earlier == plan or not isinstance(splits, dict) or "functions" not in splits:
        return earlier == plan
    names = [each.rpartition(" ")[0] for each in splits["functions"]]
    return earlier == {**plan, "splits": {**splits, "functions": names}}


def _code(code: Any) -> bytes:
    """Return the bytecode, names and constants of a code object, and of the functions inside it."""
    parts = [code.co_code, repr(code.co_names).encode()]
    parts += [_code(each) if hasattr(each, "co_code") else _constant(each) for each in code.co_consts]
    return b"\n".join(parts)


def _constant(value: Any) -> bytes:
    """Return a text of a constant that is the same in every process.

    The items of a frozenset are sorted, because the order of texts in a frozenset differs between processes.
    """
    if isinstance(value, frozenset):
        return f"frozenset({{{', '.join(sorted(map(repr, value)))}}})".encode()
    return repr(value).encode()
