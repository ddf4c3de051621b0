"""Which field is decoded how: by what the user says, else by its name and what a sample showed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ais_tar2tf.decoders._decoder import KINDS, WITHOUT_TENSOR, Decoder
from ais_tar2tf.errors import MappingError, MissingDependency, MissingField, OptionTypeError, SchemaError, Tar2TFError
from ais_tar2tf.mapping import is_tensor, next_of_image, told
from ais_tar2tf.nearest import suggestion
from ais_tar2tf.records import NAMES, Record, said_fields
from ais_tar2tf.schema import LABEL_FIELDS, Field, Schema, extension_of, is_written_number, kind_of_field

__all__ = ["DECODABLE", "Decode", "Decoding", "decoding_of"]

Decode = bool | Schema | Mapping[str, Any]
"""True: by names and a sample. A schema. Or by field: a kind, a number's type, a vocabulary, a function."""

DECODABLE = KINDS
_SEEN = ("image", "npy")  # of which a dataset has to know more than the kind
_COLOURS = 3  # red, green and blue
_NUMBERED = frozenset({*LABEL_FIELDS, "cls2", "index", "id"})  # whose text is meant as a number where it is one


def decoding_of(
    decode: Decode,
    schema: Callable[[], Schema],
    *,
    known: Callable[[], Collection[str]] = tuple,
    sampled: bool = True,
    in_graph: bool = False,
) -> Decoding:
    """Return what `decode=` means.

    Args:
        decode: What the user says.
        schema: Asked when a sample has to tell a field's type.
        known: Asked for the fields that records may have: those of a sample, or those that were selected. Of no
            records there are none, and then every name is accepted.
        sampled: Whether records behind those may have further fields.
        in_graph: Whether records of tensors will be decoded, too.
    """
    if isinstance(decode, Mapping):
        _check_names(decode.keys(), known(), sampled=sampled)
    found = _decoding_of(decode, schema, known, in_graph=in_graph)
    if not in_graph:
        return found
    return replace(found, decoders={name: replace(each, as_in_graph=True) for name, each in found.decoders.items()})


def _decoding_of(
    decode: Decode, schema: Callable[[], Schema], known: Callable[[], Collection[str]], *, in_graph: bool
) -> Decoding:
    if isinstance(decode, Schema):
        _check_schema(decode, known())
        return Decoding({field.name: _by_schema(_as_seen(decode, field)) for field in decode})
    if isinstance(decode, Mapping):
        return Decoding({name: _as_said(name, how, schema, in_graph) for name, how in decode.items()}, said=True)
    if decode is not True:
        raise OptionTypeError(f"decode is True, a Schema, or a dict of what becomes of each field, not {decode!r}")
    sample = schema()
    return Decoding({field.name: _by_name(_as_seen(sample, field)) for field in sample})


def _check_names(names: Collection[str], known: Collection[str], *, sampled: bool) -> None:
    """Refuse a field that no record has: it would be passed over without a word."""
    for name in names if known else ():
        if name in known or name in NAMES:
            continue
        rare = f"; a field that is rare is selected first: select({name + '?'!r}, …)" if sampled else ""
        raise SchemaError(
            f"decode= names field {name!r}, and none of the {'first ' if sampled else ''}records has it "
            f"(there are: {said_fields(known)}){suggestion(name, known) or rare}"
        )


def _check_schema(schema: Schema, known: Collection[str]) -> None:
    """Refuse a schema of other records; one that has more fields than are selected is as good as any."""
    if known and schema.names and not set(schema.names) & set(known):
        raise SchemaError(
            f"none of the schema's fields ({said_fields(schema.names)}) is in the first records, "
            f"which have: {said_fields(known)}"
        )


def _as_seen(schema: Schema, field: Field) -> Field:
    """The field without what later records may not share, when the schema is that of a sample: sizes and words.

    The number of an image's channels stays: a network is built for it.
    """
    if not schema.sampled:
        return field
    kept = field.shape[-1:] if field.encoding == "image" and len(field.shape) == 3 else ()
    return replace(field, shape=((None,) * (len(field.shape) - len(kept)) + kept), vocabulary=None)


def _by_name(field: Field) -> Decoder:
    """What a user expects: files by their extension or their mark, labels as numbers where they are, no guesses."""
    kind = kind_of_field(field.name)
    if kind is None and field.encoding in ("image", "npy", "audio", "hdf5", "netcdf"):
        kind = field.encoding
    if kind == "text":
        numeric = extension_of(field.name) in _NUMBERED and field.dtype in ("int64", "float64")
        return Decoder("number", field.dtype) if numeric else Decoder("text" if field.dtype != "bytes" else "bytes")
    return _typed(kind, field) if kind is not None else Decoder("bytes")


