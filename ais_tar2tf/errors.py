"""Every exception that this package raises on purpose.

    Tar2TFError
    ├── OptionError            (ValueError)         an option has a value that it cannot have, or no effect
    │   └── OptionTypeError    (TypeError)          an option of another type, or one that does not exist
    ├── NoSuchRecord           (IndexError)         a record's number beyond the last record
    ├── TemplateError          (ValueError)         a template that cannot be read, or names too many shards
    ├── StoreError             .url                 the store refused, or cannot do what was asked
    │   ├── ShardNotFound      (FileNotFoundError)  a shard that was named is not there
    │   ├── AccessDenied       (PermissionError)    401, 403
    │   ├── TransportError     (ConnectionError)    refused, timed out, broke off, 408, 429, 5xx: after all retries
    │   ├── ObjectChanged                           the object is not the one whose first half was read
    │   ├── ChecksumMismatch                        the bytes are not those that the store says it holds
    │   └── IndexMissing       (TypeError)          the call needs an index, and there is none
    ├── ArchiveError           .shard .offset       the bytes are not a well-formed archive
    │   ├── TruncatedArchive                        it ends before its end mark
    │   ├── UnsupportedArchive                      a format or feature that is not read here
    │   └── LimitExceeded                           a field of options.Limits was passed
    ├── RecordError            .shard .key          members that do not make a record
    │   ├── MissingField                            a field that was asked for is not in the record
    │   ├── DuplicateField                          two members are the same field of one record
    │   ├── DuplicateKey                            a key that came before comes back
    │   └── StrayMember                             a member that belongs to no record
    ├── MappingError           .shard .key          a mapping raised, or a field did not decode
    ├── SchemaError            (ValueError)         records do not fit what was said or seen of them
    │   ├── NoFeature          (TypeError)          a value that has no form in a tf.train.Example
    │   ├── UnclearLayout                           files that leave open what is a record, a class or a split
    │   ├── FeatureOverflow    (OverflowError)      a number that an int64 or a float32 cannot hold
    │   └── MalformedExample   .offset              bytes that are no serialized tf.train.Example
    ├── UnsafeName             (ValueError)         a name in a document or listing that could leave its root
    ├── CheckpointError        (ValueError)         a checkpoint does not fit the dataset that it is restored into
    ├── ExportError            (OSError)            a record file could not be written or published
    │   └── PartMissing        .hosts .of           hosts of a job array have not left their parts yet
    ├── ServerError            (OSError)            the embedded server cannot start
    │   └── FolderMissing      (NotADirectoryError) the folder that it should serve is not there
    └── MissingDependency      (ImportError)        an optional package is needed; names the extra to install

The text of an error says what to do next. The attributes say where: they are also in the text.

TensorFlow turns errors into text. An iterator over a dataset of ours turns the text into our error again; behind
further stages, in `model.fit` for example, `original` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from copy import copy
from typing import NamedTuple, Protocol
from weakref import ReferenceType

from ais_tar2tf.signed_urls import shown_url

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

_REMEMBERED = 64  # errors that became text of TensorFlow's, and can be found again


def __dir__() -> list[str]:
    return sorted(__all__)


class Tar2TFError(Exception):
    """The root of the tree: `except Tar2TFError` catches whatever this package raises on purpose."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message: str = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions with keyword arguments do not survive pickling by themselves.
        return _rebuild, (type(self), self.message, dict(self.__dict__))


def _rebuild(cls: type[Tar2TFError], message: str, state: dict[str, object]) -> Tar2TFError:
    error = cls.__new__(cls, message)
    error.__dict__.update(state)
    return error


class OptionError(Tar2TFError, ValueError):
    """An option has a value that it cannot have, or has no effect together with the other options."""


class OptionTypeError(OptionError, TypeError):
    """An option has a value of another type than it takes, or there is no option of that name."""


class NoSuchRecord(Tar2TFError, IndexError):
    """A record was asked for by a number beyond the last record."""


class TemplateError(Tar2TFError, ValueError):
    """A template that cannot be read, or that names more shards than `Limits.template`."""


