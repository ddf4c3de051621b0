"""Every exception that this package raises on purpose. This module must not decide when an error is raised.

    Tar2TFError
    ├── OptionError            (ValueError)         an option has a wrong value, or no effect
    │   └── OptionTypeError    (TypeError)          an option has a wrong type, or does not exist
    ├── NoSuchRecord           (IndexError)         a record's number is beyond the last record
    ├── TemplateError          (ValueError)         a template is malformed, or names too many shards
    ├── StoreError             .url                 a store refuses a request, or does not support it
    │   ├── ShardNotFound      (FileNotFoundError)  a shard that was named or listed does not exist
    │   ├── AccessDenied       (PermissionError)    the store answered 401 or 403
    │   ├── TransportError     (ConnectionError)    network or server (408, 429, 5xx) failed, after all retries
    │   ├── ObjectChanged                           the object was replaced while it was read
    │   ├── ChecksumMismatch                        the bytes do not have the checksum that the store states
    │   └── IndexMissing       (TypeError)          the call needs an index, and there is none
    ├── ArchiveError           .shard .offset       the bytes are not a well-formed archive
    │   ├── TruncatedArchive                        the archive ends before its end mark
    │   ├── UnsupportedArchive                      the archive has a format or a feature that is not supported
    │   └── LimitExceeded                           a limit of options.Limits was exceeded
    ├── RecordError            .shard .key          members do not make a record
    │   ├── MissingField                            a record lacks a field that was requested
    │   ├── DuplicateField                          two members are the same field of one record
    │   ├── DuplicateKey                            a key comes again after other records
    │   └── StrayMember                             a member belongs to no record
    ├── MappingError           .shard .key          a mapping raised an error, or a field could not be decoded
    ├── SchemaError            (ValueError)         records do not fit their schema
    │   ├── NoFeature          (TypeError)          a value has no form in a tf.train.Example
    │   ├── UnclearLayout                           names of files leave records, classes or splits unclear
    │   ├── FeatureOverflow    (OverflowError)      a number does not fit an int64 or a float32
    │   └── MalformedExample   .offset              bytes are not a serialized tf.train.Example
    ├── UnsafeName             (ValueError)         a name in a document or a listing could leave its root
    ├── CheckpointError        (ValueError)         a checkpoint does not fit the dataset that it is restored into
    ├── ExportError            (OSError)            a record file could not be written or published
    │   └── PartMissing        .hosts .of           hosts of a job array have not written their parts yet
    ├── ServerError            (OSError)            the embedded server cannot start
    │   └── FolderMissing      (NotADirectoryError) the folder to serve does not exist
    └── MissingDependency      (ImportError)        an optional package is needed; names the extra to install

The text of an error says where the error happened and what to do next. The attributes also say where it happened.

TensorFlow keeps only the text of an error. An iterator over a dataset of this package finds the original error by the
text, and raises it. When further stages of tf.data follow, as in `model.fit`, call `original` to find the error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol
from weakref import ReferenceType

from ais_tar2tf.base.causes import copied, drop_frames, with_causes
from ais_tar2tf.base.urls.signed import shown_url

__all__ = [
    "AccessDenied",
    "ArchiveError",
    "CheckpointError",
    "ChecksumMismatch",
    "DuplicateField",
    "DuplicateKey",
    "ExportError",
    "FeatureOverflow",
    "Finder",
    "FolderMissing",
    "IndexMissing",
    "LimitExceeded",
    "MalformedExample",
    "MappingError",
    "MissingDependency",
    "MissingField",
    "NoFeature",
    "NoSuchRecord",
    "ObjectChanged",
    "OptionError",
    "OptionTypeError",
    "PartMissing",
    "RecordError",
    "SchemaError",
    "ServerError",
    "ShardNotFound",
    "StoreError",
    "StrayMember",
    "Tar2TFError",
    "TemplateError",
    "TransportError",
    "TruncatedArchive",
    "UnclearLayout",
    "UnsafeName",
    "UnsupportedArchive",
    "ask_for_originals",
    "for_tensorflow",
    "original",
]

_REMEMBERED = 64  # the most errors, and the most finders, that `original` searches


def __dir__() -> list[str]:
    return sorted(__all__)


class Tar2TFError(Exception):
    """The base class of all errors that this package raises on purpose."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message: str = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Python cannot pickle exceptions whose constructors take keyword arguments.
        return _rebuild, (type(self), self.message, dict(self.__dict__))


