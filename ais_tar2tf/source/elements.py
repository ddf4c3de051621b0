"""Builds a dataset: chooses the fields that its elements need, traces the mapping, and passes both to `tfdata`.

An element is what a dataset yields for one record. TensorFlow is imported only when a function is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import MissingField, OptionError, SchemaError
from ais_tar2tf.options import Shuffle
from ais_tar2tf.records import KEY_AND_SHARD, Selection, Want
from ais_tar2tf.source.dataset_options import DatasetOptions
from ais_tar2tf.source.description import as_line
from ais_tar2tf.source.field_checks import check_same_fields
from ais_tar2tf.source.opened import OpenedShards
from ais_tar2tf.source.sample import Sample
from ais_tar2tf.streams.datasets import Reading, size_of
from ais_tar2tf.values.default_mappings import declared_fields

if TYPE_CHECKING:
    from ais_tar2tf.tfdata.dataset import ShardDataset
    from ais_tar2tf.tfdata.mappings.mapping import GraphMapping, PythonMapping
    from ais_tar2tf.tfdata.request import Elements

__all__ = ["build_dataset", "plan_elements", "plan_elements_like"]

_Function = Callable[[Any], Any]


def plan_elements(
    opened: OpenedShards,
    map: _Function | None,  # noqa: A002
    options: DatasetOptions,
) -> tuple[OpenedShards, Elements]:
    """Describe the elements of a dataset, and select the fields that they need.

    The sample (the first records) shows which fields exist. Without `map` and `decode`, an element has their bytes.

    Returns:
        The shards with the selected fields, and the description of the elements.

    Raises:
        MissingField: The mapping reads a field that is not in the sample. Or there is neither a mapping nor a
            selection, and no record of the sample has all fields of the sample.
        SchemaError: The mapping needs output types. Or no fields are selected, and the sample is empty.
        OptionError: `graph` is given without a mapping.
    """
    opened = _with_declared_fields(opened, map)
    sample = opened.sample
    names, optional = sample.fields
    if map is None and opened.shards.selection is None:
        check_same_fields(sample.records, names)
    function = _after_decoding(map, sample, options)
    if function is None:
        if options.graph is not None:
            raise OptionError(f"graph={options.graph!r} decides how map= runs, and there is no map=")
        mapping = None
    else:
        mapping = _traced(function, sample, options, all_read=map is None)
        names = (*(name for name in mapping.fields if name not in KEY_AND_SHARD), *KEY_AND_SHARD)
    return _narrow(opened, sample, names, optional, mapping)


def plan_elements_like(
    first: Elements,
    opened: OpenedShards,
    map: _Function | None,  # noqa: A002
) -> tuple[OpenedShards, Elements]:
    """Describe the elements of another source of a mixture, and select the fields that they need.

    Args:
        first: The elements of the mixture's first source; their mapping is used again.
        opened: The other source.
        map: The user's mapping.

    Returns:
        The shards with the selected fields, and the description of the elements.

    Raises:
        SchemaError: The source has a field that the mapping treats as absent.
    """
    opened = _with_declared_fields(opened, map)
    sample = opened.sample
    names, optional = sample.fields
    if first.mapping is not None:
        surplus = [name for name in first.mapping.absent if name in names]
        if surplus:
            raise SchemaError(
                f"{as_line(opened.shards)} has a field {surplus[0]!r}, unlike the mixture's first source, and the "
                "mapping asks whether a record has that field; select() the fields that you need, and write 'cls?' "
                "if some records lack 'cls'"
            )
        names = tuple(name for name in first.names if name in names)
    return _narrow(opened, sample, names, optional | first.optional, first.mapping)


def build_dataset(
    elements: Elements,
    reading: Reading,
    account: Account,
    strategy: Shuffle | None,
    options: DatasetOptions,
) -> ShardDataset:
    """Build the dataset of the elements.

    Args:
        elements: The description of the elements.
        reading: The records that the dataset reads, in their order.
        account: Counts the records.
        strategy: The shuffle; None for the order of the shards.
        options: The user's options, for the epochs, the batches and the calls of the mapping.

    Raises:
        OptionError: `start_at` is after the last record.
    """
    from ais_tar2tf.tfdata.dataset import shard_dataset
    from ais_tar2tf.tfdata.request import DatasetRequest
    from ais_tar2tf.tfdata.tf import has_several_workers

    loop = options.loop(strategy, shared=has_several_workers())
    if strategy is not None:
        account.stats.seed = loop.seed.value
    request = DatasetRequest(
        reading=reading,
        account=account,
        elements=elements,
        loop=loop,
        parallel=options.calls,
        split=options.shard is not None,
    )
    loop.length(reading)  # raises OptionError if the loop starts after the last record
    return shard_dataset(request)


def _with_declared_fields(opened: OpenedShards, map: _Function | None) -> OpenedShards:  # noqa: A002
    """Select the fields that the mapping names in its attribute `fields`, unless the user selected fields."""
    declared = declared_fields(map)
    if declared is None or opened.shards.selection is not None:
        return opened
    return opened.selecting(declared)


def _after_decoding(map: _Function | None, sample: Sample, options: DatasetOptions) -> _Function | None:  # noqa: A002
    """Return a function that decodes fields and then calls the user's mapping, if there is one.

    Without decoding, return the user's mapping unchanged.
    """
    from ais_tar2tf.values.decoders import choose_decoding

    decode = options.decoding
    if decode is None:
        return map
    # Both are functions, because `choose_decoding` may need only one of them.
    read_schema, read_names = (lambda: sample.schema_to_decode(decode)), (lambda: sample.names)
    return choose_decoding(decode, read_schema, names=read_names, in_graph=True).before(map)


def _traced(
    function: _Function, sample: Sample, options: DatasetOptions, *, all_read: bool
) -> GraphMapping | PythonMapping:
    """Trace a function with the fields of the sample. `all_read` states that the function reads every field."""
    from ais_tar2tf.tfdata.mappings import tracing

    try:
        return tracing.prepare(
            function,
            sample.known_fields(all_read=all_read),
            sample.records[0] if sample.records else None,
            output_types=options.output_types,
            output_shapes=options.output_shapes,
            label_is_number=options.label_is_number,
            graph=options.graph,
        )
    except MissingField:
        sample.check()  # raises the error that ended the sample early, if one did: the field may be in a later record
        raise


def _narrow(
    opened: OpenedShards,
    sample: Sample,
    names: tuple[str, ...],
    optional: frozenset[str],
    mapping: GraphMapping | PythonMapping | None,
) -> tuple[OpenedShards, Elements]:
    """Select the fields that the elements need; return the shards and the description of the elements."""
    from ais_tar2tf.tfdata.mappings.mapping import PythonMapping
    from ais_tar2tf.tfdata.request import Elements

    sizes = [size_of({name: record.get(name) for name in names}) for record in sample.records]
    if not isinstance(mapping, PythonMapping):  # a mapping that runs as Python gets all fields
        opened = opened.selecting(_needed_fields(opened.shards.selection, names, mapping))
    return opened, Elements(names, optional, mapping, sum(sizes) // max(1, len(sizes)))


def _needed_fields(selection: Selection | None, names: tuple[str, ...], mapping: GraphMapping | None) -> Selection:
    """Return the selection of the named fields.

    Without a selection by the user, also select the fields that the traced mapping treats as absent. So a record that
    has such a field is noticed.
    """
    if selection is not None:
        return Selection([want for want in selection.wants if want.name in names])
    wants = [Want(name, (name,)) for name in names if name not in KEY_AND_SHARD]
    wants += [Want(name, (name,), optional=True) for name in mapping.absent] if mapping else []
    return Selection(wants)
