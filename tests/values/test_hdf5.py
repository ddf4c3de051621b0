"""Sparse, damaged and hostile HDF5 files give h5py's values or one typed error, within bounds."""

from __future__ import annotations

import errno
import io
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.options import MIB, Hdf5
from ais_tar2tf.values import hdf5 as netcdf
from ais_tar2tf.values.hdf5.reading import _pool

HERE, APART = Hdf5(isolate=False), Hdf5(isolate=True)
BOTH = pytest.mark.parametrize("options", [HERE, APART], ids=["in this process", "isolated"])

Write = Callable[[Any], None]


def hdf5(write: Write, **options: Any) -> bytes:
    file = io.BytesIO()
    with h5py.File(file, "w", **options) as opened:
        write(opened)
    return file.getvalue()


@pytest.fixture(autouse=True)
def no_helpers_of_other_tests() -> Iterator[None]:
    yield
    _pool().close()


# Values, compared with h5py


@given(st.data())
@settings(max_examples=150, deadline=None)  # files are written
def test_a_sparse_file_as_h5py_reads_it(data: st.DataObject) -> None:
    """Any chunks of any grid may be missing. Formerly, a gap could be read as freed memory."""
    shape = tuple(data.draw(st.lists(st.integers(1, 23), min_size=1, max_size=3)))
    chunks = tuple(data.draw(st.integers(1, size + 2)) for size in shape)
    options = {"shuffle": data.draw(st.booleans()), "fillvalue": data.draw(st.sampled_from([0, 7, -1]))}
    grown = tuple(None for _ in shape)  # allows chunks larger than the array
    written = data.draw(st.lists(st.tuples(*(st.integers(0, size - 1) for size in shape)), max_size=12))

    def sparse(file: Any) -> None:
        dataset = file.create_dataset("x", shape, "<i4", chunks=chunks, maxshape=grown, compression="gzip", **options)
        for number, place in enumerate(written):
            dataset[place] = number + 1

    made = hdf5(sparse)
    with h5py.File(io.BytesIO(made)) as file:
        wanted = file["x"][()]
    freed = np.full(shape, 0x5EED, "<i4")  # an array that is not filled may show these values
    del freed
    np.testing.assert_array_equal(netcdf.read_in_process(made).variables["x"], wanted)


def test_a_filter_that_was_left_out_for_one_chunk() -> None:
    def write(file: Any) -> None:
        dataset = file.create_dataset("x", (8,), "<i4", chunks=(4,), compression="gzip")
        dataset[:] = range(8)
        dataset.id.write_direct_chunk((4,), np.arange(40, 44, dtype="<i4").tobytes(), filter_mask=1)

    assert netcdf.read_in_process(hdf5(write)).variables["x"].tolist() == [0, 1, 2, 3, 40, 41, 42, 43]


# Times and integers without a sign, compared with xarray


def converted(values: Any, **attributes: Any) -> Any:
    made = hdf5(lambda file: file.create_dataset("x", data=np.asarray(values)).attrs.update(attributes))
    return netcdf.read(made, options=HERE).variables["x"]


def as_xarray_converts(values: Any, **attributes: Any) -> Any:
    times = xr.coders.CFDatetimeCoder(time_unit="us")  # nanoseconds have no start in the year 1
    return xr.decode_cf(xr.Dataset({"x": ("n", np.asarray(values), attributes)}), decode_times=times).x.values


@pytest.mark.parametrize("kind", ["i8", "f8", "i4"])
@pytest.mark.parametrize(
    ("start", "number"),
    [
        ("0001-01-01", 700_000),
        ("-4713-11-24 12:00:00", 2_450_000),
        ("1600-01-01", 150_000),
        ("1700-01-01", 200_000),
        ("1800-1-1 00:00:00", 70_000),
        ("1800-1-1", 70_000),
        ("1800-01-01 0:0:0.0", 70_000),
        ("1800-01-01 00:00:00 +0:00", 70_000),
        ("1800-01-01 00:00:00 -06:30", 70_000),
        ("1800-01-01T00:00:00+0100", 70_000),
        ("1800-01-01 12:30:15.25 UTC", 70_000),
        ("1800-01-01T12:30:15Z", 70_000),
        ("2000-01-01", -100_000),
    ],
)
def test_times_as_xarray_converts_them(start: str, number: int, kind: str) -> None:
    attributes = {"units": f"days since {start}", "calendar": "proleptic_gregorian"}
    values = np.array([number, number + 1], kind) + np.array(0.25 if kind == "f8" else 0, kind)
    np.testing.assert_array_equal(converted(values, **attributes), as_xarray_converts(values, **attributes))