def _rebuild(cls: type[Tar2TFError], message: str, state: dict[str, object]) -> Tar2TFError:
    error = cls.__new__(cls, message)
    error.__dict__.update(state)
    return error


class OptionError(Tar2TFError, ValueError):
    """An option has a wrong value, or has no effect together with the other options."""


class OptionTypeError(OptionError, TypeError):
    """An option has a value of a wrong type, or there is no option of this name."""


class NoSuchRecord(Tar2TFError, IndexError):
    """The number of a record is beyond the last record."""


class TemplateError(Tar2TFError, ValueError):
    """A template is malformed, or names more shards than `Limits.template`."""


class StoreError(Tar2TFError):
    """A store refuses a request, or does not support it. `url` is the URL of the object or the bucket."""

    def __init__(self, message: str, *, url: str) -> None:
        self.url: str = shown_url(url)
        super().__init__(f"{self.url}: {message}")


class ShardNotFound(StoreError, FileNotFoundError):
    """A shard that a template names, or that a listing showed, does not exist."""


class AccessDenied(StoreError, PermissionError):
    """The store denied access. `status` is 401 or 403; None if the file system or a cloud's library denied access."""

    def __init__(self, message: str, *, url: str, status: int | None = None) -> None:
        super().__init__(message, url=url)
        self.status: int | None = status


class Silence(NamedTuple):
    """The silence of an endpoint that has never answered any request."""

    seconds: float  # the time since the first attempt
    last: float  # how many seconds the last attempt took
    accepts: bool = False  # whether the endpoint accepts connections. If so, a program listens, and may be busy


class TransportError(StoreError, ConnectionError):
    """The network or the server failed, and all retries that `Retry` allows failed, too."""

    def __init__(
        self,
        message: str,
        *,
        url: str,
        retry_after: float | None = None,
        silence: Silence | None = None,
        final: bool = False,
    ) -> None:
        super().__init__(message, url=url)
        self.retry_after: float | None = retry_after  # how many seconds the server asked to wait
        self.silence: Silence | None = silence  # None if the endpoint has answered any request
        self.final: bool = final  # True: another attempt cannot help
        self.next_try: float | None = None  # seconds from this failure to the next attempt; None if unknown


class ObjectChanged(StoreError):
    """The object was replaced after its first bytes were read, or after a checkpoint was written."""


class ChecksumMismatch(StoreError):
    """The received bytes do not have the checksum that the store states."""


class IndexMissing(StoreError, TypeError):
    """The call needs an index of the shards, and no index describes them.

    This error is also a TypeError, because `list(source)` asks for the length first, and ignores only a TypeError.
    """


class ArchiveError(Tar2TFError):
    """The bytes of a shard are not a well-formed archive. `offset` counts decompressed bytes."""

    def __init__(self, message: str, *, shard: str, offset: int) -> None:
        super().__init__(f"{shard}, offset {offset}: {message}")
        self.shard: str = shard
        self.offset: int = offset


class TruncatedArchive(ArchiveError):
    """The archive ends before its end mark."""


class UnsupportedArchive(ArchiveError):
    """The archive has a format, or a feature of a format, that is not supported."""


class LimitExceeded(ArchiveError):
    """A limit of `options.Limits` was exceeded. The text names the limit."""


class RecordError(Tar2TFError):
    """Members do not make a record."""

    def __init__(self, message: str, *, shard: str, key: str) -> None:
        super().__init__(f"{shard}, record {key!r}: {message}")
        self.shard: str = shard
        self.key: str = key


class MissingField(RecordError):
    """A record lacks a field that was requested."""


class DuplicateField(RecordError):
    """Two members of one record are the same field."""


class DuplicateKey(RecordError):
    """A key comes again, after members of other records."""


class StrayMember(RecordError):
    """The name of a member has no extension, so the member belongs to no record."""


class MappingError(Tar2TFError):
    """A mapping raised an error, or a field could not be decoded."""

    def __init__(self, message: str, *, shard: str, key: str) -> None:
        super().__init__(f"{shard}, record {key!r}: {message}")
        self.shard: str = shard
        self.key: str = key


class SchemaError(Tar2TFError, ValueError):
    """Records do not fit the given schema, or the schema of the first records."""


class NoFeature(SchemaError, TypeError):
    """A value has no form in a tf.train.Example. The text names its field."""


class UnclearLayout(SchemaError):
    """The names of files do not show which records, classes or splits the files form. The text names remedies."""


