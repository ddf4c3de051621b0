"""Selections: which fields of a record are read, and under which names. This module must do no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.base.nearest import suggestion
from ais_tar2tf.errors import MissingField, OptionError, OptionTypeError
from ais_tar2tf.records.table import KEY_AND_SHARD, Record

__all__ = ["Selection", "Want"]


@dataclass(frozen=True, slots=True)
class Want:
    """A request for one field.

    Attributes:
        name: The name of the field in the record that the user gets.
        sources: The names, in lower case, of alternative fields. The first of these fields that a record has is read.
        optional: Whether a record may lack all of these alternative fields.
    """

    name: str
    sources: tuple[str, ...]
    optional: bool = False

    @classmethod
    def parse(cls, text: str) -> Want:
        """Parse the text by which a user asks for a field.

        `"jpg"` asks for a field, and `"cls?"` for a field that may be absent. `"jpg;png"` asks for the field `jpg`,
        or, if a record has no `jpg`, for the field `png`. The user gets either field under the name `jpg`.
        `"image=jpg;png"` asks for the same fields, under the name `image`.

        Raises:
            OptionError: The text names no field, or is a list of fields.
            OptionTypeError: `text` is not a str.

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


class Selection:
    """The fields that are read. All other fields are skipped without being copied.

    Attributes:
        wants: The requests, one for each field of the record that the user gets.
        sources: The names of all fields that any request may read.
    """

    def __init__(self, fields: str | Iterable[str | Want]) -> None:
        given = [fields] if isinstance(fields, str) else fields
        self.wants: tuple[Want, ...] = tuple(f if isinstance(f, Want) else Want.parse(f) for f in given)
        names = self.names
        if not set(KEY_AND_SHARD).isdisjoint(names):
            raise OptionError(
                f"{' and '.join(KEY_AND_SHARD)} come with every record; give other names to the fields selected"
            )
        if len(set(names)) < len(names):
            raise OptionError(f"a field is selected twice: {', '.join(names)}")
        self.sources: frozenset[str] = frozenset(source for want in self.wants for source in want.sources)

    @property
    def names(self) -> list[str]:
        """The names of the fields in the record that the user gets."""
        return [want.name for want in self.wants]

    def places_in(self, fields: list[str]) -> dict[str, int] | None:
        """Return the index in `fields` of each selected field; None if a required field is missing."""
        places: dict[str, int] = {}
        for want in self.wants:
            place = next((fields.index(source) for source in want.sources if source in fields), None)
            if place is not None:
                places[want.name] = place
            elif not want.optional:
                return None
        return places

    def apply(self, fields: Mapping[str, Any], existing: Iterable[str], shard: str, key: str) -> Record:
        """Return the selected fields of a record, under the names that the user asked for.

        An optional field that the record lacks is left out.

        Args:
            fields: The fields that were read from the record.
            existing: The names of all fields that the record has, for the error.
            shard: The URL of the shard, for the error.
            key: The key of the record, for the error.

        Raises:
            MissingField: The record lacks a field that is not optional.
        """
        chosen: Record = {}
        for want in self.wants:
            source = next((source for source in want.sources if source in fields), None)
            if source is not None:
                chosen[want.name] = fields[source]
            elif not want.optional:
                raise _missing(want, sorted(existing), shard, key)
        return chosen


def _missing(want: Want, existing: list[str], shard: str, key: str) -> MissingField:
    near = suggestion(want.sources[0], existing)
    sources = ";".join(want.sources)
    asked = sources if want.name == want.sources[0] else f"{want.name}={sources}"
    optional = f"select {asked + '?'!r} if it may be absent"
    return MissingField(
        f"field {' or '.join(want.sources)!r} is missing (there are: {', '.join(existing) or 'none'})"
        + (f"{near} Or {optional}" if near else f"; {optional}"),
        shard=shard,
        key=key,
    )
