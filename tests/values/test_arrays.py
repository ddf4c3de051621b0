"""Decode arrays, compared with numpy and xarray. Files that would run code or open other files are refused."""

from __future__ import annotations

import io
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import h5netcdf
import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from ais_tar2tf.errors import MappingError, SchemaError
from ais_tar2tf.values import hdf5 as netcdf
from ais_tar2tf.values.arrays import decode_array, decode_hdf5, decode_npy, decode_npz, decode_record
from ais_tar2tf.values.decoders import Decoder

NUMBERS = st.sampled_from(
    ["bool", "int8", "uint16", "int32", "int64", "float16", "float32", "float64", "complex64", ">i4"]
)
ARRAYS = NUMBERS.flatmap(
    lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0, min_side=0, max_dims=4))
)


def _npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def _hdf5(write: Any) -> bytes:
    file = io.BytesIO()
    with h5py.File(file, "w") as opened:
        write(opened)
    return file.getvalue()


@given(ARRAYS)
def test_npy_round_trip(array: Any) -> None:
    read = decode_npy(_npy(array))
    np.testing.assert_array_equal(read, array)
    assert read.dtype == array.dtype


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.sampled_from("abcd"), ARRAYS, min_size=1), st.booleans())
def test_npz_round_trip(named: dict[str, Any], compressed: bool) -> None:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **named)
    read = decode_npz(file.getvalue())
    assert read.keys() == named.keys()
    for name, array in named.items():
        np.testing.assert_array_equal(read[name], array)


class _Bomb:
    def __reduce__(self) -> Any:
        return print, ("this ran",)


def test_nothing_is_unpickled(capsys: pytest.CaptureFixture[str]) -> None:
    objects = np.array([_Bomb()], dtype=object)
    with pytest.raises(SchemaError, match=r"no \.npy file that can be read here"):
        decode_npy(_npy(objects, allow_pickle=True))
    with pytest.raises(SchemaError, match=r"no \.npy file that can be read here"):
        decode_npy(pickle.dumps(_Bomb()))
    file = io.BytesIO()
    np.savez(file, a=objects)
    with pytest.raises(SchemaError, match=r"no \.npy file that can be read here"):
        decode_npz(file.getvalue())
    assert "this ran" not in capsys.readouterr().out


def test_an_npy_file_cut_anywhere_is_refused() -> None:
    whole = _npy(np.arange(6, dtype="int16").reshape(2, 3))
    for end in range(len(whole)):
        with pytest.raises(SchemaError):
            decode_npy(whole[:end])


