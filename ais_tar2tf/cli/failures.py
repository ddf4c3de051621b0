"""Errors on the command line: the exit code of each error, and a remedy in one line.

The functions must not request anything from a store.
"""

from __future__ import annotations

import errno
import shlex
import ssl
from collections.abc import Callable
from pathlib import Path

from ais_tar2tf.cli.exits import ACCESS, CORRUPT, FAILED, NETWORK, NOT_FOUND, USAGE
from ais_tar2tf.errors import (
    AccessDenied,
    ArchiveError,
    ChecksumMismatch,
    ExportError,
    LimitExceeded,
    MappingError,
    MissingDependency,
    MissingField,
    ObjectChanged,
    OptionError,
    RecordError,
    SchemaError,
    ShardNotFound,
    StoreError,
    Tar2TFError,
    TemplateError,
    TransportError,
    UnclearLayout,
    UnsafeName,
)
from ais_tar2tf.stores import split_url

__all__ = ["code_of", "remedy_for"]

_SAME_WITH_TEMPLATE = "the same command with that template, in quotes"
_FOLDERS = "name the folders in SOURCE train, val, test"
_NO_ENDPOINT = "--endpoint http://host:51080, or export AIS_ENDPOINT=…; without a cluster: ais-tar2tf demo"
_TRUST = "trust its CA: export AIS_CLIENT_CA=/path/to/ca.pem; for s3://, AWS_CA_BUNDLE"
_REPLACING = {
    "convert": "write it anew: the same command with --exists replace; or choose another OUT",
    "finish": "run every host again: ais-tar2tf convert … --shard I/N --exists replace",
    "pack": "the same command with --replace, or with another template",
}

_BY_TEXT = (  # a part of an error's text, and its remedy; the first part that occurs decides
    ("the template is empty", "name the shards: 'train-{000..146}.tar', a folder/, or a glob"),
    ("is no range: write", _SAME_WITH_TEMPLATE),
    ("is how shards are named when they are written", _SAME_WITH_TEMPLATE),
    ("stands for the name of a split when shards are written", _SAME_WITH_TEMPLATE),
    ("the number of a shard that is written goes in", _SAME_WITH_TEMPLATE),
    ("shards, the limit is", "name fewer shards at a time: a smaller range, or several commands"),
    ("shards, Limits.template", "name fewer shards at a time: a longer prefix, or several commands"),
    ("plain HTTP has no listing", "name the shards, in quotes: 'http://host/train-{000..146}.tar'"),
    ("plain HTTP is read only here: say out=", "the same command with --out PLACE"),
    ("plain HTTP is read only", "name a folder, or a bucket: ais://bucket/, s3://bucket/"),
    ("plain HTTP has no buckets", "name a folder, or a bucket: ais://bucket/, s3://bucket/"),
    ("one bucket or host at a time", "the same command once for each of them"),
    ("names no bucket", "see which buckets there are: ais-tar2tf ls ais://"),
    ("a bucket's name is not empty", "see which buckets there are: ais-tar2tf ls ais://"),
    ("no store for this scheme", "begin the URL with one of these; the path of a file has no ://"),
    ("no name for the shards", "say it, and where a number goes: 'ais://bucket/train-{:05d}.tar'"),
    ("there is {split} in the name", f"leave {{split}} out of the template, or {_FOLDERS}"),
    (
        "says where their names go",
        "the same command with that template, or a split alone: ais-tar2tf pack DIR/train URL",
    ),
    ("there is nothing to pack", "a record's files have an extension, as 1.jpg: see ais-tar2tf pack --help"),
    (
        "there is no such folder, and no such CSV file",
        "check the path: ais-tar2tf pack FOLDER 'ais://bucket/train-{:05d}.tar'",
    ),
    ("this is a file, and no CSV file", "name the folder: ais-tar2tf pack FOLDER 'ais://bucket/train-{:05d}.tar'"),
    ("of other kinds", "make shards of them: ais-tar2tf pack FOLDER 'ais://bucket/train-{:05d}.tar'"),
    (" names it, and it is not there", "mend that row; or say where the files lie: --root DIR"),
    ("nothing to finish", "run on every host: ais-tar2tf convert URL OUT --shard I/N"),
    ("no host of a job array has ended yet", "run on every host: ais-tar2tf convert URL OUT --shard I/N"),
    ("an export was finished here, and killed just then", "clear it: ais-tar2tf finish OUT"),
    ("another export is writing there now", "wait until it has ended, or choose another OUT"),
    ("other splits are there, written as", "choose another OUT, or the same --format and --name as theirs"),
    ("among the given classes", "name all classes in the order of their numbers: --classes ant,bee,cat"),
    ("(--splits) finds no folder", f"leave --splits out, or {_FOLDERS}"),
    ("and no manifest of an export: name another folder", "choose another OUT, or move that file away"),
    (
        "manifest.json: the document is damaged",
        "move that file away, then write everything anew: the same command with --exists replace",
    ),
    (
        "which exists='error' refuses",
        "choose another OUT; or the same command without --exists error: the files that are there stay",
    ),
    ("the page cannot be written there", "choose another file, in a folder that is there: --out card.html"),
    ("this file is there, and is no index", "the same command with another --out; that file stays as it is"),
    ("was memory short?", "the same command with fewer processes, as --workers 1"),
    ("is no endpoint; did you mean", "the same command with that endpoint: --endpoint, or export AIS_ENDPOINT=…"),
    (
        "speaks S3, and is no AIStore proxy",
        "the same command with that URL; credentials are those of AWS_…",
    ),
    ("but a folder of that name; did you mean", "the same command with that URL, which ends with a slash"),
    ("no endpoint", _NO_ENDPOINT),
    ("is the endpoint an AIStore proxy?", _NO_ENDPOINT),
    (
        "is the CA right (Tls.ca, AIS_CLIENT_CA)?",
        _TRUST,
    ),
    ("speaks TLS, and was asked without", "the same command with https:// in place of http://"),
    ("does not speak TLS", "the same command with http:// in place of https://"),
)


