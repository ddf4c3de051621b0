"""Encode values as the bytes of files. The extension of a field decides its format, as in webdataset. No pickles."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ais_tar2tf.errors import MissingDependency, SchemaError
from ais_tar2tf.values.schema import extension_of

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["encode_field"]

_MEDIA = frozenset({"wav", "flac", "mp3", "ogg", "opus", "m4a", "mp4", "avi", "mov", "mkv", "webm"})
_CONTAINERS = frozenset({"h5", "hdf5", "nc", "nc4", "netcdf", "tar", "zip", "parquet", "tfrecord"})
_PICKLED = frozenset({"pyd", "pickle", "pkl", "pth", "pt"})
_UNSUPPORTED = frozenset({"ten", "tenbin", "tb", "cbor"})
_GREY = {"pgm": ("L", "I;16", "I"), "pbm": ("1",)}
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # fixed, so that the same arrays give the same bytes


def encode_field(key: str, name: str, value: Any) -> bytes:
    """Return `value` as the bytes of the field `name` of the record `key`.

    The extension of the name decides the format: text for `txt`, `cls` and similar, JSON for `json`, an array for
    `npy`, a dict of arrays for `npz`, msgpack for `msgpack`, and an image for `jpg`, `png` and
    similar: a PIL image, an array of uint8, or an array of floats from 0 to 1. With `.gz` at the end, the bytes are
    compressed. Fields with unknown extensions accept text, numbers, lists and dicts (as JSON). Bytes are returned
    unchanged.

    Raises:
        SchemaError: The value cannot be encoded in this format. The text names the record, the field, and the
            accepted values.
        MissingDependency: Pillow is needed, but not installed.

    >>> encode_field("a", "cls", 3), encode_field("a", "meta.json", {"x": [1, 2]})
    (b'3', b'{"x": [1, 2]}')
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    is_compressed = extension_of(name) == "gz"
    extension = extension_of(name[:-3] if is_compressed else name)
    try:
        plain = _to_numpy(extension, value)
        data = plain if isinstance(plain, bytes) else _ENCODERS.get(extension, _encode_other)(extension, plain)
    except (_NotEncodableError, TypeError, ValueError, OSError, OverflowError, RuntimeError) as error:
        is_ours = isinstance(error, _NotEncodableError)
        reason = str(error) if is_ours else f"{type(value).__name__} has no such form ({error})"
        raise SchemaError(f"record {key!r}, field {name!r}: {reason}") from error
    return gzip.compress(data, mtime=0) if is_compressed else data


class _NotEncodableError(Exception):
    """A value cannot be encoded as the file of its field. The text states which values the field accepts."""

    def __init__(self, extension: str, value: Any, accepted: str) -> None:
        what = type(value).__name__
        if isinstance(value, np.ndarray):
            what = f"array of {value.dtype} {value.shape}"
        super().__init__(f"{what} has no form as {extension or 'a file'}; give {accepted}")


def _to_numpy(extension: str, value: Any) -> Any:
    """Convert a tensor of TensorFlow or PyTorch to an array, and a scalar of NumPy to a value of Python."""
    if not isinstance(value, np.ndarray | np.generic) and callable(getattr(value, "numpy", None)):
        value = value.numpy()
    is_scalar = isinstance(value, np.ndarray | np.generic) and not value.shape and extension not in ("npy", "npz")
    return value.item() if is_scalar else value


# Text, numbers, JSON, msgpack.


def _as_text(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bool | int | float):
        return str(int(value) if isinstance(value, bool) else value).encode()
    return None


def _encode_text(extension: str, value: Any) -> bytes:
    data = _as_text(value)
    if data is None:
        raise _NotEncodableError(extension, value, "text, a number, or bytes")
    return data


def _encode_json(extension: str, value: Any) -> bytes:
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            raise _NotEncodableError(extension, value, "JSON text, or the value itself in a list or dict") from None
        return value.encode("utf-8", "surrogateescape")
    return json.dumps(value, ensure_ascii=False, default=_to_plain).encode("utf-8", "surrogateescape")


def _encode_msgpack(_extension: str, value: Any) -> bytes:
    import msgpack

    return bytes(msgpack.packb(value, default=_to_plain) or b"")


