"""Arguments of a wrong type or value are refused at once, in one line that says how to write them."""

from __future__ import annotations

import inspect
import io
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf import ops, options
from ais_tar2tf.base.arguments import Arguments
from ais_tar2tf.errors import MappingError, OptionError, OptionTypeError, SchemaError, Tar2TFError, original
from ais_tar2tf.recordfiles.export.request import ExportKeywords, ExportOptions
from ais_tar2tf.source import Source
from ais_tar2tf.source.dataset_options import DatasetKeywords, DatasetOptions, LoadedRecordsKeywords
from ais_tar2tf.source.opening import OpenKeywords, OpenOptions
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import shards as made

RECORDS = 12
NOWHERE = "http://127.0.0.1:1"  # no request is ever sent to it


def npy(length: int) -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(length))
    return file.getvalue()


@pytest.fixture(scope="module")
def typed_url() -> str:
    store = MemoryStore("arguments")
    store.put("a.tar", made.labelled("a", RECORDS, lambda i: {"jpg": b"x", "txt": b"hi", "cls": b"%d" % i}))
    return store.url("a.tar")


@pytest.fixture(scope="module")
def ragged() -> str:
    store = MemoryStore("ragged")
    store.put("a.tar", made.labelled("a", RECORDS, lambda i: {"npy": npy(1 + i % 3), "cls": b"%d" % i}))
    return store.url("a.tar")


def refused(call: Any, *told: str, kind: type[Tar2TFError] = OptionTypeError) -> None:
    """Expect one line of one kind of error that holds all of these texts."""
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    for part in told:
        assert part in text


# Options of t2t.open and AisDataset

OF_BOTH = {
    "retry number": (
        {"retry": 3},
        "retry is a t2t.options.Retry or None, not 3: write retry=t2t.options.Retry(attem",
    ),
    "retry dict": ({"retry": {"attempts": 3}}, "write retry=t2t.options.Retry(attempts=3)"),
    "timeouts": ({"timeouts": 2.5}, "write timeouts=t2t.options.Timeouts(connect=2.5)"),
    "tls on": ({"tls": True}, "write tls=t2t.options.Tls(verify=True)"),
    "tls off": ({"tls": False}, "write tls=t2t.options.Tls(verify=False)"),
    "tls file": ({"tls": "/ca.pem"}, "write tls=t2t.options.Tls(ca='/ca.pem')"),
    "limits dict": ({"limits": {"a": 1}}, "limits is a t2t.options.Limits or None, not {'a': 1}: write"),
    "limits": ({"limits": 5}, "write limits=t2t.options.Limits(template=5)"),
    "other options": ({"limits": options.Retry()}, "limits is a t2t.options.Limits or None, not Retry("),
    "token": ({"token": 5}, "token is text, a function or None, not int"),
    "missing end": ({"allow_missing_end": "no"}, "allow_missing_end is True or False, not 'no'"),
    "concatenated": ({"allow_concatenated": 1}, "allow_concatenated is True or False, not 1"),
    "connections": ({"connections": "2"}, "connections is a whole number or None, not '2'"),
    "cache": ({"cache": 3}, "cache is text, a path, a t2t.options.Cache or None, not 3: give the path of a folder"),
    "cache on": ({"cache": True}, "'memory' or t2t.options.Cache(dir)"),
    "cache off": ({"cache": False}, "leave cache= out"),
    "cache dict": ({"cache": {"dir": "x"}}, "write cache=t2t.options.Cache(dir='x')"),
}


@pytest.mark.parametrize(("given", "told"), OF_BOTH.values(), ids=OF_BOTH)
def test_options_are_checked_before_any_request(typed_url, given, told):
    refused(lambda: t2t.open(typed_url, **given), told)
    refused(lambda: t2t.AisDataset("b", NOWHERE, **given), told)