def test_the_standard_calendar_is_julian_before_1582() -> None:
    days = np.arange(np.datetime64("1582-10-15"), np.datetime64("1990-01-01"))
    for kind in ("i4", "f8"):  # the day after the 4th October 1582 is the 15th
        number = np.array([len(days)], kind)
        assert converted(number, units="days since 1582-10-04")[0] == np.datetime64("1989-12-31", "ns")
        assert converted(number, units="days since 1582-10-15")[0] == np.datetime64("1990-01-01", "ns")
    from_julian = converted([150_000], units="days since 1500-02-29", calendar="gregorian")
    assert from_julian[0] == converted([149_999], units="days since 1500-03-01")[0]


@pytest.mark.parametrize("kind", ["i8", "f8"])
def test_times_beyond_nanoseconds_are_missing(kind: str) -> None:
    found = converted(np.array([1_000_000, 1, -1_000_000], kind), units="days since 1900-01-01")
    assert found.tolist() == [None, np.datetime64("1900-01-02", "ns").astype(int), None]
    assert np.isnat(converted(np.array([1e36, 1e300, np.nan]), units="days since 0001-01-01")).all()


@pytest.mark.parametrize("date", ["2000-13-01", "2000-02-30", "0001-13-01", "0001-01-99"])
def test_a_date_that_does_not_exist_is_an_error(date: str) -> None:
    with pytest.raises(SchemaError, match="no netCDF-4 or HDF5 file that can be read here"):
        converted([1], units=f"days since {date}")


def test_units_without_a_date_are_no_times() -> None:
    assert converted([1, 2], units="seconds since launch").tolist() == [1, 2]


UNSIGNED = [{}, {"scale_factor": 0.5}, {"_FillValue": -1}, {"units": "seconds since 2000-01-01"}]


@pytest.mark.parametrize("options", UNSIGNED)
@pytest.mark.parametrize("kind", ["i1", "<i2", ">i4"])
def test_integers_without_a_sign_as_xarray_reads_them(kind: str, options: dict[str, Any]) -> None:
    attributes = {**options, "_Unsigned": "true"}
    if "_FillValue" in options:
        attributes["_FillValue"] = np.array(options["_FillValue"], kind)[()]
    values = np.array([-1, 5, -3], kind)
    np.testing.assert_array_equal(converted(values, **attributes), as_xarray_converts(values, **attributes))


def test_integers_that_have_a_sign_after_all_as_xarray_reads_them() -> None:
    values = np.array([200, 5], "u1")
    found = converted(values, _Unsigned="false")
    np.testing.assert_array_equal(found, as_xarray_converts(values, _Unsigned="false"))
    assert found.tolist() == [-56, 5]


KINDS: dict[str, Write] = {
    "numbers": lambda file: [
        file.create_dataset(name, data=np.arange(6).reshape(2, 3).astype(name))
        for name in ("u1", ">i4", "<f8", "?", "c8", "f2")
    ],
    "scalars and nothing": lambda file: [
        file.create_dataset("one", data=np.float32(2.5)),
        file.create_dataset("none", (0, 4), "i2"),
        file.create_dataset("text", data="wörter"),
        file.create_dataset("empty", data=h5py.Empty("f4")),
    ],
    "texts": lambda file: [
        file.create_dataset("words", data=["a", "", "längere Wörter" * 50], dtype=h5py.string_dtype()),
        file.create_dataset("fixed", data=np.array([b"ab", b"c"])),
        file.create_dataset("unwritten", (3, 2), h5py.string_dtype()),
    ],
    "lists": lambda file: file.create_dataset("v", (2, 2), h5py.vlen_dtype("<f4")).__setitem__(
        (0, 1), np.arange(5, dtype="<f4")
    ),
    "records": lambda file: file.create_dataset(
        "r", data=np.array([(1, 2.5, (3, 4)), (5, 6.5, (7, 8))], [("a", "<i2"), ("b", "<f8"), ("c", "<u1", (2,))])
    ),
    "records with text": lambda file: file.create_dataset(
        "r", data=np.array([(1, "x"), (2, "yy")], [("a", "<i2"), ("s", h5py.string_dtype())])
    ),
    "groups and attributes": lambda file: [
        file.create_dataset("a/b/c", data=[1, 2]),
        file.attrs.update({"text": "ja", "bytes": np.bytes_(b"ab"), "numbers": np.arange(3), "one": np.int16(4)}),
        file.attrs.create("words", ["a", "bb"], dtype=h5py.string_dtype()),
    ],
    "packed": lambda file: file.create_dataset("t", data=np.arange(4, dtype="i2")).attrs.update(
        {"scale_factor": 0.5, "_FillValue": np.int16(2)}
    ),
    "times": lambda file: file.create_dataset("t", data=np.arange(4)).attrs.update(
        {"units": "seconds since 2020-01-01"}
    ),
}