class FeatureOverflow(SchemaError, OverflowError):
    """A number does not fit an int64 or a float32. The text names its field."""


class MalformedExample(SchemaError):
    """Bytes are not a serialized tf.train.Example. `offset` is the offset of the first wrong byte."""

    def __init__(self, message: str, *, offset: int) -> None:
        super().__init__(f"offset {offset}: {message}")
        self.offset: int = offset


class UnsafeName(Tar2TFError, ValueError):
    """A name in a document, a listing or a URL could leave its folder or bucket."""


class CheckpointError(Tar2TFError, ValueError):
    """A checkpoint does not fit the dataset that it is restored into."""


class ExportError(Tar2TFError, OSError):
    """A record file could not be written or published."""


class PartMissing(ExportError):
    """Some hosts of a job array have not written their parts yet. `hosts` are their numbers; there are `of` hosts."""

    def __init__(self, message: str, *, hosts: Sequence[int], of: int) -> None:
        super().__init__(message)
        self.hosts: tuple[int, ...] = tuple(hosts)
        self.of: int = of


class ServerError(Tar2TFError, OSError):
    """The embedded server cannot start, for example because its port is in use."""


class FolderMissing(ServerError, NotADirectoryError):
    """The folder that the embedded server should serve does not exist, or is not a folder."""


class MissingDependency(Tar2TFError, ImportError):
    """An optional package is needed. The text names the extra that installs it."""

    def __init__(self, package: str, *, extra: str) -> None:
        super().__init__(
            f"{package} is needed here and is not installed: pip install 'ais_tar2tf[{extra}]', or in a clone of the "
            f"project ./setup.sh with {extra}"
        )
        self.package: str = package
        self.extra: str = extra


# TensorFlow keeps only the text of an error. The rest of this module finds the error by its text.

_passed: deque[Tar2TFError] = deque(maxlen=_REMEMBERED)
_finders: deque[ReferenceType[Finder]] = deque(maxlen=_REMEMBERED)


def original(error: BaseException | None) -> Tar2TFError | None:
    """Return the error of this package that caused an error of TensorFlow.

    Args:
        error: The caught error, in any thread of the process that made the dataset.

    Returns:
        The first error of this package among `error` and its causes. If there is none: a copy of the error that
        TensorFlow turned into text, with its attributes and its cause. Otherwise None, also if more than 64 other
        errors were raised into TensorFlow after the error.

    Example:
        >>> error = SchemaError("field 'cls' is missing")
        >>> text = f"Error in user-defined function: SchemaError: {for_tensorflow(error)} [Op:IteratorGetNext]"
        >>> original(RuntimeError(text))
        SchemaError("field 'cls' is missing")
        >>> print(original(RuntimeError("out of memory")))
        None
    """
    for each in with_causes(error):
        if isinstance(each, Tar2TFError):
            return each
        text = str(each)
        matching = [passed for passed in _passed.copy() if _text_of(passed) in text]
        if matching:
            longest = max(reversed(matching), key=lambda passed: len(_text_of(passed)))
            return copied(longest, cause=longest.__cause__)
        for reference in reversed(_finders.copy()):
            finder = reference()
            found = None if finder is None else finder.original_of(text)
            if found is not None:
                return found
    return None


class Finder(Protocol):
    """An object, such as a dataset, that finds an error of this package by the text that TensorFlow kept."""

    def original_of(self, text: str) -> Tar2TFError | None:
        """Return the error that the text of TensorFlow's error describes, or None."""
        ...


def ask_for_originals(finder: Finder) -> None:
    """Let `original` ask `finder` for errors. The finder is referenced weakly, and is asked only while it exists."""
    _finders.append(ReferenceType(finder))


def for_tensorflow(error: Tar2TFError) -> Tar2TFError:
    """Return an equal error to raise into TensorFlow, and remember the error itself for `original`.

    Args:
        error: The error. Its tracebacks are released, except the frames of a user's mapping.

    Returns:
        A copy without causes, whose text has only characters that TensorFlow keeps.
    """
    drop_frames(error, keep_user_code=isinstance(error, MappingError))
    _passed.append(error)
    plain = copied(error, cause=None)
    plain.message = _utf8(error.message)
    return plain


def _text_of(error: Tar2TFError) -> str:
    return f"{type(error).__name__}: {_utf8(error.message)}"


def _utf8(text: str) -> str:
    """Escape the characters that UTF-8 cannot encode, because TensorFlow drops a text that has any of them."""
    return text.encode("utf-8", "backslashreplace").decode()