WORDS = {
    "grouping": ({"grouping": "lastdot"}, "did you mean 'last-dot'?"),
    "grouping number": ({"grouping": 3}, "grouping is one of first-dot, last-dot or a callable, not 3"),
    "on_error": ({"on_error": "skip"}, "on_error is one of raise, skip-record, skip-shard", "mean 'skip-record'?"),
    "memory": ({"cache": "mem"}, "cache 'mem' would be a folder; did you mean 'memory'? For the folder, say './mem'"),
}


@pytest.mark.parametrize("case", WORDS.values(), ids=WORDS)
def test_a_misspelt_word_is_refused_with_a_suggestion(typed_url, case):
    given, *told = case
    refused(lambda: t2t.open(typed_url, **given), *told, kind=OptionError)
    if "on_error" not in given:
        refused(lambda: t2t.AisDataset("b", NOWHERE, **given), *told, kind=OptionError)


def test_a_cache_folder_named_memory_is_written_as_a_path(typed_url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(list(t2t.open(typed_url, cache="./mem").records())) == RECORDS
    assert Path("mem").is_dir()
    assert not options.Cache(Path("memory")).in_memory
    assert options.Cache("shards").dir == "shards"


@pytest.mark.parametrize("token", [b"s3cret", ["s3cret"]])
def test_an_error_never_shows_a_token(typed_url, token):
    with pytest.raises(OptionTypeError) as caught:
        t2t.open(typed_url, token=token)
    assert "s3cret" not in str(caught.value)


def test_arguments_of_the_right_type_are_accepted(typed_url, tmp_path):
    t2t.open(
        typed_url, connections=np.int64(2), allow_missing_end=np.bool_(True), token=lambda: "x", cache=tmp_path / "c"
    )
    t2t.open(typed_url, connections=2.0, index=False, retry=None, limits=options.Limits(), fields=("txt",))
    t2t.open(typed_url, tls=options.Tls(ca=tmp_path / "ca.pem"), endpoint=None, on_error=lambda _: True)
    assert t2t.open(typed_url).dataset(batch=np.int32(4), drop_remainder=np.True_).element_spec["cls"].shape == (4,)


# Wrong calls of every public function, under the names that users call

CALLS = {
    "bucket": (lambda _: t2t.AisDataset(3, NOWHERE), "bucket is text, not 3"),
    "no bucket": (lambda _: t2t.AisDataset(None, NOWHERE), "bucket is text, not None"),
    "proxy": (lambda _: t2t.AisDataset("b", 51080), "proxy_url is text or None, not 51080: give a URL, as 'http://"),
    "endpoint": (lambda u: t2t.open(u, endpoint=51080), "endpoint is text or None, not 51080: give a URL, as 'http"),
    "index": (lambda u: t2t.open(u, index=None), "index is text, a path, True or False, not None: False reads with"),
    "open nothing": (lambda _: t2t.open(), "open() needs 'urls'"),
    "open two": (lambda u: t2t.open(u, NOWHERE), "open() takes only urls by position", "by name, as endpoint=…"),
    "open twice": (lambda u: t2t.open(u, urls=u), "open() got 'urls' twice"),
    "index two": (lambda u: t2t.index(u, "x", 3), "index() takes only urls, out by position, and 3 arguments came"),
    "iter_records": (lambda _: t2t.iter_records(), "iter_records() needs 'urls'"),
    "records": (lambda u: t2t.open(u).records("jpg"), "Source.records() takes nothing by position"),
    "map": (lambda u: t2t.open(u).dataset("jpg"), "map is a function or None, not 'jpg'", "use select('jpg')"),
    "splits": (
        lambda u: t2t.open(u).export("x", splits=[0.9, 0.1]),
        "splits is a dict or None, not [0.9, 0.1]: name them, as {'train': 0.9, 'val': 0.1}",
    ),
    "workers": (lambda u: t2t.open(u).export("x", workers="2"), "workers is a whole number or None, not '2'"),
    "schema": (lambda u: t2t.open(u).export("x", schema=3), "schema is a Schema or None, not 3"),
    "schema dict": (
        lambda u: t2t.open(u).export("x", schema={"cls": "int64"}),
        "for numbers alone write types={'cls': 'int64'}",
    ),
    "shard": (lambda u: t2t.open(u).export("x", shard=3), "shard is 2 values, each a whole number or None"),
    "write None": (lambda _: t2t.write_dataset(None, "x"), "dataset is a tf.data.Dataset, not None"),
    "write list": (lambda _: t2t.write_dataset([1, 2], "x"), "tf.data.Dataset.from_tensor_slices makes one"),
    "port": (lambda _: t2t.serve(".", port="80a"), "port is a whole number, not '80a'"),
    "mix": (lambda _: t2t.mix(3), "sources is a list, not 3: give a list of what t2t.open gives"),
    "weights": (lambda u: t2t.mix([t2t.open(u)], weights=3), "weights is a list or None, not 3"),
    "selections": (lambda _: t2t.AisDataset("b", NOWHERE, selections=3), "selections is text, a dict, a Selection"),
    "conversions": (lambda _: t2t.AisDataset("b", NOWHERE, conversions="jpg"), "conversions is a list, not 'jpg'"),
    "Cache": (lambda _: options.Cache(), "Cache() needs 'dir'"),
    "Retry": (lambda _: options.Retry(3), "Retry() takes nothing by position", "by name, as attempts=…"),
    "Hdf5": (lambda _: options.Hdf5(second=1), "Hdf5() has no option 'second'; did you mean 'seconds'?"),
    "Read": (lambda _: options.Read(retry=3), "Read.retry is a t2t.options.Retry, not 3"),
    "Tls": (lambda _: options.Tls(verify="no"), "Tls.verify is True or False, not 'no'"),
    "Shuffle": (lambda _: options.Shuffle(whole="yes"), "Shuffle.whole is True or False, not 'yes'"),
    "number": (lambda u: t2t.open(u)["a"], "a record's number is a whole number, not 'a'"),
    "numbers": (lambda u: t2t.open(u).dataset(batch=np.arange(3)), "batch is a whole number, not array([0, 1, 2])"),
    "half": (lambda u: t2t.open(u)[1.5], "a record's number is a whole number, not 1.5"),
    "slice": (lambda u: t2t.open(u)["a":], "the begin of a slice of records is a whole number, not 'a'"),
    "drop_remainder": (lambda u: t2t.open(u).dataset(batch=2, drop_remainder="no"), "True or False, not 'no'"),
    "watch": (lambda _: t2t.Watch(3), "source is what t2t.open or t2t.mix gave, not 3"),
    "openmetrics": (lambda _: t2t.openmetrics(3), "stats is a Stats, not 3"),
}


@pytest.mark.parametrize("case", CALLS.values(), ids=CALLS)
def test_wrong_calls(typed_url, tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    call, *told = case
    refused(lambda: call(typed_url), *told)
    assert not list(tmp_path.iterdir())


def test_serve_needs_a_folder():
    refused(lambda: t2t.serve(None), "the directory to serve is a folder (a str or a path), not", kind=Tar2TFError)


def test_a_loaded_export_and_its_splits(typed_url, tmp_path):
    t2t.open(typed_url).export(tmp_path / "out", workers=1)
    refused(lambda: t2t.load(tmp_path / "out").records(3), "split is text or None, not 3")
    refused(lambda: t2t.load(tmp_path / "out").dataset(split=None), "split is text, not None")


def test_a_mapping_for_a_loaded_export(typed_url, tmp_path):
    t2t.open(typed_url).export(tmp_path / "out", workers=1)
    loaded, behind = t2t.load(tmp_path / "out"), "goes behind, as .dataset('train').map(function).batch(32)"
    for ask in (
        lambda: loaded.dataset(returns),
        lambda: loaded.dataset("train", returns),
        lambda: loaded.dataset(map=returns),
    ):
        refused(ask, behind)
    refused(lambda: loaded.records("train", returns), "as map(function, loaded.records('train'))")
    refused(lambda: loaded.split(returns), "split", "is text, not ", "as map(function, loaded.split('train'))")
    assert len(list(loaded.dataset("train").map(lambda record: record["cls"]).batch(5))) == 3


def test_slices_with_steps(typed_url):
    refused(lambda: t2t.open(typed_url)[::0], "is not 0", kind=OptionError)


def test_annotations_of_all_public_functions_can_be_evaluated():
    """All annotations can be evaluated.

    One with a name that only type checkers import would silently not be checked.
    """
    for function, least in ((t2t.open, 12), (t2t.AisDataset.__init__, 11), (t2t.write_dataset, 7), (t2t.load, 5)):
        plain: Any = inspect.unwrap(function)
        assert len(Arguments(plain, "f")._kinds) >= least  # pyright: ignore[reportPrivateUsage]


# Fields


def test_fields_are_one_name_or_a_list(typed_url):
    for source in (
        t2t.open(typed_url, fields="txt"),
        t2t.open(typed_url, fields=["txt"]),
        t2t.open(typed_url).select("txt"),
        t2t.open(typed_url).select(["txt"]),
    ):
        assert set(next(source.records())) == {"txt", "__key__", "__shard__"}
    for source in (t2t.open(typed_url).select(["jpg", "cls?"]), t2t.open(typed_url).select("jpg", "cls?")):
        assert set(next(source.records())) == {"jpg", "cls", "__key__", "__shard__"}


@pytest.mark.parametrize("text", ["jpg,cls", "jpg, cls"])
def test_several_fields_in_one_text(typed_url, text):
    refused(lambda: t2t.open(typed_url, fields=text), "list several fields, as ['jpg', 'cls']", kind=OptionError)
    refused(lambda: t2t.open(typed_url).select(text), "list several fields, as ['jpg', 'cls']", kind=OptionError)


@pytest.mark.parametrize("wrong", [3, {"jpg": 1}, {"jpg", "cls"}, b"jpg"])
def test_selections_without_fields_are_refused(typed_url, wrong):
    refused(
        lambda: t2t.open(typed_url, fields=wrong),
        "fields is text, a list or None, not ",
        "list them, as ['jpg', 'cls']",
    )


@pytest.mark.parametrize("wrong", [(3,), ([3],), (["jpg"], "cls")])
def test_invalid_fields_are_refused(typed_url, wrong):
    refused(lambda: t2t.open(typed_url).select(*wrong), "a field is asked for by its name, not by ")


# Conversions and selections

OPS = {
    "one number": (
        lambda: ops.Resize("jpg", 64),
        "Resize.size is 2 values, each a whole number, not 64: say (height, w",
    ),
    "text": (lambda: ops.Resize("jpg", "64"), "not '64': say (height, width)"),
    "iterator": (lambda: ops.Resize("jpg", map(int, "64")), "not <map object at", "say (height, width)"),
    "vocabulary iterator": (lambda: ops.Decode("cls", vocabulary=iter(["a"])), "vocabulary is a list of text"),
    "one of two": (lambda: ops.Resize("jpg", (64,)), "not (64,): say (height, width)"),
    "half pixels": (lambda: ops.Resize("jpg", (6.5, 4)), "not (6.5, 4)"),
    "field": (lambda: ops.Resize(3, (6, 4)), "Resize.field is text, not 3"),
    "channels": (lambda: ops.Decode("image", channels="3"), "Decode.channels is a whole number, not '3'"),
    "at_least": (
        lambda: ops.Decode("image", at_least=64),
        "Decode.at_least is 2 values, each a whole number or None",
    ),
    "kind": (lambda: ops.Decode("image", 3), "Decode.kind is text or None, not 3"),
    "vocabulary": (
        lambda: ops.Decode("cls", vocabulary="abc"),
        "Decode.vocabulary is a list of text or None, not 'ab",
    ),
    "degrees": (lambda: ops.Rotate("jpg", "90"), "Rotate.degrees is a number, not '90'"),
    "Convert": (lambda: ops.Convert(1, "int32"), "Convert.field is text, not 1"),
    "Rename": (lambda: ops.Rename(image=3), "Rename takes new='old' or new='a;b', not {'image': 3}"),
    "Rename list": (lambda: ops.Rename(["a"]), "Rename.names is a dict or None, not ['a']"),
    "Rename two": (lambda: ops.Rename("a", "b"), "Rename() takes only names by position"),
    "Func": (lambda: ops.Func("jpg"), "Func.function is a function, not 'jpg'"),
    "Select": (lambda: ops.Select(3), "Select.field is text, not 3"),
    "path": (lambda: ops.SelectJSON("json", 3.5), "SelectJSON.path is a key, a place, or a list of these"),
    "SelectList": (lambda: ops.SelectList("ab"), "SelectList.items is a list, not 'ab'"),
    "SelectDict": (lambda: ops.SelectDict(["a"]), "SelectDict takes", "as {'image': 'jpg'}, not ['a']"),
    "SelectDict tuple": (lambda: ops.SelectDict(("jpg", "cls")), "SelectDict takes", "not ('jpg', 'cls')"),
    "SelectDict letters": (lambda: ops.SelectDict(("ab", "cd")), "SelectDict takes", "not ('ab', 'cd')"),
    "Pipeline": (lambda: ops.Pipeline(3), "conversions is a list, not 3"),
    "to_json": (lambda: ops.to_json(3), "ops is a list, not 3"),
}


@pytest.mark.parametrize("case", OPS.values(), ids=OPS)
def test_arguments_of_ops(case):
    make, *told = case
    refused(make, *told)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: ops.Decode("image", channels=7), "Decode.channels is 1 (grey), 3 (colours), 4"),
        (lambda: ops.Decode("cls", "npy", channels=3), "channels= has no effect on a field that is decoded as npy"),
        (lambda: ops.Decode("cls", at_least=(8, 8)), "at_least= has no effect on a field that is decoded as number"),
        (lambda: ops.Rotate("jpg", float("nan")), "Rotate.degrees is a number of degrees, not nan"),
        (lambda: ops.Select(""), "Select.field is the name of a field, not an empty text"),
    ],
)
def test_values_that_ops_cannot_have(make, told):
    refused(make, told, kind=OptionError)