def _by_schema(field: Field) -> Decoder:
    if field.vocabulary is not None:
        return Decoder("label", vocabulary=field.vocabulary)
    if field.encoding == "text":
        return Decoder("text") if field.dtype == "string" else Decoder("number", field.dtype)
    if field.is_file:
        return _typed(field.encoding, field)
    return Decoder("number", field.dtype) if is_written_number(field) else Decoder("bytes")


def _typed(kind: str, field: Field) -> Decoder:
    known = field.encoding == kind and field.dtype != "object"
    if kind == "image":
        shape = field.shape or None
        # What has another number of channels is made one of colours; anything else than colours stays what it is.
        channels = _COLOURS if shape is not None and shape[-1] == _COLOURS else 0
        return Decoder("image", field.dtype if known else None, shape=shape, channels=channels)
    if kind == "npy":
        return Decoder("npy", field.dtype if known else None, shape=field.shape if known else None)
    return Decoder(kind)


def _as_said(name: str, how: Any, schema: Callable[[], Schema], in_graph: bool) -> Decoder:
    if isinstance(how, Decoder):
        return how
    if isinstance(how, Field):
        return _by_schema(how)
    if how is True:
        return _by_name(_as_seen(schema(), schema()[name]))
    if how is None or how is False:
        return Decoder("bytes")
    if isinstance(how, str) and how in KINDS:
        return _said_as_seen(name, how, schema()) if in_graph and how in _SEEN else Decoder(how)
    if isinstance(how, Sequence) and not isinstance(how, str):
        return Decoder("label", vocabulary=tuple(map(str, how)))
    if isinstance(how, str | type | np.dtype) or hasattr(how, "as_numpy_dtype"):
        return Decoder("number", _number_type(name, how))
    if callable(how):
        return Decoder("function", function=how)
    raise SchemaError(f"field {name!r}: {how!r} says no way of decoding")


def _said_as_seen(name: str, kind: str, seen: Schema) -> Decoder:
    """What a sample knows of an array, whose type has to be known in a dataset, and of an image's channels."""
    return _typed(kind, _as_seen(seen, seen[name])) if name in seen else Decoder(kind)


def _number_type(name: str, how: Any) -> str:
    try:
        dtype = np.dtype(getattr(how, "as_numpy_dtype", how))
    except TypeError as error:
        raise SchemaError(
            f"field {name!r} is decoded as one of {', '.join(KINDS)}, as a number's type, by a vocabulary "
            f"or by a function; not {how!r}"
        ) from error
    if dtype.kind not in "iuf":
        raise SchemaError(f"field {name!r}: text is no {dtype}")
    return dtype.name


@dataclass(frozen=True)
class Decoding:
    """The decoders of a record's fields; a function of plain records, and in a graph of records of tensors."""

    decoders: dict[str, Decoder]
    said: bool = False  # by the user, field by field: what cannot be done then is an error
    where: str = ""  # records without a shard come from

    def __call__(self, record: Record) -> Record:
        """A record with the decoded values. A MappingError names the record and the field.

        Of a record that is traced, a field is decoded when it is read.
        """
        lazily = getattr(record, "lazily", None)
        if lazily is not None:
            return lazily({name: partial(self._value, record, name, each) for name, each in self.decoders.items()})
        decoded = record.copy()
        for name, decoder in self.decoders.items():
            if name in decoded:
                decoded[name] = self._value(record, name, decoder)
        return decoded

    def _value(self, record: Record, name: str, decoder: Decoder) -> Any:
        value = record[name]
        if is_tensor(value):
            return value if decoder.kind in WITHOUT_TENSOR and not self.said else decoder.in_graph(value)
        try:
            return decoder(value)
        except (MappingError, MissingField):
            raise
        except Exception as error:
            raise _failure(error, record, name, decoder, self.where) from error

    def before(self, function: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
        """`function` of decoded records; without one, the records themselves."""
        import tensorflow as tf

        decoded: Callable[[Any], Any] = tf.autograph.experimental.do_not_convert(self.__call__)
        if function is None:
            return decoded

        def mapped(record: Any) -> Any:
            return function(decoded(record))

        if hasattr(function, "fields"):
            mapped.fields = function.fields  # type: ignore[attr-defined]
        return mapped


def _failure(error: Exception, record: Record, name: str, decoder: Decoder, where: str) -> Tar2TFError:
    if isinstance(error, MissingDependency):
        return error
    how = decoder.kind if decoder.function is None else "its function says"
    return MappingError(
        f"field {name!r} did not decode as {how}: {told(error)}{next_of_image(error, {name: record[name]})}",
        shard=record.get("__shard__", where),
        key=record.get("__key__", ""),
    )
