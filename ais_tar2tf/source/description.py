"""Describes a source for people: in one line, and as a table in notebooks. Reads nothing."""

from __future__ import annotations

import html

from ais_tar2tf.base.monitoring.stats import Stats
from ais_tar2tf.streams.reader import Shards

__all__ = ["as_html", "as_line"]


def as_line(shards: Shards) -> str:
    """Return how many shards there are, and the URL of the first one."""
    names = shards.names
    first = shards.store.url(names[0]) if len(names) else "nothing"
    return f"<Source of {len(names):,} shards: {first}{' …' if len(names) > 1 else ''}>"


def as_html(shards: Shards, stats: Stats) -> str:
    """Return a table of the shards and of what was read so far."""
    names = shards.names
    rows = {
        "shards": f"{len(names):,}",
        "first": shards.store.url(names[0]) if len(names) else "",
        "last": shards.store.url(names[-1]) if len(names) else "",
        "records handed out": f"{stats.records_emitted:,}",
        "skipped": ", ".join(f"{count:,} × {kind}" for kind, count in stats.skipped.items()) or "none",
    }
    cells = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in rows.items())
    return f"<table style='text-align:left'><caption>Source</caption>{cells}</table>"