class StoreError(Tar2TFError):
    """A store refused, or cannot do what was asked. `url` names the object or the bucket."""

    def __init__(self, message: str, *, url: str) -> None:
        self.url: str = shown_url(url)
        super().__init__(f"{self.url}: {message}")


class ShardNotFound(StoreError, FileNotFoundError):
    """A shard that a template names, or a listing showed, is not there."""


class AccessDenied(StoreError, PermissionError):
    """The store said 401 or 403, which is its `status`. The token is never in the text."""

    def __init__(self, message: str, *, url: str, status: int | None = None) -> None:
        super().__init__(message, url=url)
        self.status: int | None = status


class Silence(NamedTuple):
    """For how long an endpoint that has never answered has given no answer."""

    seconds: float  # since the first of the tries
    last: float  # that the last try took
    accepts: bool = False  # it takes connections: something is there, and may be busy


class TransportError(StoreError, ConnectionError):
    """The network or the server failed, and kept failing for as long as `Retry` allows."""

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
        self.retry_after: float | None = retry_after
        self.silence: Silence | None = silence  # of an endpoint that has never answered, nor this request
        self.final: bool = final  # to try again would not help
        self.next_try: float | None = None  # seconds from this failure to the next try, once that is decided


class ObjectChanged(StoreError):
    """The object is not the one that the first part of the stream, or a checkpoint, came from."""


class ChecksumMismatch(StoreError):
    """The bytes that came are not those that the store says it holds."""


class IndexMissing(StoreError, TypeError):
    """The call needs an index of the shards, and none describes them.

    It is a TypeError too, as `len()` of an object without a length raises: `list(source)` then counts while it reads.
    """


class ArchiveError(Tar2TFError):
    """The bytes of a shard are no well-formed archive; `offset` counts in what they decompress to."""

    def __init__(self, message: str, *, shard: str, offset: int) -> None:
        super().__init__(f"{shard}, offset {offset}: {message}")
        self.shard: str = shard
        self.offset: int = offset


class TruncatedArchive(ArchiveError):
    """The archive ends before its end mark."""


class UnsupportedArchive(ArchiveError):
    """A format, or a feature of a format, that is not read here."""


class LimitExceeded(ArchiveError):
    """A field of `options.Limits` was passed; the text says which."""


class RecordError(Tar2TFError):
    """Members that do not make a record."""

    def __init__(self, message: str, *, shard: str, key: str) -> None:
        super().__init__(f"{shard}, record {key!r}: {message}")
        self.shard: str = shard
        self.key: str = key


class MissingField(RecordError):
    """A field that was asked for is not in the record."""


class DuplicateField(RecordError):
    """Two members of one record are the same field."""


class DuplicateKey(RecordError):
    """A key that came before comes back after other records."""


class StrayMember(RecordError):
    """A member whose name has no extension, so that it belongs to no record."""


class MappingError(Tar2TFError):
    """A mapping raised, or a field did not decode."""

    def __init__(self, message: str, *, shard: str, key: str) -> None:
        super().__init__(f"{shard}, record {key!r}: {message}")
        self.shard: str = shard
        self.key: str = key


class SchemaError(Tar2TFError, ValueError):
    """Records do not fit what was said, or seen in the first of them."""


class NoFeature(SchemaError, TypeError):
    """A value that has no form in a tf.train.Example; the text names its field."""


class UnclearLayout(SchemaError):
    """The names of files leave open what is a record, a class or a split; the text names the options that decide."""


class FeatureOverflow(SchemaError, OverflowError):
    """A number that does not fit into an int64, or into a float32; the text names its field."""


class MalformedExample(SchemaError):
    """Bytes that are no serialized tf.train.Example; `offset` is where they stop being one."""

    def __init__(self, message: str, *, offset: int) -> None:
        super().__init__(f"offset {offset}: {message}")
        self.offset: int = offset


class UnsafeName(Tar2TFError, ValueError):
    """A name from a document, a listing or a URL that could leave the folder or bucket it belongs to."""


class CheckpointError(Tar2TFError, ValueError):
    """A checkpoint does not fit the dataset that it is restored into."""


class ExportError(Tar2TFError, OSError):
    """A record file could not be written or published."""


