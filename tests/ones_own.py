"""A mapping in a module of its own, as users have them; light, for worker processes import it."""

from __future__ import annotations

from typing import Any


def to_example(record: dict[str, Any]) -> dict[str, Any]:
    return {"n": int(record["cls"]), "size": len(record["jpg"]), "key": record["__key__"]}
