"""Options that have no effect or do not exist are errors that say what to write instead."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.errors import MappingError, MissingField, OptionError, OptionTypeError, SchemaError, ShardNotFound
from ais_tar2tf.options import Cache, Limits, Shuffle
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import shards as made

RECORDS = 30


@pytest.fixture(scope="module")
def pair_url() -> str:
    store = MemoryStore("options")
    for number in range(2):
        store.put(
            f"{number}.tar", made.labelled(f"{number}", RECORDS // 2, lambda i: {"bin": b"x", "cls": b"%d" % i})
        )
    return store.url("{0,1}.tar")


def number(record):
    return tf.strings.to_number(record["cls"])


NO_EFFECT = {
    "seed": {"seed": 7},
    "seed of nothing": {"seed": 7, "shuffle": False},
    "even": {"even": "pad"},
    "drop_remainder": {"drop_remainder": True},
    "parallel": {"parallel": 4},
    "output_types": {"output_types": tf.int64},
    "output_shapes": {"output_shapes": ()},
}


@pytest.mark.parametrize("options", NO_EFFECT.values(), ids=NO_EFFECT)
def test_an_option_without_effect_is_refused_before_anything_is_read(options):
    nowhere = t2t.open("memory://options/nowhere.tar")
    with pytest.raises(OptionError, match=rf"^{next(iter(options))}= has no effect without .*: "):
        nowhere.dataset(**options)
    if "even" not in options:
        with pytest.raises(OptionError, match="has no effect"):
            t2t.mix([nowhere, nowhere]).dataset(**options)


def test_options_are_accepted_with_the_options_they_need(pair_url):
    source = t2t.open(pair_url)
    assert len(list(source.dataset(shuffle=True, seed=7))) == RECORDS
    assert len(list(source.dataset(shard=(0, 1), even="pad"))) == RECORDS
    assert len(list(source.dataset(batch=7, drop_remainder=True))) == RECORDS // 7
    assert len(list(source.dataset(number, parallel=4, output_types=tf.int64, output_shapes=()))) == RECORDS
    assert len(list(source.dataset(decode=True, parallel=4))) == RECORDS
    assert len(list(source.dataset(parallel=tf.data.AUTOTUNE, drop_remainder=False, even=None))) == RECORDS


@pytest.mark.parametrize("window", [1, np.int64(1), 0, -3])
def test_a_window_of_one_record_is_no_shuffle(pair_url, window):
    for ask in (t2t.open(pair_url).dataset, t2t.mix([t2t.open(pair_url)]).dataset):
        with pytest.raises(OptionError, match=rf"shuffle={window} shuffles nothing.*True is a window of 2,048"):
            ask(shuffle=window)


def test_true_is_no_window_of_one(pair_url):
    assert sorted(map(float, t2t.open(pair_url).dataset(number, shuffle=True, seed=1))) == sorted([*range(15)] * 2)
    with pytest.raises(OptionTypeError, match="a whole number"):
        t2t.open(pair_url).dataset(shuffle=[3])


@pytest.mark.parametrize("repeat", [1, 2])
@pytest.mark.parametrize("how", [{}, {"shuffle": True, "seed": 1}, {"shard": (1, 2)}])
@pytest.mark.parametrize("indexed", [False, True])
def test_a_start_after_the_end(tmp_path, repeat, how, indexed):
    for each in range(2):
        (tmp_path / f"{each}.tar").write_bytes(made.labelled(f"{each}", RECORDS // 2, lambda i: {"cls": b"%d" % i}))
    template = f"{tmp_path}/{{0,1}}.tar"
    if indexed:
        t2t.index(template, progress=False)
    total = repeat * (RECORDS // 2 if "shard" in how else RECORDS)
    source = t2t.open(template)
    assert len(list(source.dataset(start_at=total - 1, repeat=repeat, **how))) == 1
    assert not list(source.dataset(start_at=total, repeat=repeat, **how)), "a finished epoch has a place, too"
    for beyond in (total + 1, 10**6):
        with pytest.raises(OptionError, match=rf"start_at={beyond:,} is behind the end: there are {total:,} records"):
            list(source.dataset(start_at=beyond, repeat=repeat, **how))
    if indexed:
        with pytest.raises(OptionError, match="behind the end"):
            source.dataset(start_at=total + 1, repeat=repeat, **how)
    assert len(list(source.dataset(start_at=10**3, repeat=None).take(3))) == 3


# Fields


@pytest.mark.parametrize(
    "read",
    [
        lambda source, decode: next(source.records(decode=decode)),
        lambda source, decode: source.dataset(decode=decode),
        lambda source, decode: t2t.mix([source, source]).dataset(decode=decode),
    ],
)
def test_decoding_an_unknown_field_is_an_error(pair_url, read):
    told = r"field 'bni', and none .* \(there are: (cls, bin|bin, cls)\); did you mean 'bin'\?"
    with pytest.raises(SchemaError, match=told):
        read(t2t.open(pair_url), {"cls": "int64", "bni": "bytes"})
    with pytest.raises(SchemaError, match=r"field 'flower', .*; a field that is rare is selected first: select\('fl"):
        read(t2t.open(pair_url), {"flower": "text"})
    with pytest.raises(SchemaError, match=r"none of the schema's fields \(x\) is in the first records"):
        read(t2t.open(pair_url), t2t.schema.Schema((t2t.schema.Field("x", "int64"),)))
    for wrong in ("image", ["bin"], 1):
        with pytest.raises(OptionTypeError, match="decode is True, a Schema, or a dict"):
            read(t2t.open(pair_url), wrong)
    assert read(t2t.open(pair_url), {"cls": "int64", "__key__": "text"})


def test_a_rare_field_is_decoded_if_it_is_selected(tmp_path):
    """The sample of first records does not contain the field."""
    (tmp_path / "a.tar").write_bytes(
        made.labelled("a", 200, lambda i: {"cls": b"1", **({"rare": b"5"} if i == 150 else {})})
    )
    source = t2t.open(f"{tmp_path}/a.tar").select("cls", "rare?")
    rare = [record["rare"] for record in source.records(decode={"rare": "int64"}) if "rare" in record]
    assert rare == [5]
    schema = t2t.schema.infer(source.records())
    assert len(list(source.select("cls").records(decode=schema))) == 200


def test_a_misspelt_field_is_refused_with_a_suggestion(pair_url):
    near = r"\(there are: (cls, bin|bin, cls)\); did you mean 'bin'\?"
    for ask in (
        lambda: next(t2t.open(pair_url).select("bni").records()),
        lambda: list(t2t.open(pair_url).select("bni").dataset()),
        lambda: next(t2t.open(pair_url, fields=["binn"]).records()),
        lambda: t2t.ops.Decode("bin2")(next(t2t.open(pair_url).records())),
    ):
        with pytest.raises(MissingField, match=near):
            ask()
    with pytest.raises(MissingField, match=r"the mapping reads field 'CLS'; .*did you mean 'cls'\?"):
        t2t.open(pair_url).dataset(lambda record: record["CLS"])
    with pytest.raises(MissingField, match=r"select 'flower\?' if it may be absent"):
        next(t2t.open(pair_url).select("flower").records())


# Names of options

FUNCTIONS = {
    "open": lambda **options: t2t.open("x", **options),
    "iter_records": lambda **options: t2t.iter_records("x", **options),
    "index": lambda **options: t2t.index("x", **options),
    "load": lambda **options: t2t.load("x", **options),
    "pack": lambda **options: t2t.pack([], "x", **options),
    "serve": lambda **options: t2t.serve("x", **options),
    "finish": lambda **options: t2t.finish("x", **options),
    "mix": lambda **options: t2t.mix([], **options),
    "write_dataset": lambda **options: t2t.write_dataset(tf.data.Dataset.range(1), "x", **options),
    "AisDataset": lambda **options: t2t.AisDataset("x", **options),
    "load_from_tar": lambda **options: t2t.AisDataset("x", "http://127.0.0.1:1").load_from_tar("y", **options),
    "AisDataset.load": lambda **options: t2t.AisDataset("x", "http://127.0.0.1:1").load("y", **options),
    "records": lambda **options: t2t.open("x").records(**options),
    "dataset": lambda **options: t2t.open("x").dataset(**options),
    "export": lambda **options: t2t.open("x").export("y", **options),
    "Limits": Limits,
    "Shuffle": Shuffle,
}
MISSPELT = {
    "open": ("cachee", "cache"), "iter_records": ("feilds", "fields"),
    "index": ("count_only", "counts_only"),
    "load": ("endpoints", "endpoint"), "pack": ("shardsize", "shard_size"), "serve": ("prot", "port"),
    "finish": ("endpont", "endpoint"), "mix": ("weight", "weights"),
    "write_dataset": ("shard_record", "shard_records"),
    "AisDataset": ("prox_url", "proxy_url"), "load_from_tar": ("record_to_pairs", "record_to_pair"),
    "AisDataset.load": ("num_worker", "num_workers"), "records": ("decod", "decode"), "dataset": ("bacth", "batch"),
    "export": ("recordtoexample", "record_to_example"), "Limits": ("member_byte", "member_bytes"),
    "Shuffle": ("windows", "window"),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_option_that_does_not_exist(name):
    wrong, right = MISSPELT[name]
    with pytest.raises(
        TypeError, match=rf"{name.rpartition('.')[2]}\(\) has no option '{wrong}'; did you .*'{right}'"
    ):
        FUNCTIONS[name](**{wrong: 1})
    with pytest.raises(OptionTypeError, match=r"has no option 'zzz'; there are: "):
        FUNCTIONS[name](zzz=1)


def test_options_are_still_dataclasses_with_signatures():
    assert list(inspect.signature(Shuffle).parameters)[:2] == ["window", "window_bytes"]
    assert "cache" in inspect.signature(t2t.open).parameters
    assert pickle.loads(pickle.dumps(Shuffle(window=9))) == Shuffle(window=9)  # noqa: S301  # ours
    assert pickle.loads(pickle.dumps(t2t.open)) is t2t.open  # noqa: S301
    with pytest.raises(AttributeError):
        Shuffle().window = 3


def test_options_that_exclude_each_other(tmp_path):
    with pytest.raises(OptionError, match=r"Shuffle\.window has no effect with whole=True"):
        Shuffle(whole=True, window=10)
    assert Shuffle(whole=True, seed=1, window=2_048).whole
    with pytest.raises(OptionError, match=r"Cache\.disk_bytes has no effect with dir='memory'"):
        Cache("memory", disk_bytes=10)
    with pytest.raises(OptionError, match=r"Cache\.memory_bytes has no effect"):
        Cache(tmp_path, memory_bytes=10)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"split": "val", "splits": {"a": 0.5, "b": 0.5}}, r"split='val' has no effect with splits="),
        ({"seed": 3}, r"seed= has no effect unless splits= are ratios"),
        ({"seed": 3, "splits": {"a": lambda _: True}}, r"seed= has no effect"),
        ({"workers": 0}, "workers is at least 1"),
        ({"name": "a b"}, "name is letters"),
    ],
)
def test_options_of_an_export(pair_url, tmp_path, options, match):
    with pytest.raises(OptionError, match=match):
        t2t.open(pair_url).export(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_options_of_a_loaded_export(pair_url, tmp_path):
    t2t.open(pair_url).export(tmp_path / "out", workers=1)
    loaded = t2t.load(tmp_path / "out")
    with pytest.raises(OptionError, match=r"there is no split 'trian'; there are: train; did you mean 'train'\?"):
        loaded.dataset("trian")
    for malformed in ("train[1.5:]", "train[_:]", "train[1.2.3%:]", "train[1__0:]"):
        with pytest.raises(OptionError, match="is no split"):
            loaded.dataset(malformed)
    for options in ({"seed": 1}, {"shuffle": 1}, {"drop_remainder": True}):
        with pytest.raises(OptionError, match=r"has no effect|shuffles nothing"):
            loaded.dataset("train", **options)
    for whole in ("global", Shuffle()):
        with pytest.raises(OptionError, match="shuffle is True or a window"):
            loaded.dataset("train", shuffle=whole)
    t2t.open(pair_url).export(tmp_path / "tar", workers=1, format="tar")
    with pytest.raises(OptionError, match="interleave= has no effect with tar files"):
        t2t.load(tmp_path / "tar").dataset("train", interleave=2)
    assert len(list(loaded.dataset("train", shuffle=5, seed=1, batch=4, drop_remainder=True, interleave=2))) == 7


def test_options_of_the_client(tmp_path):
    """No request is sent, as the bucket's cluster does not exist."""
    ais = t2t.AisDataset("b", "http://127.0.0.1:1")
    with pytest.raises(OptionTypeError, match=r"record_to_pair= \(for a dataset\)"):
        ais.load_from_tar("a.tar", number)
    with pytest.raises(OptionTypeError, match=r"record_to_example= \(for files"):
        ais.load("a.tar", path=number)
    for wrong in ({"record_to_example": number}, {"max_shard_size": "1MB"}):
        for ask in (ais.load_from_tar, ais.load):
            with pytest.raises(OptionError, match=f"{next(iter(wrong))}= has no effect without path="):
                ask("a.tar", **wrong)
    for wrong in ({"output_types": tf.int32}, {"output_shapes": ()}):
        for ask in (ais.load_from_tar, ais.load):
            with pytest.raises(OptionError, match=f"{next(iter(wrong))}= is about a dataset, and with path= none"):
                ask("a.tar", path=tmp_path / "x", **wrong)
    with pytest.raises(OptionError, match="record_to_pair= has no effect with path="):
        ais.load_from_tar("a.tar", path=tmp_path / "x", record_to_pair=number)


