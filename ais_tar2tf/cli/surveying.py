"""Reading everything that URLs name, for `inspect` and `card`: what is bad is noted and left out, never the end."""

from __future__ import annotations

from collections.abc import Sequence

from ais_tar2tf.account import Stats
from ais_tar2tf.card import Survey
from ais_tar2tf.cli.console import Console
from ais_tar2tf.errors import AccessDenied, ShardNotFound, Tar2TFError, TransportError
from ais_tar2tf.source import Source, open_source

__all__ = ["Reading", "chosen_fields", "opened", "read_all"]

_NO_FAULT_OF_THE_DATA = (ShardNotFound, AccessDenied, TransportError)


class Reading:
    """A survey, and what the source says of how it was read."""

    def __init__(self) -> None:
        self.survey: Survey = Survey()
        self.stats: Stats = Stats()
        self.shards: int = 0
        self.whole: bool = False  # whether every record was read
        self.stopped: bool = False  # by Ctrl-C


def opened(urls: Sequence[str], *, endpoint: str | None, fields: str | None, survey: Survey | None = None) -> Source:
    """The source; with `survey`, what is wrong with its data is noted there."""
    from ais_tar2tf.cli.places import as_listed

    def noted(error: Tar2TFError) -> None:
        if isinstance(error, _NO_FAULT_OF_THE_DATA) or survey is None:
            raise error
        survey.fault(error)

    listed = [as_listed(url) for url in urls]
    return open_source(
        listed, endpoint=endpoint, fields=chosen_fields(fields), on_error=noted if survey is not None else "raise"
    )


def chosen_fields(fields: str | None) -> list[str] | None:
    return None if fields is None else [field.strip() for field in fields.split(",") if field.strip()]


def read_all(
    urls: Sequence[str], console: Console, *, endpoint: str | None, fields: str | None, most: int | None, what: str
) -> Reading:
    """Every record, or the first `most`. After Ctrl-C: what was read until then."""
    reading = Reading()
    with opened(urls, endpoint=endpoint, fields=fields, survey=reading.survey) as source:
        reading.stats = source.stats
        reading.shards = sum(1 for _ in source.shards)
        console.detail(f"{reading.shards:,} shards")
        try:
            with console.progress(what, shards=reading.shards) as meter:
                before = 0
                for record in source.records():
                    reading.survey.add(record)
                    meter(1, shards=source.stats.shards - 1 - before)
                    before = source.stats.shards - 1
                    if most is not None and reading.survey.records >= most:
                        break
                else:
                    reading.whole = True
        except KeyboardInterrupt:
            reading.stopped = True
    return reading
