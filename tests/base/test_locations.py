"""Paths and URLs as users write them: path objects, lists, folders, buckets, and misspelt ranges."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from typer.testing import CliRunner

import ais_tar2tf as t2t
from ais_tar2tf.base.urls.locations import local_folder, location_text, location_texts
from ais_tar2tf.base.urls.templates import check_spelling, escape, expand
from ais_tar2tf.errors import OptionError, OptionTypeError, ShardNotFound, StoreError, TemplateError
from ais_tar2tf.streams.arguments import read_options
from ais_tar2tf.streams.naming import shard_names
from tests.support import shards as made
from tests.support.kinds_of_stores import KINDS, StorePlace, new_place

_TEXT = {"txt": b"x"}


class OnlyPath:
    """A path object that is neither a string nor one of pathlib."""

    def __init__(self, path: object) -> None:
        self._path = str(path)

    def __fspath__(self) -> str:
        return self._path


def keys(records: Any) -> list[str]:
    return [record["__key__"] for record in records]


def put_shards(folder: Path, *names: str) -> list[Path]:
    """Write a shard for each name, whose only record has the name as its key."""
    paths = [folder / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made.tar([(path.name.partition(".")[0], _TEXT)]))
    return paths


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Write a folder with three shards without padded numbers, and other files that such folders have."""
    folder = tmp_path / "buckets" / "pets"
    put_shards(folder, "s-1.tar", "s-9.tar", "s-10.tar")
    for other in ("README.md", ".DS_Store", "labels.csv", "_SUCCESS", "s-1.idx"):
        (folder / other).write_bytes(b"no shard")
    return folder


IN_ORDER = ["s-1", "s-9", "s-10"]


# Path objects


@pytest.mark.parametrize("kind", [Path, PurePosixPath, OnlyPath, str], ids=lambda kind: kind.__name__)
def test_any_path_object_names_shards(kind: Any, pets: Path) -> None:
    one = kind(pets / "s-9.tar")
    assert keys(t2t.open(one).records()) == ["s-9"]
    assert keys(t2t.open([one, kind(pets / "s-1.tar")]).records()) == ["s-9", "s-1"]
    assert keys(t2t.open(kind(each) for each in (pets / "s-9.tar", pets / "s-1.tar")).records()) == ["s-9", "s-1"]
    assert keys(t2t.iter_records(kind(pets / "s-{1,10}.tar"))) == ["s-1", "s-10"]
    assert keys(t2t.open(kind(pets)).records()) == IN_ORDER


def test_a_path_object_goes_wherever_a_path_does(pets: Path, tmp_path: Path) -> None:
    shards = [pets / "s-1.tar", pets / "s-9.tar"]
    assert keys(t2t.open(shards, cache=tmp_path / "cache").records()) == ["s-1", "s-9"]
    assert (tmp_path / "cache").is_dir()
    t2t.index(shards, tmp_path / "an.index")
    assert len(t2t.open(shards, index=tmp_path / "an.index")) == 2
    for out in (tmp_path / "out", OnlyPath(tmp_path / "again")):
        files = t2t.open(shards).export(out, progress=False)
        assert all(Path(file).is_file() for file in files)
        loaded = t2t.load(out)
        assert len(loaded) == loaded.verify().records == 2
    for host in range(2):
        t2t.open(shards).export(tmp_path / "array", shard=(host, 2), align="shard", progress=False)
    assert len(t2t.finish(tmp_path / "array")) == 2
    packed = t2t.pack([{"__key__": "a", "txt": "x"}], OnlyPath(tmp_path / "packed-{}.tar"))
    assert keys(t2t.open(packed).records()) == ["a"]