@pytest.mark.parametrize("write", KINDS.values(), ids=KINDS)
def test_a_helper_returns_the_same_values_as_this_process(write: Write) -> None:
    made = hdf5(write)
    here, apart = (netcdf.read(made, options=options) for options in (HERE, APART))
    for found, wanted in ((apart.variables, here.variables), (apart.attributes, here.attributes)):
        assert list(found) == list(wanted)
        for name, value in wanted.items():
            assert_alike(found[name], value)


def assert_alike(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted)
    if not isinstance(wanted, np.ndarray):
        assert found == wanted
        return
    assert found.shape == wanted.shape
    if not wanted.dtype.hasobject:
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
    elif wanted.dtype.names:
        for name in wanted.dtype.names:
            assert_alike(found[name], wanted[name])
    else:
        for one, other in zip(found.ravel(), wanted.ravel(), strict=True):
            assert_alike(one, other)


def test_values_of_every_size_come_from_a_helper(tmp_path: Path) -> None:
    """Values are passed in memory that is reused for the next file, up to a bound."""
    for rows in (10, 1_000_000, 20, 9_000_000, 5, 300_000):
        path = tmp_path / "x.h5"
        path.write_bytes(
            hdf5(
                lambda file, rows=rows: file.create_dataset(
                    "x", data=np.arange(rows) >> 8, chunks=True, compression=1
                )
            )
        )
        assert (netcdf.read(path, options=APART).variables["x"] == np.arange(rows) >> 8).all()


# Bounds


def pointing_to_one(elements: int, size: int) -> bytes:
    """Return a file in which `elements` lists refer to one list of `size` bytes."""
    made = bytearray()

    def write(file: Any) -> None:
        dataset = file.create_dataset("v", (elements,), h5py.vlen_dtype("u1"))
        dataset[0] = np.ones(size, "u1")
        made[:] = struct.pack("<Q", dataset.id.get_offset())

    file = bytearray(hdf5(write))
    begin = struct.unpack("<Q", made)[0]
    file[begin : begin + 16 * elements] = file[begin : begin + 16] * elements
    return bytes(file)


@BOTH
def test_lists_that_refer_to_one_list_obey_the_limit(options: Hdf5) -> None:
    made = pointing_to_one(3_000, 100_000)  # 150 KB refer to 300 MB
    assert len(made) < 200_000
    with pytest.raises(SchemaError, match=r"Limits\.member_bytes"):
        netcdf.read(made, limit=20 * MIB, options=options)
    lists = netcdf.read(pointing_to_one(30, 1_000), limit=20 * MIB, options=options).variables["v"]
    assert [each.sum() for each in lists] == [1_000] * 30


@BOTH
def test_texts_obey_the_limit(options: Hdf5) -> None:
    made = hdf5(lambda file: file.create_dataset("s", data=["x" * MIB] * 4, dtype=h5py.string_dtype()))
    with pytest.raises(SchemaError, match=r"Limits\.member_bytes"):
        netcdf.read(made, limit=3 * MIB, options=options)
    assert len(netcdf.read(made, limit=5 * MIB, options=options).variables["s"]) == 4


def test_the_texts_of_attributes_obey_the_limit() -> None:
    made = hdf5(lambda file: file.attrs.create("s", ["x" * MIB] * 4, dtype=h5py.string_dtype()))
    with pytest.raises(SchemaError, match=r"Limits\.member_bytes"):
        netcdf.read_in_process(made, limit=3 * MIB)


def test_a_chunk_larger_than_the_limit_is_refused() -> None:
    """HDF5 would keep the whole chunk in memory for one number."""
    made = hdf5(lambda file: file.create_dataset("x", (1,), "u1", chunks=(50 * MIB,), maxshape=(None,)))
    with pytest.raises(SchemaError, match=r"Limits\.member_bytes"):
        netcdf.read_in_process(made, limit=MIB)


def test_groups_that_are_linked_many_times_end() -> None:
    """Thirty levels with two links each have a billion paths."""

    def write(file: Any) -> None:
        group = file
        for _ in range(30):
            below = group.create_group("a")
            group["b"] = below
            group = below

    with pytest.raises(SchemaError, match="20,000 groups and variables"):
        netcdf.read_in_process(hdf5(write))