def test_unknown_types_are_refused():
    refused(lambda: ops.Convert("jpg", None), "there is no type None: say one", kind=SchemaError)
    refused(lambda: ops.Resize("jpg", (64, 0)), "of one pixel at least, not (64, 0)", kind=SchemaError)


def test_a_field_may_have_the_name_of_an_argument():
    record = {"cls": b"1"}
    assert ops.Rename(names="cls")(record) == ops.Rename({"names": "cls"})(record) == {"names": b"1"}


def test_arguments_of_ops_are_normalized():
    assert ops.Resize("jpg", [np.int64(6), 4.0]) == ops.Resize("jpg", (6, 4))
    assert ops.Decode("jpg", channels=np.int64(3), dtype=tf.uint8).to_json()["channels"] == 3
    written = [ops.SelectDict({"a": ops.SelectJSON("json", ["b", 0], dtype="int32")}), ops.Rotate("jpg", 90)]
    assert ops.from_json(ops.to_json(written)) == written


# Options that have no effect together


def test_two_seeds_that_differ(typed_url):
    for ask in (t2t.open(typed_url).dataset, t2t.open(typed_url).records, t2t.mix([t2t.open(typed_url)]).dataset):
        refused(lambda: ask(shuffle=options.Shuffle(seed=1), seed=2), "seed=2 and Shuffle(seed=1)", kind=OptionError)  # noqa: B023
    same = t2t.open(typed_url).dataset(shuffle=options.Shuffle(seed=1), seed=1)
    other = t2t.open(typed_url).dataset(shuffle=options.Shuffle(), seed=1)
    assert [r["__key__"].numpy() for r in same] == [r["__key__"].numpy() for r in other]