def test_sizes_are_checked_before_memory_is_allocated() -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000), }"
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    with pytest.raises(SchemaError, match=r"it is cut, float64 \(1000000, 1000000\) takes"):
        decode_npy(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", _npy(np.zeros(1_000_000)))
    with pytest.raises(SchemaError, match=r"8,000,128 bytes, when decompressed, passes Limits\.member_bytes"):
        decode_npz(file.getvalue(), limit=1_000_000)
    assert decode_npz(file.getvalue())["a"].shape == (1_000_000,)

    def huge(file: Any) -> None:
        file.create_dataset("x", (10**6, 10**6), "f8", chunks=(100, 100))

    with pytest.raises(SchemaError, match=r"pass the limit of .*, Limits\.member_bytes"):
        decode_hdf5(_hdf5(huge))


# netCDF and HDF5


def _dataset() -> Any:
    draw = np.random.default_rng(1)
    radar = draw.standard_normal((5, 7, 3)).astype("f4")
    radar[draw.random(radar.shape) < 0.5] = np.nan
    return xr.Dataset(
        {
            "radar": (("t", "y", "x"), radar),
            "counts": (("y",), draw.integers(-9, 9, 7)),
            "flags": (("y", "x"), draw.integers(0, 255, (7, 3)).astype("u1")),
            "scalar": ((), np.float64(2.5)),
        },
        {
            "t": np.array(
                ["2013-01-01", "2013-05-06T07:08:09", "2020-02-29", "1969-12-31", "2022-01-01"], "datetime64[ns]"
            )
        },
        {"title": "small", "number": 7, "level": 0.5},
    )


@pytest.mark.parametrize(
    "radar",
    [
        {},
        {"zlib": True, "shuffle": True},
        {"zlib": True, "shuffle": False, "complevel": 9},
        {"zlib": True, "shuffle": True, "chunksizes": (2, 3, 2)},
        {"zlib": True, "fletcher32": True},
        {"chunksizes": (5, 7, 3)},
        {"dtype": "int16", "scale_factor": 0.01, "add_offset": 1.0, "_FillValue": -999, "zlib": True},
        {"dtype": "f8", "_FillValue": -1.0},
    ],
)
def test_netcdf_as_xarray_reads_it(tmp_path: Path, radar: dict[str, Any]) -> None:
    path = tmp_path / "a.nc"
    _dataset().to_netcdf(path, engine="h5netcdf", encoding={"radar": radar})
    for ours in (netcdf.read(path), netcdf.read(path.read_bytes())):
        with xr.open_dataset(path, engine="h5netcdf") as theirs:
            assert set(ours.variables) == set(theirs.variables)
            for name, variable in theirs.variables.items():
                np.testing.assert_array_equal(ours.variables[name], variable.values, err_msg=str(name))
                if variable.dtype.kind != "M":
                    assert ours.variables[name].dtype == variable.dtype, name
            assert {name: theirs.attrs[name] for name in theirs.attrs} == ours.attributes


@pytest.mark.filterwarnings("ignore:.*multiple fill values:xarray.SerializationWarning")
@pytest.mark.parametrize(
    "units", [{}, {"units": "days since 1999-12-31 12:00:00"}, {"units": "seconds since 2020-01-01"}]
)
@pytest.mark.parametrize(
    ("stored", "attributes"),
    [
        ("i4", {"_FillValue": np.int32(-9)}),
        ("i8", {"missing_value": np.int64(-9)}),
        ("i2", {"_FillValue": np.int16(-9), "missing_value": np.int16(5)}),
        ("i4", {"missing_value": np.array([-9, 5], "i4")}),
        ("f8", {"_FillValue": -9.0}),
        ("f4", {"_FillValue": np.float32("nan"), "missing_value": np.float32(-9)}),
        ("i4", {"scale_factor": 0.5}),
        ("i4", {"add_offset": 1.5}),
        ("i2", {"_FillValue": np.int16(-9), "scale_factor": 0.5, "add_offset": 2.0}),
        ("i2", {}),
    ],
)
def test_missing_and_packed_values_as_xarray_reads_them(
    tmp_path: Path, units: Any, stored: str, attributes: Any
) -> None:
    path = tmp_path / "a.nc"
    variable = xr.Variable("x", np.array([0, 5, -9, 3], stored), {**attributes, **units})
    with h5netcdf.File(path, "w") as file:
        file.dimensions = {"x": variable.size}
        for name, dimensions, values in (("v", ("x",), variable.values), ("scalar", (), variable.values[2])):
            file.create_variable(name, dimensions, stored, data=values).attrs.update(variable.attrs)
    ours = netcdf.read(path)
    with xr.open_dataset(path, engine="h5netcdf") as theirs:
        for name in ("v", "scalar"):
            np.testing.assert_array_equal(ours.variables[name], theirs[name].values)
            assert ours.variables[name].dtype.kind == theirs[name].dtype.kind


def test_decoders_read_netcdf_like_the_other_functions(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    packed = {"dtype": "int16", "scale_factor": 0.01, "_FillValue": -999, "zlib": True}
    _dataset().to_netcdf(path, engine="h5netcdf", encoding={"radar": packed})
    read = netcdf.read(path)
    for kind in ("hdf5", "netcdf"):
        decoded = Decoder(kind)(path.read_bytes())
        assert np.isnan(decoded["radar"]).any()
        assert decoded.keys() == read.variables.keys() | {f"@{name}" for name in read.attributes}
        for name, values in {**read.variables, **{f"@{n}": v for n, v in read.attributes.items()}}.items():
            np.testing.assert_array_equal(decoded[name], values)


@given(
    arrays_of.arrays(
        st.sampled_from(["u1", "<i2", ">i4", "f4", "f8"]), arrays_of.array_shapes(min_dims=1, max_dims=3, max_side=12)
    ),
    st.data(),
)
@settings(max_examples=60, deadline=None)  # files are written
def test_chunks_as_hdf5_reads_them(array: Any, data: Any) -> None:
    chunks = tuple(data.draw(st.integers(1, size)) for size in array.shape)
    options: dict[str, Any] = {"compression": data.draw(st.sampled_from(["gzip", None, "lzf"]))}
    if array.dtype.itemsize:
        options["shuffle"] = data.draw(st.booleans())
    packed = _hdf5(lambda file: file.create_dataset("a/b", data=array, chunks=chunks, **options))
    read = decode_hdf5(packed)["a/b"]
    np.testing.assert_array_equal(read, array)
    assert read.dtype == array.dtype


def test_chunks_that_were_never_written_hold_the_fill_value() -> None:
    def sparse(file: Any) -> None:
        file.create_dataset("x", (10, 10), "i4", chunks=(5, 5), compression="gzip", fillvalue=7)[0, 0] = 1

    read = decode_hdf5(_hdf5(sparse))["x"]
    assert read[0, 0] == 1
    assert (read.ravel()[1:] == np.where(np.arange(1, 100), 7, 7)).sum() == 75 + 24


def test_a_file_that_points_elsewhere_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret.h5"
    secret.write_bytes(_hdf5(lambda file: file.__setitem__("x", np.arange(3))))
    raw = tmp_path / "raw"
    raw.write_bytes(b"secret bytes")

    def external_link(file: Any) -> None:
        file["x"] = h5py.ExternalLink(str(secret), "x")

    def external_storage(file: Any) -> None:
        file.create_dataset("x", (12,), "u1", external=[(str(raw), 0, 12)])

    def virtual(file: Any) -> None:
        layout = h5py.VirtualLayout((3,), "i8")
        layout[:] = h5py.VirtualSource(str(secret), "x", (3,))
        file.create_virtual_dataset("x", layout)

    def soft_link(file: Any) -> None:
        file["x"] = h5py.SoftLink("/x")

    for write in (external_link, external_storage, virtual, soft_link):
        with pytest.raises(SchemaError, match=r"not followed|not opened"):
            decode_hdf5(_hdf5(write))


def test_a_file_other_than_hdf5_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    _dataset().to_netcdf(path, engine="h5netcdf", encoding={"radar": {"zlib": True}})
    whole = path.read_bytes()
    with pytest.raises(SchemaError, match=r"classic netCDF-3 file is not read here"):
        decode_hdf5(b"CDF\x01" + bytes(100))
    for end in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        with pytest.raises(SchemaError):
            decode_hdf5(whole[:end])
    with pytest.raises(SchemaError, match=r"variable 'nothing' is missing"):
        netcdf.read(whole, ["radar", "nothing"])


def test_records_are_decoded_by_their_extensions() -> None:
    record = {"__key__": "k", "__shard__": "s", "seg.NPY": _npy(np.arange(2)), "txt": b"as it is"}
    decoded = decode_record(record)
    assert decoded["seg.NPY"].tolist() == [0, 1]
    assert (decoded["txt"], decoded["__key__"]) == (b"as it is", "k")
    with pytest.raises(MappingError, match=r"s, record 'k': field 'npy': no .npy file"):
        decode_record({**record, "npy": b"no"})
    with pytest.raises(SchemaError, match=r"'txt' is no file of arrays; read here are: npy"):
        decode_array("txt", b"")


_THREADS = """
import io, sys, threading
import h5py, numpy as np
from ais_tar2tf.values import hdf5 as netcdf

sys.setswitchinterval(1e-5)  # threads meet inside HDF5 within a second, if they can
wanted = np.arange(160_000, dtype="f4").reshape(400, 400)
file = io.BytesIO()
with h5py.File(file, "w") as opened:
    opened.create_dataset("x", data=wanted, chunks=(50, 50), compression="gzip", shuffle=True)
data, wrong = file.getvalue(), []

def read():
    for _ in range(60):
        try:
            assert (netcdf.read(data).variables["x"] == wanted).all()
        except Exception as error:
            wrong.append(repr(error))

threads = [threading.Thread(target=read) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit("\\n".join(wrong[:3]) or 0)
"""


def test_threads_may_read_concurrently() -> None:
    """Threads may decode concurrently. This runs in a new process, because a failure may be a segmentation fault."""
    done = subprocess.run([sys.executable, "-c", _THREADS], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-1000:])