def code_of(error: BaseException) -> int:
    """Return the exit code that an error means.

    >>> code_of(ShardNotFound("there is no such file", url="a.tar"))
    3
    """
    cause = error.__cause__
    if isinstance(cause, ssl.SSLError) and cause.library == "SSL":  # for a damaged CA file, the library is "X509"
        return NETWORK
    if type(error) is StoreError and isinstance(cause, OSError):  # a local file system failed: a full disk, …
        return FAILED
    if isinstance(error, ExportError) and isinstance(cause, PermissionError):
        return ACCESS
    return next((code for kind, code, _ in _BY_KIND if isinstance(error, kind)), FAILED)


def remedy_for(error: BaseException, verb: str = "", endpoint: object = None) -> str:
    """Return what to do next about an error.

    Args:
        error: The error.
        verb: The verb that failed.
        endpoint: The value of --endpoint, which a suggested command repeats.
    """
    text = str(error)
    if "exists='replace'" in text:
        return _REPLACING.get(verb, "write it anew: ais-tar2tf convert … --exists replace")
    for part, remedy in _BY_TEXT:
        if part in text:
            return remedy
    by_kind = next((remedy for kind, _, remedy in _BY_KIND if isinstance(error, kind)), "")
    remedy = by_kind if isinstance(by_kind, str) else by_kind(error)
    if verb == "doctor" and "ais-tar2tf doctor" in remedy:  # it is running already
        return "check the name and the port of its endpoint, and that it is up"
    last_word = remedy.rpartition(" ")[2]
    option = f" --endpoint {shlex.quote(str(endpoint))}" if endpoint and last_word.startswith("ais://") else ""
    return f"{remedy}{option}" if remedy else f"see the options: ais-tar2tf {verb} --help".replace("  ", " ")


def _of_export(error: BaseException) -> str:
    cause = error.__cause__
    if isinstance(cause, PermissionError):
        return "choose another place, or let this user write there"
    if isinstance(cause, OSError):
        return _of_file_system(cause)
    return "the same command goes on where it was"


def _of_file_system(cause: OSError) -> str:
    if cause.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room, or choose another place; the same command then goes on"
    return "choose another place, where a folder can be made"


def _of_store(error: BaseException) -> str:
    if isinstance(error.__cause__, OSError) and type(error) is StoreError:
        return _of_file_system(error.__cause__)
    where = _where(error)
    if "end it with '/'" in str(error):
        return f"the same command with {shlex.quote(f'{where}/')}"
    return _doctor(error, "see what answers there")


def _of_access(error: BaseException) -> str:
    where = _where(error)
    if "://" in where:
        return _doctor(error, "see what is seen of the credentials")
    return f"see who may read and write it: ls -ld {shlex.quote(_nearest_existing(where))}"