@pytest.mark.parametrize("repeat", [None, -1])
def test_repeating_forever(typed_url, repeat):
    assert t2t.open(typed_url).dataset(repeat=repeat).cardinality() == tf.data.INFINITE_CARDINALITY
    endless = t2t.open(typed_url).records(repeat=repeat)
    assert [next(endless)["__key__"] for _ in range(2 * RECORDS)][::RECORDS] == ["a/000000"] * 2


@pytest.mark.parametrize("repeat", [0, -2])
def test_repeating_zero_times_is_refused(typed_url, repeat):
    for ask in (t2t.open(typed_url).dataset, t2t.open(typed_url).records):
        refused(lambda: ask(repeat=repeat), f"repeat is 1 or more, or None for ever, not {repeat}", kind=OptionError)  # noqa: B023


# Batches of values with different shapes

SHAPES = "have different shapes, [1] and [2], and make no batch: give them one shape in a mapping"


@pytest.mark.parametrize(
    "make",
    [
        lambda source: source.dataset(decode=True, batch=4),
        lambda source: source.dataset(decode=True).batch(4),
        lambda source: source.dataset(decode=True).batch(4, drop_remainder=True).prefetch(1),
        lambda source: t2t.mix([source]).dataset(decode=True, batch=4),
    ],
)
def test_a_batch_of_different_shapes_names_the_field(ragged, make):
    refused(lambda: list(make(t2t.open(ragged))), f"the values of field 'npy' {SHAPES}", kind=SchemaError)


