"""A mapping in a module, as users write it. Worker processes import it, so it must import quickly."""

from __future__ import annotations

from typing import Any


def to_example(record: dict[str, Any]) -> dict[str, Any]:
    return {"n": int(record["cls"]), "size": len(record["jpg"]), "key": record["__key__"]}