def test_a_path_object_names_objects_of_a_bucket(pets: Path, tmp_path: Path) -> None:
    with t2t.serve(pets.parent, port=0) as server, t2t.AisDataset("pets", server.url) as ais:
        assert keys(ais.source(PurePosixPath("s-9.tar")).records()) == ["s-9"]
        assert keys(ais.source([Path("s-9.tar"), "s-1.tar"]).records()) == ["s-9", "s-1"]

        def features(record: Any) -> dict[str, Any]:
            return {"key": record["__key__"].encode()}

        (file,) = ais.load_from_tar(Path("s-1.tar"), path=tmp_path / "x.record", record_to_example=features)
        assert Path(file).stat().st_size
        shards, out = PurePosixPath("s-{1,9}.tar"), PurePosixPath("out-{0..9}.tar")
        t2t.cluster.shuffle(shards, out, bucket="pets", endpoint=server.url, local=True)
        assert sorted(keys(t2t.open("ais://pets/out-*", endpoint=server.url).records())) == ["s-1", "s-9"]


def test_a_path_of_an_existing_file_is_this_file(tmp_path: Path) -> None:
    """A path object may have braces in its name. A string with braces is a template."""
    odd, _, _ = put_shards(tmp_path, "a{0..1}[x].tar", "a0[x].tar", "a1[x].tar")
    assert keys(t2t.open(odd).records()) == ["a{0"]
    assert keys(t2t.open(sorted(tmp_path.glob("a?[[]*"))).records()) == ["a0[x]", "a1[x]"]
    assert keys(t2t.open(tmp_path / r"a{0..1}\[x\].tar").records()) == ["a0[x]", "a1[x]"]


def test_a_url_in_a_path_is_refused_for_reading_and_for_writing(pets: Path, tmp_path: Path) -> None:
    """pathlib removes one slash of a URL, so that a folder `s3:` would be created."""
    lost = Path("s3://bucket/train")
    shard = pets / "s-1.tar"
    with pytest.raises(TemplateError, match="give the text 's3://bucket/train'"):
        t2t.open(lost)
    with pytest.raises(TemplateError, match="lost one of its slashes"):
        t2t.open(shard).export(lost)
    with pytest.raises(TemplateError, match="lost one of its slashes"):
        t2t.pack([{"__key__": "a", "txt": "x"}], lost / "s-{}.tar")
    with pytest.raises(TemplateError, match="lost one of its slashes"):
        t2t.load(lost)
    with pytest.raises(OptionError, match="a cache is a folder on this machine"):
        t2t.open(shard, cache="s3://bucket/cache")
    with pytest.raises(OptionTypeError, match=r"cache is text, a path, .* or None, not 7: give the path"):
        t2t.open(shard, cache=7)  # pyright: ignore[reportArgumentType]
    assert not Path("s3:").exists()


@pytest.mark.parametrize(
    "wrong", [7, None, b"a.tar", {"a.tar"}, {"a.tar": 1}, [b"a.tar"], ["a.tar", None], [], "", [""], iter([])]
)
def test_an_invalid_location_is_our_error(wrong: Any) -> None:
    with pytest.raises(TemplateError, match=r"template"):
        t2t.open(wrong)


def test_a_path_of_bytes_is_refused() -> None:
    class OfBytes:
        def __fspath__(self) -> bytes:
            return b"a.tar"

    with pytest.raises(TemplateError, match="not a path of bytes"):
        location_text(OfBytes())


def test_locations_are_text() -> None:
    assert location_texts(Path("a/b")) == ["a/b"]
    assert location_texts(iter(["a", Path("b")])) == ["a", "b"]
    assert list(expand([Path("a-{0..1}"), "b"])) == ["a-0", "a-1", "b"]
    assert local_folder(Path("a"), "a cache") == "a"
    assert location_text("s3://b/x") == "s3://b/x"


# Folders and buckets