def test_options_of_a_mixture(pair_url):
    source = t2t.open(pair_url)
    for weights in ([1], [1, 2, 3], [1, -1], [0, 1], [1, float("nan")], [True, 1], ["1", 1]):
        with pytest.raises(OptionError, match="weights are 2 positive numbers"):
            t2t.mix([source, source], weights=weights)
    assert t2t.mix([source, source], weights=np.array([3, 1]))
    for wrong in (pair_url, [source, pair_url], [None]):
        with pytest.raises(OptionTypeError, match=r"what t2t\.open gives"):
            t2t.mix(wrong)


# on_error as a function


@pytest.mark.parametrize("says", [True, "skip"])
def test_a_function_that_skips(pair_url, says):
    source = t2t.open([pair_url, "memory://options/none.tar"], on_error=lambda _: says)
    assert len(list(source.records())) == RECORDS
    assert source.stats.skipped == {"ShardNotFound": 1}


@pytest.mark.parametrize("says", [False, None, "raise"])
def test_a_function_that_raises(pair_url, says):
    met: list[Exception] = []
    source = t2t.open([pair_url, "memory://options/none.tar"], on_error=lambda error: met.append(error) or says)
    with pytest.raises(ShardNotFound, match=r"none\.tar"):
        list(source.records())
    assert [type(error) for error in met] == [ShardNotFound]
    assert not source.stats.skipped