def test_a_value_of_a_tuple_is_named_by_its_position(ragged):
    def pair(record: Any) -> Any:
        return record["cls"], record["npy"]

    dataset = t2t.open(ragged).dataset(pair, decode={"npy": "npy"}, batch=4)
    refused(lambda: list(dataset), f"the values of value 1 of the element {SHAPES}", kind=SchemaError)


def test_batches_that_are_padded_instead(ragged):
    dataset = t2t.open(ragged).dataset(decode=True)
    assert [each["npy"].shape for each in dataset.padded_batch(4)] == [(4, 3)] * 3
    assert [each["npy"].shape[0] for each in dataset.ragged_batch(4)] == [4] * 3


def test_errors_of_the_users_own_batches_are_unchanged(ragged):
    dataset = t2t.open(ragged).dataset(decode=True, batch=4)
    other = tf.data.Dataset.from_generator(
        lambda: iter([np.zeros((2, 2)), np.zeros((1, 2))]), output_signature=tf.TensorSpec((None, 2))
    )
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        list(other.batch(2))
    assert original(caught.value) is None
    assert dataset.batch_size == 4


# Results of Python mappings that contradict the declared types and shapes


def returns(record: Any) -> Any:
    return int(record["cls"]), np.zeros(3)


SAID = {
    "fewer": (tf.int64, (), "it returned 2 values, and output_types has 1"),
    "longer": (
        (tf.int64, tf.float32),
        ((), (4,)),
        "value 1 that it returned has the shape (3,), and output_shapes says (4",
    ),
    "scalar": (
        (tf.int64, tf.float32),
        ((), ()),
        "value 1 that it returned has the shape (3,), and output_shapes says ()",
    ),
    "text": ((tf.string, tf.float32), ((), (3,)), "value 0 that it returned is int, and output_types says text"),
    "texts": ((tf.int64, tf.string), ((), (3,)), "value 1 that it returned is float, and output_types says text"),
    "one of three": ((tf.float32, tf.int64), ((3,), ()), "value 0 that it returned has the shape (), and"),
}