def _of_missing(error: BaseException) -> str:
    """Suggest to list the parent of a missing object or AIStore bucket.

    For a missing bucket of any other store, suggest `doctor`.
    """
    where = _where(error)
    scheme, bucket, name = split_url(where)
    if scheme == "file":
        return _of_missing_file(where)
    if (scheme == "ais" and bucket) or name:
        return f"see what is there: ais-tar2tf ls {shlex.quote(_parent(where))}"
    return f"see whether the name and the endpoint are right: ais-tar2tf doctor {shlex.quote(f'{scheme}://{bucket}')}"


def _of_missing_file(where: str) -> str:
    scheme, colon, rest = where.partition(":/")
    if colon and scheme.isalpha():  # pathlib made one slash of two, or one was forgotten
        return f"a URL has two slashes: {scheme}://{rest.lstrip('/')}"
    remedy = f"see what is there: ais-tar2tf ls {shlex.quote(_nearest_existing(_parent(where)))}"
    is_word = "/" not in where and "." not in where and not Path(where).exists()
    return f"{remedy} (a bucket has its store before it: ais://{where})" if is_word else remedy


def _of_record(error: BaseException) -> str:
    shard = shlex.quote(str(getattr(error, "shard", "")))
    if isinstance(error, MissingField):
        return f"see which fields there are: ais-tar2tf inspect --records 1 {shard}"
    if isinstance(error, LimitExceeded):
        return "raise the limit in Python: t2t.open(url, limits=t2t.options.Limits(…))"
    return f"see everything that is wrong: ais-tar2tf inspect {shard}"


def _of_dependency(error: BaseException) -> str:
    return f"pip install 'ais_tar2tf[{getattr(error, 'extra', '')}]'"


def _doctor(error: BaseException, why: str = "see where it fails") -> str:
    return f"{why}: ais-tar2tf doctor {shlex.quote(_folder(_where(error)))}"


_RANGE = "write a range of numbers as 'train-{000..146}.tar', in quotes: the shell reads braces, too"
_LAYOUT = "see how files become records, classes and splits: ais-tar2tf pack --help"
_CHANGED = "the same command again, when nobody writes there any more"
_CHECKSUM = "put the shard there again; to read past it: --on-error skip-shard"

_BY_KIND: tuple[tuple[type[BaseException], int, str | Callable[[BaseException], str]], ...] = (
    (OptionError, USAGE, ""),
    (TemplateError, USAGE, _RANGE),
    (UnclearLayout, USAGE, _LAYOUT),
    (ShardNotFound, NOT_FOUND, _of_missing),
    (AccessDenied, ACCESS, _of_access),
    (TransportError, NETWORK, _doctor),
    (ObjectChanged, CORRUPT, _CHANGED),
    (ChecksumMismatch, CORRUPT, _CHECKSUM),
    (StoreError, USAGE, _of_store),  # the store cannot do what was asked: an unknown scheme, no endpoint, no listing
    (ArchiveError, CORRUPT, _of_record),
    (RecordError, CORRUPT, _of_record),
    (MappingError, CORRUPT, ""),
    (SchemaError, CORRUPT, ""),
    (UnsafeName, CORRUPT, ""),
    (ExportError, FAILED, _of_export),
    (MissingDependency, FAILED, _of_dependency),
    (Tar2TFError, FAILED, ""),
)
"""The exit code and the remedy of each class of errors; the first class that fits decides.

For an empty remedy, `remedy_for` suggests --help.
"""


def _where(error: BaseException) -> str:
    return str(getattr(error, "url", None) or getattr(error, "shard", None) or "")


def _folder(url: str) -> str:
    head, separator, _ = url.rpartition("/")
    return head + separator if separator else "."


def _parent(url: str) -> str:
    """Return the URL of the folder, bucket or store that holds what `url` names.

    >>> _parent("ais://b/train/0.tar"), _parent("ais://b/train/"), _parent("ais://b/"), _parent("none/")
    ('ais://b/train/', 'ais://b/', 'ais://', '.')
    """
    return _folder(url.rstrip("/")) if url.endswith("/") and not url.endswith("://") else _folder(url)


def _nearest_existing(path: str) -> str:
    """Return the path itself if it exists, or the nearest folder above it that exists."""
    each = Path(path)
    while not each.exists() and each != each.parent:
        each = each.parent
    return path if each == Path(path) else str(each)