@pytest.fixture(params=KINDS)
def location_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorePlace]:
    with new_place(request.param, read_options(), request, tmp_path) as found:
        yield found


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_folder_is_all_shards_in_it(slash: str, pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pets.parent.parent)
    for folder in ("buckets/pets", os.fspath(pets), pets.as_uri(), "./buckets/../buckets/pets"):
        with t2t.open(f"{folder}{slash}") as src:
            assert keys(src.records()) == IN_ORDER, folder
            assert src.stats.left_out == 4  # a folder's listing has no hidden files


def test_a_folder_includes_its_subfolders(pets: Path) -> None:
    put_shards(pets / "more", "t-0.tar")
    assert keys(t2t.open(pets).records()) == ["t-0", *IN_ORDER]
    assert keys(t2t.open(f"{pets.parent}/{{pets/more,pets}}").records()) == ["t-0", "t-0", *IN_ORDER]
    assert keys(t2t.open([pets / "more", pets / "s-1.tar"]).records()) == ["t-0", "s-1"]


def test_a_folder_whose_name_looks_like_a_template_or_a_shard(tmp_path: Path) -> None:
    put_shards(tmp_path / "a{1}*b", "s-0.tar")
    put_shards(tmp_path / "c.tar", "s-1.tar")
    put_shards(tmp_path / "my shards", "s-2.tar")
    assert keys(t2t.open(tmp_path / "a{1}*b").records()) == ["s-0"]
    assert keys(t2t.open(f"{tmp_path}/c.tar/").records()) == ["s-1"]
    assert keys(t2t.open((tmp_path / "my shards").as_uri()).records()) == ["s-2"]
    with pytest.raises(StoreError, match="this is a folder; end it with '/'"):
        list(t2t.open(f"{tmp_path}/c.tar").records())


