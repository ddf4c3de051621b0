"""Shuffling by dSort: the AIStore cluster writes the records of shards into new shards, in another order.

This module starts and watches jobs of the cluster. It must not read records itself. If the cluster was built without
dSort, and the user passes `local=True`, `local_shuffle.py` reads and writes the records.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ais_tar2tf.base.documents.parsing import json_value
from ais_tar2tf.base.urls.locations import Location, Locations, location_text, location_texts
from ais_tar2tf.base.urls.templates import expand
from ais_tar2tf.cluster.local_shuffle import shuffle_locally
from ais_tar2tf.errors import ExportError, SchemaError, ShardNotFound, StoreError, TransportError
from ais_tar2tf.options import Read
from ais_tar2tf.recordfiles.export.boundaries import parse_size
from ais_tar2tf.stores import TokenSource, split_url
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.stores.clusters import ClusterCalls
from ais_tar2tf.streams.arguments import read_options
from ais_tar2tf.streams.naming import shard_names

__all__ = ["ORDERS", "ShuffleJob", "ShuffleProgress", "shuffle"]

ORDERS = {"random": "shuffle", "name": "alphanumeric", "md5": "md5", "none": "none"}
"""From each value of the option `order` of `shuffle` to the name that dSort has for this order."""

_FIELD_TYPES = ("int", "float", "string")  # the types that a field's values may have if dSort sorts by this field
_EXTENSIONS = (".tar.gz", ".tar.lz4", ".tar", ".tgz", ".zip")  # the shards that dSort can read and write
_NO_DSORT = frozenset({501})  # the HTTP status of a cluster that was built without dSort
_WRONG_METHOD = frozenset({405})  # the HTTP status of dSort for an unknown method
# Seconds between two requests for the progress. The pause grows, because jobs take from 0.1 s to hours.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


@dataclass(frozen=True)
class ShuffleProgress:
    """The progress of a dSort job.

    Attributes:
        phase: "reading", "sorting", "writing" or "done".
        extracted: The number of shards that have been read.
        shards: The number of all shards to read.
        created: The number of shards that have been written.
        to_create: The number of all shards to write: the sum of the numbers that targets have reported so far.
        aborted: Whether the job was aborted.
        errors: The errors that the targets report.
    """

    phase: str
    extracted: int
    shards: int
    created: int
    to_create: int
    aborted: bool = False
    errors: tuple[str, ...] = ()

    @classmethod
    def from_targets(cls, targets: list[dict[str, Any]], shards: int) -> ShuffleProgress:
        """Add up the progress that each target reports on one job. The job reads `shards` shards."""
        metrics: list[dict[str, Any]] = [target["Metrics"] for target in targets]
        reading = [each.get("local_extraction") or {} for each in metrics]
        writing = [each.get("shard_creation") or {} for each in metrics]
        done = bool(targets) and all(target.get("archived") for target in targets)
        phase = "writing" if any(each.get("running") for each in writing) else "sorting"
        if not all(each.get("finished") for each in reading):
            phase = "reading"
        return cls(
            phase="done" if done else phase,
            extracted=sum(int(each.get("extracted_count", 0)) for each in reading),
            shards=shards,
            created=sum(int(each.get("created_count", 0)) for each in writing),
            to_create=sum(int(each.get("to_create", 0)) for each in writing),
            aborted=any(each.get("aborted") for each in [*targets, *metrics]),
            errors=tuple(str(error) for each in metrics for error in each.get("errors") or ()),
        )


class ShuffleJob:
    """A dSort job that runs in the cluster.

    Args:
        calls: The connection to the cluster.
        job: The job's id.
        shards: How many shards the job reads.
        urls: A function that gets a number n and returns the URLs of the first n new shards.
    """

    def __init__(self, calls: ClusterCalls, job: str, shards: int, urls: Callable[[int], list[str]]) -> None:
        self.id: str = job
        self._calls = calls
        self._shards = shards
        self._urls = urls

    def progress(self) -> ShuffleProgress:
        """Request the job's progress from the cluster."""
        answer = self._calls.call("GET", f"sort?uuid={self.id}")
        try:
            targets: dict[str, Any] = json_value(answer.content)
            return ShuffleProgress.from_targets(list(targets.values()), self._shards)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise StoreError(
                f"the report on job {self.id} cannot be parsed ({error})", url=self._calls.shown
            ) from error

    def abort(self) -> None:
        """Abort the job if it is still running. The new shards that it has written stay."""
        self._calls.call("DELETE", f"sort/abort?uuid={self.id}")

    def wait(
        self,
        progress: Callable[[ShuffleProgress], None] | None = None,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> list[str]:
        """Wait until the job has ended, and return the URLs of the new shards. Ctrl-C during the wait aborts the job.

        Args:
            progress: Called repeatedly with the job's progress until the job has ended.
            pause: Waits for a number of seconds; tests pass a function that does not wait.

        Raises:
            ExportError: The job was aborted, or did not read all shards.
        """
        seconds = _FIRST_PAUSE
        try:
            while (latest := self.progress()).phase != "done":
                if progress is not None:
                    progress(latest)
                pause(seconds)
                seconds = min(_LONGEST_PAUSE, seconds * 1.5)
        except KeyboardInterrupt:
            self.abort()
            raise
        if progress is not None:
            progress(latest)
        if latest.aborted:
            why = "; ".join(latest.errors) or "the cluster states no reason"
            raise ExportError(f"dSort job {self.id} was aborted ({why}); the new shards are incomplete")
        if latest.extracted != self._shards:
            raise ExportError(
                f"dSort job {self.id} read {latest.extracted:,} of {self._shards:,} shards; are some shards empty?"
            )
        return self._urls(latest.created)


def shuffle(
    template: Locations,
    out_template: Location,
    *,
    shard_size: int | str = "100MB",
    order: str | tuple[str, str] = "random",
    seed: int = 0,
    descending: bool = False,
    bucket: str | None = None,
    endpoint: str | None = None,
    token: TokenSource | None = None,
    replace: bool = False,
    local: bool = False,
    progress: Callable[[ShuffleProgress], None] | None = None,
    wait: bool = True,
) -> Any:
    """Write the records of shards into new shards, in another order, inside the AIStore cluster (dSort).

    Args:
        template: The shards to read: a URL (`ais://bucket/train-{0..99}.tar`) or several, or names in `bucket`.
        out_template: The template of the new shards: a URL (`ais://bucket/mixed-{0..99}.tar`), or names in `bucket`.
        shard_size: The largest size of a new shard, as a number of bytes or a text such as "100MB". dSort does not
            count tar headers; a local shuffle counts them.
        order: "random"; "name" (by key); "md5" (by the MD5 hash of the key); "none" (unchanged); or a field and the
            type of its values, as `("cls", "int")`. The type is "int", "float" or "string".
        seed: The seed of the random order.
        descending: Whether to reverse an order by key, hash or field.
        bucket: The bucket for `template` and `out_template` if they are no URLs.
        endpoint: The URL of the AIStore proxy. Default: AIS_ENDPOINT.
        token: The AuthN token, or a function that returns it. Default: AIS_AUTHN_TOKEN.
        replace: Whether to delete existing shards whose names new shards will get. If False, they are an error.
        local: Whether to shuffle in this process if the cluster was built without dSort. Such a local shuffle reads
            many records by each request. It needs uncompressed tars, and the order "random" or "none".
        progress: Called repeatedly with a `ShuffleProgress` until the job has ended. A local shuffle never calls it.
        wait: Whether to wait until the job has ended. A local shuffle always waits.

    Returns:
        The URLs of the new shards, or with `wait=False` the running `ShuffleJob`.

    Raises:
        SchemaError: An argument is not valid.
        ExportError: A shard with a new name exists, or the job was aborted or did not read all shards.
        StoreError: The cluster was built without dSort, and `local` is False.

    Example:
        t2t.cluster.shuffle("ais://pets/train-{000..146}.tar", "ais://pets/mixed-{000..199}.tar", seed=7)
    """
    algorithm = _algorithm(order, seed, descending=descending)
    size = parse_size(shard_size)
    read = read_options()
    source_bucket, templates = _one_bucket(template, bucket)
    store_bucket, out_name = _bucket_and_name(location_text(out_template), bucket)
    _extension([out_name])
    with ExitStack() as opened:
        source = opened.enter_context(closing(AisStore(source_bucket, read, endpoint=endpoint, token=token)))
        names = _names(source, templates, read)
        store = opened.enter_context(closing(AisStore(store_bucket, read, endpoint=endpoint, token=token)))
        if replace:
            _check_apart(source, names, store, out_name, read)
        calls = ClusterCalls(endpoint, token, timeouts=read.timeouts)
        with ExitStack() as until_started:
            until_started.callback(calls.close)
            old_names = _old_names(store, out_name, read, replace=replace)

            def make_room() -> None:
                for name in old_names:
                    store.delete(name)

            if _has_dsort(calls):
                make_room()
                job = _start(calls, source, names, store, out_name, size, algorithm, read)
                if wait:
                    return job.wait(progress)
                until_started.pop_all()  # keep `calls` open, because the job uses it
                return job
        if not local:
            raise StoreError(
                "this AIStore was built without -tags=dsort; local=True shuffles in this process",
                url=calls.shown,
            )
        out_names = _out_names(out_name, read)
        return shuffle_locally(source, names, store, out_names, size, make_room, order=order, seed=seed, read=read)


def _has_dsort(calls: ClusterCalls) -> bool:
    """Return whether the cluster was built with dSort.

    `shuffle` asks this before it deletes old shards. The request changes nothing, because dSort has no method PUT.
    """
    return calls.call("PUT", "sort", accept=_NO_DSORT | _WRONG_METHOD).status not in _NO_DSORT


def _start(
    calls: ClusterCalls,
    source: AisStore,
    names: Sequence[str],
    store: AisStore,
    out_name: str,
    size: int,
    algorithm: dict[str, Any],
    read: Read,
) -> ShuffleJob:
    """Start the job, and return it."""
    extension = _extension(names)
    request = {
        "input_bck": source.bucket_document(),
        "output_bck": store.bucket_document(),
        "input_format": {"objnames": list(names)},
        "input_extension": extension,
        "output_format": out_name.removesuffix(_extension([out_name])),
        "output_extension": _extension([out_name]),
        "output_shard_size": f"{size}B",
        "algorithm": algorithm,
        "dsorter_type": "dsort_general",  # with much memory, the default is a type that some builds lack
        # By default the cluster skips missing shards and duplicate records silently.
        "Config": {"missing_shards": "abort", "duplicated_records": "abort"},
        "description": f"ais_tar2tf: {len(names)} shards",
    }
    try:
        answer = calls.call("POST", "sort", json=request)
    except TransportError as error:
        raise TransportError(f"dSort did not accept the job ({error.message})", url=calls.shown) from error

    def first_urls(count: int) -> list[str]:
        return [store.url(name) for name in islice(_out_names(out_name, read), count)]

    job = answer.content.decode(errors="replace").strip().strip('"')
    return ShuffleJob(calls, job, len(names), first_urls)


def _algorithm(order: str | tuple[str, str], seed: int, *, descending: bool) -> dict[str, Any]:
    """Check the arguments, and return the `algorithm` of a dSort request.

    If an argument is wrong, dSort closes the connection without an answer. So the arguments are checked here.
    """
    if isinstance(order, tuple):
        field, kind = order if len(order) == 2 else ("", "")  # pyright: ignore[reportUnnecessaryComparison]  # users' code is not checked
        if not field or kind not in _FIELD_TYPES:
            raise SchemaError(f"an order by a field is (field, one of {', '.join(_FIELD_TYPES)}), not {order!r}")
        return {"kind": "content", "extension": f".{field}", "content_key_type": kind, "decreasing": descending}
    if not isinstance(order, str) or order not in ORDERS:  # pyright: ignore[reportUnnecessaryIsInstance]  # users' code is not checked
        raise SchemaError(f"order is one of {', '.join(ORDERS)}, or (field, type), not {order!r}")
    if seed < 0:
        raise SchemaError(f"a seed is not negative: {seed}")
    return {"kind": ORDERS[order], "decreasing": descending, **({"seed": str(seed)} if order == "random" else {})}


# Names


def _one_bucket(template: Locations, bucket: str | None) -> tuple[str, list[str]]:
    """Return the bucket of all templates, and the part of each template after the bucket."""
    if not isinstance(template, os.PathLike) and not template:
        raise SchemaError("no shards are named: pass a URL, or names and bucket=")
    buckets, names = zip(*(_bucket_and_name(text, bucket) for text in location_texts(template)), strict=True)
    if len(set(buckets)) > 1:
        raise SchemaError("shards that are shuffled together are in one bucket")
    return buckets[0], list(names)


def _bucket_and_name(text: str, bucket: str | None) -> tuple[str, str]:
    if "://" in text:
        scheme, url_bucket, name = split_url(text)
        if scheme != "ais":
            raise SchemaError(f"shuffling in the cluster is done by AIStore (ais://), not by {scheme}://")
    else:
        url_bucket, name = bucket or "", text
    if not url_bucket or not name:
        raise SchemaError(f"{text!r} names no bucket or no shard: write ais://bucket/name, or pass bucket=")
    return url_bucket, name


def _names(store: AisStore, templates: Sequence[str], read: Read) -> list[str]:
    names = list(shard_names(store, templates, read.limits))
    if not names:
        raise ShardNotFound("the template names no shard", url=store.url(""))
    _extension(names)
    return names


def _extension(names: Sequence[str]) -> str:
    """Return the extension that all names have; refuse names with different or unknown extensions."""
    extensions = {next((each for each in _EXTENSIONS if name.endswith(each)), "") for name in names}
    if len(extensions) > 1 or "" in extensions:
        raise SchemaError(f"all shards must have one extension of {', '.join(_EXTENSIONS)}")
    return extensions.pop()


def _out_names(template: str, read: Read) -> Iterator[str]:
    return iter(expand(template, limit=read.limits.template))


def _check_apart(source: AisStore, names: Sequence[str], store: AisStore, out_name: str, read: Read) -> None:
    """Refuse a shard that would be both read and replaced."""
    if source.url("") == store.url(""):
        both = set(names).intersection(_out_names(out_name, read))
        if both:
            raise SchemaError(f"shard {min(both)!r} would be read and written at once; name others")


def _old_names(store: AisStore, template: str, read: Read, *, replace: bool) -> list[str]:
    """Create the bucket if it does not exist, and list the existing shards that have names of new shards.

    If `replace` is False and there are such shards, raise an error. If `replace` is True, the caller deletes them
    once the shuffle can begin. Without this, old shards would stay among the new shards if the job writes fewer
    shards.
    """
    new_names = set(_out_names(template, read))
    store.create()
    prefix = os.path.commonprefix([*new_names])  # noqa: RUF071  # the prefix of names, not of paths
    old_names = [info.name for info in store.list(prefix) if info.name in new_names]
    if old_names and not replace:
        raise ExportError(f"{store.url(old_names[0])} is there already: say replace=True, or name others")
    return old_names