def test_a_name_within_a_variable_is_missing() -> None:
    made = hdf5(lambda file: file.create_dataset("x", data=np.arange(3)))
    for name in ("x/y", "y", "x/", ""):
        with pytest.raises(SchemaError):
            netcdf.read_in_process(made, [name])


# Damage


def test_a_chunk_that_does_not_inflate_is_one_error() -> None:
    made = bytearray(
        hdf5(lambda file: file.create_dataset("x", data=np.random.rand(50), chunks=(50,), compression="gzip"))
    )
    with h5py.File(io.BytesIO(made)) as file:
        begin = file["x"].id.get_chunk_info(0).byte_offset
    made[begin + 20 : begin + 60] = bytes(40)
    with pytest.raises(SchemaError, match="no netCDF-4 or HDF5 file that can be read here"):
        netcdf.read_in_process(bytes(made))


def spinning() -> bytes:
    """Return a file whose heap of texts has an empty free piece, which makes HDF5's library loop forever."""
    made = bytearray(hdf5(lambda file: file.attrs.update({"units": "m/s"})))
    begin = made.index(b"GCOL") + 16  # after the head of the heap: number, references, size of the first piece
    made[begin : begin + 16] = bytes(16)
    return bytes(made)


def test_a_file_that_makes_the_library_loop_is_an_error_in_time() -> None:
    began = time.monotonic()
    with pytest.raises(SchemaError, match=r"took over 0\.5 s \(Hdf5\.seconds\)"):
        netcdf.read(spinning(), options=Hdf5(isolate=True, seconds=0.5))
    assert time.monotonic() - began < 60
    assert netcdf.read(hdf5(KINDS["times"]), options=APART).variables  # a new helper process reads this file


def test_a_file_that_crashes_the_library_is_an_error() -> None:
    """Change one byte in the heap of names of a file with groups of the latest format."""

    def groups(file: Any) -> None:
        for number in range(12):
            for other in range(6):
                file.create_dataset(f"g{number}/d{other}", data=np.arange(4))

    made = bytearray(hdf5(groups, libver="latest"))
    made[made.index(b"FHDB") + 40] ^= 0xFF
    with pytest.raises(SchemaError):
        netcdf.read(bytes(made), options=APART)
    assert netcdf.read(hdf5(KINDS["times"]), options=APART).variables


# HelperPool


def test_a_helper_that_was_killed_is_replaced() -> None:
    made = hdf5(KINDS["times"])
    netcdf.read(made, options=APART)
    (helper,) = _pool()._processes
    os.kill(helper._process.pid, signal.SIGKILL)
    helper._process.wait()
    assert netcdf.read(made, options=APART).variables["t"].shape == (4,)
    assert _pool()._processes != [helper]


def test_a_helper_that_cannot_be_started_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    made, files = hdf5(KINDS["times"]), Path("/proc/self/fd")
    before = len(list(files.iterdir()))
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", fails)
        with pytest.raises(OSError, match="Resource temporarily"):
            netcdf.read(made, options=APART)
    assert len(list(files.iterdir())) == before
    assert netcdf.read(made, options=APART).variables["t"].shape == (4,)


def test_several_threads_share_a_few_pool() -> None:
    files = [hdf5(lambda file, n=n: file.create_dataset("x", data=np.full(1000, n))) for n in range(40)]
    with ThreadPoolExecutor(8) as threads:
        found = threads.map(lambda made: netcdf.read(made, options=APART).variables["x"][0], files)
        assert list(found) == list(range(40))
    assert 1 <= len(_pool()._processes) <= 4


FORKED = """
import os, sys
from ais_tar2tf.values import hdf5 as netcdf
path = sys.argv[1]
assert netcdf.read(path).variables["t"].shape == (4,)
child = os.fork()
assert netcdf.read(path).variables["t"].shape == (4,)
if not child:
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
assert netcdf.read(path).variables["t"].shape == (4,)
print([helper._process.pid for helper in netcdf.reading._pool()._processes])
"""


def test_a_forked_child_has_helpers_of_its_own_and_none_is_left(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    path.write_bytes(hdf5(KINDS["times"]))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKED, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (pid,) = map(int, done.stdout.strip("[]\n").split(","))
    assert not Path(f"/proc/{pid}").exists()


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    made = hdf5(KINDS["times"])
    monkeypatch.setenv("AIS_TAR2TF_HDF5", "in-process")
    netcdf.read(made)
    assert not _pool()._processes
    monkeypatch.setenv("AIS_TAR2TF_HDF5", "isolated")
    netcdf.read(made)
    assert _pool()._processes
    monkeypatch.setenv("AIS_TAR2TF_HDF5", "yes")
    with pytest.raises(SchemaError, match="isolated, in-process"):
        netcdf.read(made)