@pytest.mark.parametrize("says", [1, 0, "Skip", "skip-record", [], ValueError])
def test_a_function_that_returns_anything_else(pair_url, says):
    source = t2t.open([pair_url, "memory://options/none.tar"], on_error=lambda _: says)
    with pytest.raises(OptionError, match=r"on_error returned .*: it returns True or 'skip' to skip") as caught:
        list(source.records())
    assert isinstance(caught.value.__cause__, ShardNotFound)


def test_a_function_decides_also_after_a_mapping(tmp_path):
    (tmp_path / "a.tar").write_bytes(made.labelled("a", 20, lambda i: {"cls": b"x" if i in (3, 7) else b"1"}))
    for says, left in ((True, 18), ("skip", 18)):
        assert len(list(t2t.open(f"{tmp_path}/a.tar", on_error=lambda _, said=says: said).dataset(number))) == left
    with pytest.raises(MappingError, match="a/000003"):
        list(t2t.open(f"{tmp_path}/a.tar", on_error=lambda _: None).dataset(number))


def test_every_public_function_refuses_unknown_options():
    """The list of public functions is complete."""
    unchecked = set()
    for name in t2t.__all__:
        function = getattr(t2t, name)
        parameters = inspect.signature(function).parameters.values() if inspect.isfunction(function) else []
        if not any(map(is_option, parameters)):
            continue
        try:
            function(*filter(is_needed, parameters), zzz=1)
        except OptionTypeError as error:
            assert "has no option 'zzz'" in str(error)  # noqa: PT017  # raised by each, or the test fails below
        except TypeError:
            unchecked.add(name)
    assert not unchecked


def is_option(parameter: inspect.Parameter) -> bool:
    return parameter.kind is parameter.KEYWORD_ONLY


def is_needed(parameter: inspect.Parameter) -> bool:
    return parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.default is parameter.empty
