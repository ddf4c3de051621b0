"""Which fields of a record are read, and under which names. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.errors import MissingField, OptionError, OptionTypeError
from ais_tar2tf.nearest import suggestion
from ais_tar2tf.records.table import NAMES, Record

__all__ = ["Selection", "Want"]


@dataclass(frozen=True, slots=True)
class Want:
    """One field asked for: the first of `sources` that a record has, under `name`."""

    name: str
    sources: tuple[str, ...]
    optional: bool = False

    @classmethod
    def parse(cls, text: str) -> Want:
        """`"jpg"`, `"cls?"` (may be absent), `"jpg;png"` (the first there is), `"image=jpg;png"` (renamed).

        >>> Want.parse("image=jpg;png?")
        Want(name='image', sources=('jpg', 'png'), optional=True)
        """
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # users' code
            raise OptionTypeError(f"a field is asked for by its name, not by {text!r}")
        if "," in text:
            several = [part.strip() for part in text.split(",")]
            raise OptionError(f"{text!r} is one text: list several fields, as {several!r}")
        body = text.removesuffix("?")
        name, renamed, alternatives = body.partition("=")
        sources = tuple(source.lower() for source in (alternatives if renamed else body).split(";"))
        if not all(sources) or not name:
            raise OptionError(f"a field is asked for as 'jpg', 'cls?' or 'image=jpg;png', not {text!r}")
        return cls(name if renamed else sources[0], sources, optional=text.endswith("?"))


_NAMES = frozenset(NAMES)


class Selection:
    """The fields that are read; all others are skipped without being copied."""

    def __init__(self, fields: str | Iterable[str | Want]) -> None:
        given = [fields] if isinstance(fields, str) else fields
        self.wants: tuple[Want, ...] = tuple(f if isinstance(f, Want) else Want.parse(f) for f in given)
        names = [want.name for want in self.wants]
        if not _NAMES.isdisjoint(names):
            raise OptionError(
                f"{' and '.join(NAMES)} come with every record; give other names to the fields selected"
            )
        if len(set(names)) < len(names):
            raise OptionError(f"a field is selected twice: {', '.join(names)}")
        self.sources: frozenset[str] = frozenset(source for want in self.wants for source in want.sources)

    @property
    def names(self) -> list[str]:
        return [want.name for want in self.wants]

    def of(self, fields: Mapping[str, Any], met: Iterable[str], shard: str, key: str) -> Record:
        """The fields asked for, of those that a record has; `met` are all that it has, for the error."""
        chosen: Record = {}
        for want in self.wants:
            source = next((source for source in want.sources if source in fields), None)
            if source is not None:
                chosen[want.name] = fields[source]
            elif not want.optional:
                raise _missing(want, met, shard, key)
        return chosen


def _missing(want: Want, met: Iterable[str], shard: str, key: str) -> MissingField:
    there = sorted(met)
    near = suggestion(want.sources[0], there)
    optional = f"select {want.name + '?'!r} if it may be absent"
    return MissingField(
        f"field {' or '.join(want.sources)!r} is missing (there are: {', '.join(there) or 'none'})"
        + (f"{near} Or {optional}" if near else f"; {optional}"),
        shard=shard,
        key=key,
    )