@pytest.mark.parametrize("batch", [None, 4])
@pytest.mark.parametrize(("types", "shapes", "told"), SAID.values(), ids=SAID)
def test_results_that_contradict_a_python_mapping(typed_url, types, shapes, told, batch):
    dataset = t2t.open(typed_url).dataset(returns, graph=False, output_types=types, output_shapes=shapes, batch=batch)
    refused(lambda: list(dataset), "record 'a/000000': the mapping failed", told, kind=MappingError)


@pytest.mark.parametrize("graph", [True, False])
def test_one_value_of_unknown_length_is_a_vector(typed_url, graph):
    """As tf.TensorShape((None,)), and not a value of unknown rank."""

    def dataset(shape: tuple[int, ...]) -> Any:
        options = {"graph": graph, "output_types": tf.float32, "output_shapes": (None,)}
        return t2t.open(typed_url).dataset(lambda _: tf.zeros(shape), **options)

    assert dataset((3,)).element_spec.shape.rank == 1
    assert len(list(dataset((3,)))) == RECORDS
    refused(lambda: list(dataset((2, 3))), "shape", kind=SchemaError if graph else MappingError)


def test_values_that_are_no_numbers():
    store = MemoryStore("words")
    store.put("a.tar", made.labelled("a", 3, lambda _: {"txt": b"cat"}))
    dataset = t2t.open(store.url("a.tar")).dataset(
        lambda r: r["txt"], graph=False, output_types=tf.int64, output_shapes=()
    )
    refused(lambda: list(dataset), "value 0 that it returned is no int64, as output_types says", kind=MappingError)