def _to_plain(value: Any) -> Any:
    """Convert a NumPy value to lists and numbers, which JSON and msgpack support."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"it contains a {type(value).__name__}")


# Arrays.


def _encode_npy(extension: str, value: Any) -> bytes:
    if not isinstance(value, np.ndarray | list | tuple | bool | int | float):
        raise _NotEncodableError(extension, value, "an array")
    file = io.BytesIO()
    np.lib.format.write_array(file, _numeric_array(extension, value), allow_pickle=False)
    return file.getvalue()


def _encode_npz(extension: str, value: Any) -> bytes:
    if not isinstance(value, Mapping):
        raise _NotEncodableError(extension, value, "a dict of arrays")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in value.items():
            info = zipfile.ZipInfo(f"{name}.npy", _ZIP_DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _numeric_array(extension, array), allow_pickle=False)
    return file.getvalue()


def _numeric_array(extension: str, value: Any) -> np.ndarray[Any, Any]:
    array = np.asanyarray(value)
    if array.dtype.hasobject:
        raise _NotEncodableError(extension, value, "an array of numbers: Python's objects would have to be pickled")
    return array


# Images.

_FORMATS = {
    **dict.fromkeys(("jpg", "jpeg", "jpe", "img", "image"), "JPEG"),
    **dict.fromkeys(("ppm", "pgm", "pbm"), "PPM"),
    **dict.fromkeys(("tif", "tiff"), "TIFF"),
    "png": "PNG",
    "bmp": "BMP",
    "gif": "GIF",
    "webp": "WEBP",
}


def _encode_image(extension: str, value: Any) -> bytes:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingDependency("Pillow", extra="card") from error
    if isinstance(value, np.ndarray):
        image = Image.fromarray(_pixels(extension, value))
    elif isinstance(value, Image.Image):
        image = value
    else:
        raise _NotEncodableError(
            extension, value, "a PIL image, an array, or the bytes of a file (Path(…).read_bytes())"
        )
    return _image_bytes(image, extension)


def _image_bytes(image: Image, extension: str) -> bytes:
    modes = _GREY.get(extension)
    if modes is not None and image.mode not in modes:
        raise _NotEncodableError(extension, image, f"image.convert({modes[0]!r}), for this one is {image.mode}")
    kind = _FORMATS[extension]
    options = {"quality": 100} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _pixels(extension: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    fits = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))
    if array.dtype.kind == "f" and fits and array.size and -0.001 < array.min() <= array.max() < 1.001:
        array = (np.clip(array, 0, 1) * 255).astype(np.uint8)
    if not fits or array.dtype != np.uint8:
        raise _NotEncodableError(
            extension, array, "(height, width) or (height, width, 1, 3 or 4) of uint8, or floats 0 to 1"
        )
    return array


# Fields that accept only bytes, and fields with any other extension.


def _refuse_all_but_bytes(extension: str, value: Any) -> bytes:
    raise _NotEncodableError(extension, value, "the bytes of such a file")


def _refuse_pickle(extension: str, value: Any) -> bytes:
    raise _NotEncodableError(
        extension, value, "another extension, such as json, npy or msgpack: pickles run code when read"
    )


def _encode_other(extension: str, value: Any) -> bytes:
    data = _as_text(value)
    if data is not None:
        return data
    if isinstance(value, list | tuple | dict):
        return _encode_json(extension, value)
    raise _NotEncodableError(
        extension, value, "bytes, or name the field npy for an array, json for a list, jpg for an image"
    )


_ENCODERS: dict[str, Callable[[str, Any], bytes]] = {
    **dict.fromkeys(("txt", "text", "transcript", "html", "htm"), _encode_text),
    **dict.fromkeys(("cls", "cls2", "class", "label", "category", "count", "index", "inx", "id"), _encode_text),
    **dict.fromkeys(("json", "jsn"), _encode_json),
    **dict.fromkeys(("msgpack", "msg", "mp"), _encode_msgpack),
    **dict.fromkeys(_FORMATS, _encode_image),
    **dict.fromkeys(_MEDIA | _CONTAINERS | _UNSUPPORTED, _refuse_all_but_bytes),
    **dict.fromkeys(_PICKLED, _refuse_pickle),
    "npy": _encode_npy,
    "npz": _encode_npz,
}