class PartMissing(ExportError):
    """Some of the `of` hosts of a job array have not left their parts: those whose numbers are `hosts`."""

    def __init__(self, message: str, *, hosts: Sequence[int], of: int) -> None:
        super().__init__(message)
        self.hosts: tuple[int, ...] = tuple(hosts)
        self.of: int = of


class ServerError(Tar2TFError, OSError):
    """The embedded server cannot start, for example because its port is in use."""


class FolderMissing(ServerError, NotADirectoryError):
    """The folder that the embedded server should serve is not there, or is no folder."""


class MissingDependency(Tar2TFError, ImportError):
    """An optional package is needed; the text names the extra that brings it."""

    def __init__(self, package: str, *, extra: str) -> None:
        super().__init__(
            f"{package} is needed here and is not installed: pip install 'ais_tar2tf[{extra}]', or in a clone of the "
            f"project ./setup.sh with {extra}"
        )
        self.package: str = package
        self.extra: str = extra


# Errors that pass through TensorFlow, which keeps their text only.

_passed: deque[Tar2TFError] = deque(maxlen=_REMEMBERED)
_finders: deque[ReferenceType[Finder]] = deque(maxlen=_REMEMBERED)


def original(error: BaseException | None) -> Tar2TFError | None:
    """Return the error of this package that an error of TensorFlow's was made of.

    Args:
        error: What was caught, in any thread of the process in which the dataset was made.

    Returns:
        An error equal to the one that was raised, with its attributes and its cause. `error` itself, when it is one
        of ours. None when no error of ours is in it, or when more than 64 others were raised since.

    >>> error = SchemaError("field 'cls' is missing")
    >>> text = f"Error in user-defined function: SchemaError: {for_tensorflow(error)} [Op:IteratorGetNext]"
    >>> original(RuntimeError(text))
    SchemaError("field 'cls' is missing")
    >>> print(original(RuntimeError("out of memory")))
    None
    """
    for each in _with_causes(error):
        if isinstance(each, Tar2TFError):
            return each
        text = str(each)
        found = [passed for passed in _passed.copy() if _text_of(passed) in text]
        if found:
            latest = max(reversed(found), key=lambda passed: len(_text_of(passed)))
            return _again(latest, cause=latest.__cause__)
        for reference in reversed(_finders.copy()):
            finder = reference()
            explained = None if finder is None else finder.original_of(text)
            if explained is not None:
                return explained
    return None


class Finder(Protocol):
    """An object that knows errors by what TensorFlow says of them, such as a dataset that knows its files."""

    def original_of(self, text: str) -> Tar2TFError | None:
        """Return the error that TensorFlow's text stands for, if this object is concerned."""
        ...


def ask_for_originals(finder: Finder) -> None:
    """Let `original` ask `finder`, for as long as somebody else holds it."""
    _finders.append(ReferenceType(finder))


def for_tensorflow(error: Tar2TFError) -> Tar2TFError:
    """Return an equal error to raise into TensorFlow: without causes, its text in characters that TensorFlow keeps.

    The error itself is remembered with its causes for `original`.
    """
    _drop_frames(error)
    _passed.append(error)
    plain = _again(error, cause=None)
    plain.message = _kept(error.message)
    return plain


def _again(error: Tar2TFError, *, cause: BaseException | None) -> Tar2TFError:
    """Return an equal error: who raises one gives it a traceback, whose frames are not to be remembered here."""
    again = copy(error)
    again.__cause__ = cause
    return again


def _text_of(error: Tar2TFError) -> str:
    return f"{type(error).__name__}: {_kept(error.message)}"


def _kept(text: str) -> str:
    """Return the text with names that are not UTF-8 written out: TensorFlow drops the whole of such a text."""
    return text.encode("utf-8", "backslashreplace").decode()


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _drop_frames(error: Tar2TFError) -> None:
    """Let go of the frames of our functions, which hold buffers and open streams; those of a mapping stay."""
    for each in _with_causes(error):
        frames = each.__traceback__ if isinstance(error, MappingError) else None
        while frames is not None and not _is_of_user(frames.tb_frame.f_globals.get("__name__", "")):
            frames = frames.tb_next
        each.__traceback__ = frames


def _is_of_user(module: str) -> bool:
    return module.partition(".")[0] not in ("ais_tar2tf", "tensorflow")