def test_results_that_agree_are_accepted(typed_url):
    shapes = ((), (None,))
    dataset = t2t.open(typed_url).dataset(
        returns, graph=False, output_types=(tf.int64, tf.float32), output_shapes=shapes
    )
    assert [int(label) for label, _ in dataset] == list(range(RECORDS))
    texts = t2t.open(typed_url).dataset(
        lambda _: ["a", b"bc"], graph=False, output_types=[tf.string] * 2, output_shapes=[(), ()]
    )
    assert [value.numpy() for value in next(iter(texts))] == [b"a", b"bc"]
    listed = t2t.open(typed_url).dataset(
        lambda _: np.array(["a", "b"]), graph=False, output_types=tf.string, output_shapes=(2,)
    )
    assert list(next(iter(listed)).numpy()) == [b"a", b"b"]


IN_GRAPHS = {
    "no text": (
        {"output_types": (tf.float32, tf.string)},
        "output_types says string, and the mapping returns float32",
    ),
    "shape": (
        {"output_shapes": ((), (4,))},
        "output_shapes says (4,), and the mapping returns a value of shape (3,)",
    ),
    "no type": ({"output_types": ("flaot", "int32")}, "there is no type 'flaot'"),
    "no shape": ({"output_shapes": 3}, "output_shapes holds shapes, as (224, 224, 3) or (), not 3"),
}


@pytest.mark.parametrize(("said", "told"), IN_GRAPHS.values(), ids=IN_GRAPHS)
def test_types_that_contradict_a_graph(typed_url, said, told):
    def graph(record: Any) -> Any:
        return tf.strings.to_number(record["cls"]), tf.zeros(3)

    refused(lambda: t2t.open(typed_url).dataset(graph, **said), told, kind=SchemaError)


def test_keywords_are_the_declared_options():
    """Every declared option is a parameter of a public function."""
    assert OpenKeywords.__annotations__.keys() == {each.name for each in fields(OpenOptions)}
    assert ExportKeywords.__annotations__.keys() == {each.name for each in fields(ExportOptions)}
    of_datasets = {*DatasetKeywords.__annotations__, *LoadedRecordsKeywords.__annotations__}
    assert of_datasets == {each.name for each in fields(DatasetOptions)}


@pytest.mark.parametrize("function", [t2t.open, t2t.AisDataset.__init__, t2t.load, Source.dataset, Source.export])
def test_help_documents_every_parameter(function):
    documented = inspect.getdoc(function)
    for name in inspect.signature(function).parameters.keys() - {"self"}:
        assert f"\n    {name}: " in documented
    assert "**options" not in documented