def test_a_folder_without_shards_is_an_error_that_lists_its_files(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.jpg").write_bytes(made.image(number))
    with pytest.raises(ShardNotFound, match=r"5 files of other kinds .*0\.jpg.*t2t\.pack makes shards"):
        t2t.open(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ShardNotFound, match="nothing matches"):
        t2t.open(tmp_path / "empty")
    assert next(iter(t2t.open(tmp_path / "absent").shards)).endswith(
        "absent"
    )  # taken as a shard's name until it is read
    with pytest.raises(ShardNotFound, match="no such file"):
        list(t2t.open(tmp_path / "absent").records())


def test_an_export_is_a_folder_of_shards(pets: Path, tmp_path: Path) -> None:
    t2t.open(pets).export(tmp_path / "out", progress=False)
    with t2t.open(tmp_path / "out") as src:
        assert sum(1 for _ in src.records()) == 3
        assert src.stats.left_out > 0  # the documents next to the files


def test_a_bucket_is_all_its_shards(location_place: StorePlace) -> None:
    if not location_place.lists or location_place.base.startswith("/"):
        return
    for name in ("s-1.tar", "s-9.tar", "s-10.tar"):
        location_place.put(name, made.tar([(name.partition(".")[0], _TEXT)]))
    location_place.put("notes.txt", b"no shard")
    for bucket in (location_place.base.removesuffix("/"), location_place.base):
        with t2t.open(bucket, **location_place.options) as src:
            assert keys(src.records()) == IN_ORDER
            assert src.stats.left_out == 1


@pytest.mark.parametrize("url", ["ais://", "s3://", "gs:///train", "file://", "memory://"])
def test_a_url_without_a_bucket_is_refused(url: str) -> None:
    with pytest.raises(TemplateError, match=r"names no (bucket|folder)"):
        t2t.open(url)


@pytest.mark.parametrize("url", ["http://host", "http://host/", "https://host/data/", "http://host/data/?a=b"])
def test_a_folder_over_plain_http_is_refused(url: str) -> None:
    with pytest.raises(TemplateError, match=r"plain HTTP has no listing .* train-\{000\.\.146\}\.tar"):
        t2t.open(url)


@pytest.mark.parametrize("name", ["train-*.tar", "**/a.tar?token=b", r"a\\*.tar"])
def test_a_glob_over_plain_http_is_refused(name: str) -> None:
    with pytest.raises(TemplateError, match=r"plain HTTP has no listing for a glob .* train-\{000\.\.146\}\.tar"):
        t2t.open(f"http://host/{name}")


@pytest.mark.parametrize("name", [r"a\*b.tar", "a.tar?token=*"])
def test_a_star_over_plain_http_that_is_no_glob(name: str) -> None:
    assert list(t2t.open(f"http://host/{name}").shards) == [f"http://host/{name.replace(chr(92), '')}"]


def test_more_shards_than_the_limit_are_refused(pets: Path) -> None:
    with pytest.raises(TemplateError, match=r"over 2 shards, Limits\.template"):
        t2t.open(pets, limits=t2t.options.Limits(template=2))


def test_the_command_line_reads_the_same_shards(pets: Path) -> None:
    from ais_tar2tf.cli.app import app

    done = CliRunner().invoke(app, ["inspect", os.fspath(pets), "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["records"] == 3
    shutil.rmtree(pets)
    (pets.parent / "x.jpg").write_bytes(b"x")
    done = CliRunner().invoke(app, ["inspect", os.fspath(pets.parent)])
    assert done.exit_code == 3
    assert "x.jpg" in done.output


# Misspelt ranges


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("s-{000-007}.tar", "s-{000..007}.tar"),
        ("s-{000 .. 007}.tar", "s-{000..007}.tar"),
        ("s-{ 0..7 }.tar", "s-{0..7}.tar"),
        ("s-{000...007}.tar", "s-{000..007}.tar"),
        ("s-{000\N{EN DASH}007}.tar", "s-{000..007}.tar"),
        ("s-{000:007}.tar", "s-{000..007}.tar"),
        ("s-{1 to 12}.tar", "s-{1..12}.tar"),
        ("s-{a-f}.tar", "s-{a..f}.tar"),
        ("{x,y}/s-{03-17}-{0..3}.tar", "{x,y}/s-{03..17}-{0..3}.tar"),
        ("s-{:03d}.tar", "s-{000..999}.tar"),
        ("s-{i:05d}.tar", "s-{00000..99999}.tar"),
        ("s-%03d.tar", "s-{000..999}.tar"),
        ("s-%d.tar", "s-{0..9}.tar"),
        ("s-{}.tar", "s-{0..9}.tar"),
    ],
)
@pytest.mark.parametrize("base", ["", "ais://bucket/", "https://host/"])
def test_a_misspelt_range_is_refused_with_a_suggestion(
    base: str, written: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIS_ENDPOINT", "http://127.0.0.1:9")  # no request is sent to it
    with pytest.raises(TemplateError) as caught:
        t2t.open([f"{base}other.tar", base + written])
    assert repr(meant) in str(caught.value)
    assert set(expand(meant))  # the suggestion is a valid template
    with pytest.raises(TemplateError), t2t.AisDataset("b", "http://127.0.0.1:9") as ais:
        ais.load_from_tar(written)


@pytest.mark.parametrize(
    "right",
    [
        "s-{0..7}",
        "s-{a,b}",
        "s-{0..10..2}",
        "s-{a..f}",
        "s-{x}",
        "my%20data",
        "%d8%a7.tar",
        "{train-0}",
        "2020-01.tar",
    ],
)
def test_a_valid_range_is_accepted(right: str) -> None:
    check_spelling(right)


@pytest.mark.parametrize("name", ["s-{000-007}.tar", "s-%03d.tar", "s-{}.tar", "s-{:03d}.tar"])
def test_a_file_of_such_a_name_can_still_be_named(name: str, tmp_path: Path) -> None:
    (path,) = put_shards(tmp_path, name)
    store = t2t.open(path).opened.shards.store
    assert list(shard_names(store, escape(name), t2t.options.Limits())) == [name]
    assert len(keys(t2t.open(path).records())) == len(keys(t2t.open(tmp_path).records())) == 1


def test_reading_an_export_with_its_own_shards_warns(pets: Path, caplog: pytest.LogCaptureFixture) -> None:
    t2t.open(pets).export(pets / "records", shard_records=2, workers=1)
    assert not caplog.records
    t2t.open(pets / "records")  # alone
    assert not caplog.records
    twice = t2t.open(pets)
    assert "record files of this export are read together with" in caplog.text
    assert len(list(twice.shards)) > len(list(t2t.open(f"{pets}/*.tar").shards))


# The home folder, and URLs that lack a slash


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's home folder. The working folder is a different one, and stays empty."""
    folder = tmp_path / "home"
    folder.mkdir()
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(work)
    return folder


def test_a_tilde_is_the_home_folder_in_every_call(home: Path) -> None:
    put_shards(home / "pets", "a.tar", "b.tar")
    assert keys(t2t.open("~/pets/{a,b}.tar")) == ["a", "b"]
    assert keys(t2t.open(["~/pets/b.tar", Path("~/pets/a.tar")])) == ["b", "a"]
    source = t2t.open("~/pets/", cache="~/cache")
    assert keys(source) == ["a", "b"]
    t2t.index("~/pets/")
    assert len(t2t.open("~/pets/")) == 2
    source.export("~/out", format="tar")
    assert keys(t2t.load("~/out").records()) == ["a", "b"]
    t2t.write_dataset(t2t.load("~/out").dataset(), "~/written")
    rows = [{"__key__": "r", "txt": "x"}]
    assert t2t.pack(rows, "~/packed/{}.tar", create=True) == [str(home / "packed/0.tar")]
    (home / "files/ant").mkdir(parents=True)
    (home / "files/ant/1.txt").write_text("x")
    t2t.pack("~/files", "~/again-{}.tar")
    assert {"pets", "cache", "out", "written", "packed", "files"} < {path.name for path in home.iterdir()}
    assert list(Path.cwd().iterdir()) == []


def test_a_tilde_in_a_bucket_is_part_of_a_name() -> None:
    rows = [{"__key__": "r", "txt": "x"}]
    t2t.pack(rows, "memory://tilde/~/a-{}.tar", create=True)
    assert keys(t2t.open("memory://tilde/~/a-0.tar")) == ["r"]
    assert list(expand("~/a-{0..1}.tar", limit=9)) == ["~/a-0.tar", "~/a-1.tar"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("s3:bucket/a.tar", "'s3://bucket/a.tar'"),
        ("gs:/bucket/a.tar", "'gs://bucket/a.tar'"),
        ("ais:/bucket/a.tar", "'ais://bucket/a.tar'"),
        ("AIS:bucket/a.tar", "'AIS://bucket/a.tar'"),
        ("https:/host/a.tar", "'https://host/a.tar'"),
        ("file:/data/a.tar", "'file:///data/a.tar'"),
        ("pipe:curl -s http://host/a.tar", "give the URL that the command reads"),
    ],
)
def test_a_url_that_lacks_a_slash_is_not_read_as_a_path(home: Path, written: str, meant: str) -> None:
    with pytest.raises(TemplateError, match=re.escape(meant)):
        t2t.open(written)
    with pytest.raises(TemplateError, match=re.escape(meant)):
        t2t.pack([{"__key__": "r", "txt": "x"}], written, create=True)
    with pytest.raises(TemplateError, match=re.escape(meant)):
        t2t.load(written)
    assert list(Path.cwd().iterdir()) == []


def test_a_file_whose_name_only_resembles_a_url_is_read(home: Path) -> None:
    put_shards(home, "s3.tar", "12:30.tar", "file:a.tar")
    assert keys(t2t.open(str(home / "s3.tar"))) == ["s3"]
    assert keys(t2t.open(str(home / "12:30.tar"))) == ["12:30"]
    assert keys(t2t.open(home / "file:a.tar")) == ["file:a"]
