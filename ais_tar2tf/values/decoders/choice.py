"""The choice of a decoder for each field: by the option `decode=`, else by the field's name and a sample.

The function of a decoder is in `decoder.py`. This module must not decode a value by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ais_tar2tf.base.nearest import suggestion
from ais_tar2tf.errors import MappingError, MissingDependency, MissingField, OptionTypeError, SchemaError, Tar2TFError
from ais_tar2tf.records import KEY_AND_SHARD, Record, listed_fields
from ais_tar2tf.values.decoders.decoder import KINDS, WITHOUT_TENSOR, Decoder
from ais_tar2tf.values.graph_values import is_tensor
from ais_tar2tf.values.mapping_errors import describe_error, image_advice
from ais_tar2tf.values.schema import LABEL_FIELDS, Field, Schema, extension_of, is_written_number, kind_of_field

__all__ = ["Decode", "Decoding", "choose_decoding"]

Decode = bool | Schema | Mapping[str, Any]
"""True, a schema, or a dict by field name. A value of the dict is a kind (one of `KINDS`), the type of a number, the
words of a label, or a function.

For True, the names of the fields and a sample of the records select the decoders.
"""

_TYPED_IN_GRAPH = ("image", "npy")  # a dataset has to know the type of their values before it decodes one
_COLOUR_CHANNELS = 3  # red, green and blue
_NUMBER_FIELDS = frozenset({*LABEL_FIELDS, "cls2", "index", "id"})  # extensions of text fields that may hold a number


def choose_decoding(
    decode: Decode,
    schema: Callable[[], Schema],
    *,
    names: Callable[[], Collection[str]] = tuple,
    sampled: bool = True,
    in_graph: bool = False,
) -> Decoding:
    """Return the decoders that the option `decode=` selects.

    Args:
        decode: The option.
        schema: Returns the schema of a sample. It is called only when the option does not state the type of a field.
        names: Returns the names of the fields that records may have: the fields of a sample, or the selected fields.
            When there are no records, the result is empty, and every name is accepted.
        sampled: Whether `names` returns the fields of a sample. If it does, later records may have more fields.
        in_graph: Whether the decoders also have to decode tensors.

    Raises:
        OptionTypeError: `decode` is no valid option.
        SchemaError: `decode` names a field that no record has, or no valid decoder.
    """
    if isinstance(decode, Schema):
        _check_schema(decode, names())
        decoders = {field.name: _by_schema(_generalized(decode, field)) for field in decode}
    elif isinstance(decode, Mapping):
        _check_names(decode.keys(), names(), sampled=sampled)
        decoders = {name: _by_option(name, option, schema, in_graph) for name, option in decode.items()}
    elif decode is True:
        sample = schema()
        decoders = {field.name: _by_name(_generalized(sample, field)) for field in sample}
    else:
        raise OptionTypeError(f"decode is True, a Schema, or a dict of what becomes of each field, not {decode!r}")
    if in_graph:
        decoders = {name: replace(decoder, by_tensorflow=True) for name, decoder in decoders.items()}
    return Decoding(decoders, explicit=isinstance(decode, Mapping))


def _check_names(decoded: Collection[str], names: Collection[str], *, sampled: bool) -> None:
    """Check that records have the fields that `decode=` names. Otherwise a wrong name would be ignored silently."""
    for name in decoded if names else ():
        if name in names or name in KEY_AND_SHARD:
            continue
        rare = f"; a field that is rare is selected first: select({name + '?'!r}, …)" if sampled else ""
        raise SchemaError(
            f"decode= names field {name!r}, and none of the {'first ' if sampled else ''}records has it "
            f"(there are: {listed_fields(names)}){suggestion(name, names) or rare}"
        )


def _check_schema(schema: Schema, names: Collection[str]) -> None:
    """Check that records have at least one field of a schema. A schema may have more fields than are selected."""
    if names and schema.names and not set(schema.names) & set(names):
        raise SchemaError(
            f"none of the schema's fields ({listed_fields(schema.names)}) is in the first records, "
            f"which have: {listed_fields(names)}"
        )


def _generalized(schema: Schema, field: Field) -> Field:
    """Return a field of a schema. If the schema describes only a sample, remove the sizes and words of the field.

    Records after the sample may have other sizes and words. The number of channels of an image is kept, because a
    network is built for one number of channels.
    """
    if not schema.sampled:
        return field
    kept = field.shape[-1:] if field.encoding == "image" and len(field.shape) == 3 else ()
    return replace(field, shape=((None,) * (len(field.shape) - len(kept)) + kept), vocabulary=None)


def _by_name(field: Field) -> Decoder:
    """Return the decoder of a field of a sample.

    The extension of the field selects the decoder. If the extension is unknown, the encoding that was found in the
    sample selects it. A label, index or id decodes to a number if the values in the sample are numbers. A field of
    unknown kind stays bytes.
    """
    kind = kind_of_field(field.name)
    if kind is None and field.encoding in ("image", "npy", "audio", "hdf5", "netcdf"):
        kind = field.encoding
    if kind == "text":
        numeric = extension_of(field.name) in _NUMBER_FIELDS and field.dtype in ("int64", "float64")
        return Decoder("number", field.dtype) if numeric else Decoder("text" if field.dtype != "bytes" else "bytes")
    return _typed(kind, field) if kind is not None else Decoder("bytes")


def _by_schema(field: Field) -> Decoder:
    """Return the decoder for the values that a schema states for a field, whatever the name of the field is."""
    if field.vocabulary is not None:
        return Decoder("label", vocabulary=field.vocabulary)
    if field.encoding == "text":
        return Decoder("text") if field.dtype == "string" else Decoder("number", field.dtype)
    if field.is_file:
        return _typed(field.encoding, field)
    return Decoder("number", field.dtype) if is_written_number(field) else Decoder("bytes")


def _typed(kind: str, field: Field) -> Decoder:
    """Return the decoder of a kind. A decoder of images or arrays gets the type and shape that `field` states."""
    is_typed = field.encoding == kind and field.dtype != "object"
    if kind == "image":
        shape = field.shape or None
        # If the images of the sample have three channels, all images get three; else each image keeps its channels.
        channels = _COLOUR_CHANNELS if shape is not None and shape[-1] == _COLOUR_CHANNELS else 0
        return Decoder("image", field.dtype if is_typed else None, shape=shape, channels=channels)
    if kind == "npy":
        return Decoder("npy", field.dtype if is_typed else None, shape=field.shape if is_typed else None)
    return Decoder(kind)


def _by_option(name: str, option: Any, schema: Callable[[], Schema], in_graph: bool) -> Decoder:
    """Return the decoder that the dict `decode=` selects for one field by its value `option`."""
    if isinstance(option, Decoder):
        return option
    if isinstance(option, Field):
        return _by_schema(option)
    if option is True:
        return _by_name(_generalized(schema(), schema()[name]))
    if option is None or option is False:
        return Decoder("bytes")
    if isinstance(option, str) and option in KINDS:
        if in_graph and option in _TYPED_IN_GRAPH and name in (sample := schema()):
            return _typed(option, _generalized(sample, sample[name]))
        return Decoder(option)
    if isinstance(option, Sequence) and not isinstance(option, str):
        return Decoder("label", vocabulary=tuple(map(str, option)))
    if isinstance(option, str | type | np.dtype) or hasattr(option, "as_numpy_dtype"):
        return Decoder("number", _number_type(name, option))
    if callable(option):
        return Decoder("function", function=option)
    raise SchemaError(f"field {name!r}: {option!r} is no way of decoding")


def _number_type(name: str, option: Any) -> str:
    try:
        dtype = np.dtype(getattr(option, "as_numpy_dtype", option))
    except TypeError as error:
        raise SchemaError(
            f"field {name!r} is decoded as one of {', '.join(KINDS)}, as a number's type, by a vocabulary "
            f"or by a function; not {option!r}"
        ) from error
    if dtype.kind not in "iuf":
        raise SchemaError(f"field {name!r}: text is no {dtype}")
    return dtype.name


@dataclass(frozen=True)
class Decoding:
    """The decoders of a record's fields.

    Call the object with a record of bytes; in a graph, call it with a record of tensors.

    Attributes:
        decoders: The decoders, by field name.
        explicit: Whether the user named each field. It decides about a field whose values cannot be tensors: in a
            graph, such a field is an error if `explicit` is true; otherwise, it stays bytes.
        where: The folder or URL that an error names when a record does not name its shard.
    """

    decoders: dict[str, Decoder]
    explicit: bool = False
    where: str = ""

    def __call__(self, record: Record) -> Record:
        """Return a copy of a record with decoded values.

        While a mapping is traced into a graph, a field is decoded only when the mapping reads it.

        Raises:
            MappingError: A field cannot be decoded. The error names the record and the field.
        """
        lazily = getattr(record, "lazily", None)
        if lazily is not None:
            return lazily({name: partial(self._value, record, name, used) for name, used in self.decoders.items()})
        decoded = record.copy()
        for name, decoder in self.decoders.items():
            if name in decoded:
                decoded[name] = self._value(record, name, decoder)
        return decoded

    def _value(self, record: Record, name: str, decoder: Decoder) -> Any:
        value = record[name]
        if is_tensor(value):
            return value if decoder.kind in WITHOUT_TENSOR and not self.explicit else decoder.decode_tensor(value)
        try:
            return decoder(value)
        except (MappingError, MissingField):
            raise
        except Exception as error:
            raise _failure(error, record, name, decoder, self.where) from error

    def before(self, function: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
        """Return a mapping that decodes a record and, unless `function` is None, calls `function` with the result."""
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
    method = decoder.kind if decoder.function is None else "its function says"
    advice = image_advice(error, {name: record[name]})
    return MappingError(
        f"field {name!r} did not decode as {method}: {describe_error(error)}{advice}",
        shard=record.get("__shard__", where),
        key=record.get("__key__", ""),
    )
