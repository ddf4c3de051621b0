"""Records of many shards in another order and other shards: done by the cluster (dSort), where the data is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ais_tar2tf.cluster.local_shuffle import shuffle_here
from ais_tar2tf.errors import ExportError, SchemaError, ShardNotFound, StoreError, TransportError
from ais_tar2tf.export.boundaries import parse_size
from ais_tar2tf.locations import Location, Locations, location_text, location_texts
from ais_tar2tf.options import Read
from ais_tar2tf.source import read_options, shard_names
from ais_tar2tf.stores import TokenSource, split_url
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.stores.clusters import ClusterCalls
from ais_tar2tf.templates import expand
from ais_tar2tf.values import json_value

__all__ = ["ORDERS", "Job", "Progress", "shuffle"]

ORDERS = {"random": "shuffle", "name": "alphanumeric", "md5": "md5", "none": "none"}
"""Ours, and dSort's name of each: by chance, by the records' keys, by a hash of these, as they come."""

_CONTENT = ("int", "float", "string")
_NOT_BUILT = frozenset({501})
_FIRST_PAUSE, _MOST_PAUSE = 0.05, 2.0  # seconds between two looks at a job; it takes from a tenth of one to hours


@dataclass(frozen=True)
class Progress:
    """How far a job is: shards that were read, and those that were written, of those that will be."""

    phase: str
    extracted: int
    shards: int
    created: int
    to_create: int
    aborted: bool = False
    errors: tuple[str, ...] = ()


class Job:
    """A running dSort. `wait` gives the URLs that it wrote."""

    def __init__(self, calls: ClusterCalls, job: str, shards: int, names: Callable[[int], list[str]]) -> None:
        self.id: str = job
        self._calls = calls
        self._shards = shards
        self._names = names

    def progress(self) -> Progress:
        answer = self._calls.call("GET", f"sort?uuid={self.id}")
        try:
            said: dict[str, Any] = json_value(answer.content)
            return _progress(list(said.values()), self._shards)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise StoreError(
                f"the answer about job {self.id} cannot be read ({error})", url=self._calls.shown
            ) from error

    def abort(self) -> None:
        """End it; what was written so far stays. A job that has ended is left as it is."""
        self._calls.call("DELETE", f"sort/abort?uuid={self.id}")

    def wait(
        self,
        progress: Callable[[Progress], None] | None = None,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> list[str]:
        """Until it has ended; an interrupt aborts it."""
        seconds = _FIRST_PAUSE
        try:
            while (now := self.progress()).phase != "done":
                if progress is not None:
                    progress(now)
                pause(seconds)
                seconds = min(_MOST_PAUSE, seconds * 1.5)
        except KeyboardInterrupt:
            self.abort()
            raise
        if progress is not None:
            progress(now)
        if now.aborted:
            why = "; ".join(now.errors) or "somebody did it"
            raise ExportError(f"dSort {self.id} was aborted ({why}); what it wrote is not whole")
        if now.extracted != self._shards:
            raise ExportError(f"dSort {self.id} read {now.extracted:,} of {self._shards:,} shards; are some empty?")
        return self._names(now.created)


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
    progress: Callable[[Progress], None] | None = None,
    wait: bool = True,
) -> Any:
    """Write the records of `template` in another order, into shards that `out_template` names; gives their URLs.

    Both are URLs (`ais://bucket/train-{0..99}.tar`), or names in `bucket`. `order`: "random", "name", "md5", "none",
    or a field and its type: `("cls", "int")`. `shard_size` bounds what records have, headers not counted. Shards of
    these names that are there are an error unless `replace`. So is a cluster without dSort, unless `local`: then this
    process does it, by batches of records. `wait=False` gives the `Job`.
    """
    algorithm = _algorithm(order, seed, descending=descending)
    size = parse_size(shard_size)
    read = read_options()
    source, names = _located(template, bucket, read, endpoint, token)
    store, out_name = _store_of(location_text(out_template), bucket, read, endpoint, token)
    _extension([out_name])
    calls = ClusterCalls(endpoint, token, timeouts=read.timeouts)
    try:
        if replace:
            _check_apart(source, names, store, out_name, read)
        _clear(store, out_name, read, replace=replace)
        job = _start(calls, source, names, store, out_name, size, algorithm, read)
        if job is not None:
            return job.wait(progress) if wait else job
        if not local:
            raise StoreError(
                "this AIStore has no dSort: it was built without -tags=dsort; local=True shuffles in this process",
                url=calls.shown,
            )
        return shuffle_here(source, names, store, _out_names(out_name, read), size, order=order, seed=seed, read=read)
    finally:
        source.close()
        store.close()
        if wait:
            calls.close()


def _start(
    calls: ClusterCalls,
    source: AisStore,
    names: Sequence[str],
    store: AisStore,
    out_name: str,
    size: int,
    algorithm: dict[str, Any],
    read: Read,
) -> Job | None:
    """None where there is no dSort."""
    extension = _extension(names)
    asked = {
        "input_bck": source.described(),
        "output_bck": store.described(),
        "input_format": {"objnames": list(names)},
        "input_extension": extension,
        "output_format": out_name.removesuffix(_extension([out_name])),
        "output_extension": _extension([out_name]),
        "output_shard_size": f"{size}B",
        "algorithm": algorithm,
        "dsorter_type": "dsort_general",  # by memory, AIStore chooses one that it does not always have
        # What the cluster would leave out without a word is an error here.
        "Config": {"missing_shards": "abort", "duplicated_records": "abort"},
        "description": f"ais_tar2tf: {len(names)} shards",
    }
    try:
        answer = calls.call("POST", "sort", json=asked, accept=_NOT_BUILT)
    except TransportError as error:
        raise TransportError(f"dSort did not take the job ({error.message})", url=calls.shown) from error
    if answer.status_code in _NOT_BUILT:
        return None

    def written(count: int) -> list[str]:
        return [store.url(name) for name in islice(_out_names(out_name, read), count)]

    return Job(calls, answer.text.strip().strip('"'), len(names), written)


def _algorithm(order: str | tuple[str, str], seed: int, *, descending: bool) -> dict[str, Any]:
    """dSort's own words; what it does not know ends its connection without an answer, so it is found here."""
    if isinstance(order, tuple):
        field, kind = order
        if not field or kind not in _CONTENT:
            raise SchemaError(f"an order by content is (field, one of {', '.join(_CONTENT)}), not {order!r}")
        return {"kind": "content", "extension": f".{field}", "content_key_type": kind, "decreasing": descending}
    if order not in ORDERS:
        raise SchemaError(f"order is one of {', '.join(ORDERS)}, or (field, type), not {order!r}")
    if seed < 0:
        raise SchemaError(f"a seed is not negative: {seed}")
    return {"kind": ORDERS[order], "decreasing": descending, **({"seed": str(seed)} if order == "random" else {})}


def _progress(targets: list[dict[str, Any]], shards: int) -> Progress:
    """What all targets say, together."""
    metrics: list[dict[str, Any]] = [each["Metrics"] for each in targets]
    reading = [each.get("local_extraction") or {} for each in metrics]
    writing = [each.get("shard_creation") or {} for each in metrics]
    aborted = any(each.get("aborted") or said.get("aborted") for each, said in zip(targets, metrics, strict=True))
    done = bool(targets) and all(each.get("archived") for each in targets)
    phase = "writing" if any(each.get("running") for each in writing) else "sorting"
    if not all(each.get("finished") for each in reading):
        phase = "reading"
    return Progress(
        "done" if done else phase,
        sum(int(each.get("extracted_count", 0)) for each in reading),
        shards,
        sum(int(each.get("created_count", 0)) for each in writing),
        sum(int(each.get("to_create", 0)) for each in writing),
        aborted,
        tuple(str(error) for each in metrics for error in each.get("errors") or ()),
    )


# Names


def _located(
    template: Locations, bucket: str | None, read: Read, endpoint: str | None, token: TokenSource | None
) -> tuple[AisStore, list[str]]:
    if not isinstance(template, os.PathLike) and not template:
        raise SchemaError("no shards are named: give a URL, or names and a bucket")
    given = location_texts(template)
    stores = [_store_of(each, bucket, read, endpoint, token) for each in given]
    store = stores[0][0]
    if any(each.url("") != store.url("") for each, _ in stores):
        raise SchemaError("shards that are shuffled together are in one bucket")
    names = list(shard_names(store, [name for _, name in stores], read.limits))
    if not names:
        raise ShardNotFound("nothing is named", url=store.url(""))
    _extension(names)
    return store, names


def _store_of(
    text: str, bucket: str | None, read: Read, endpoint: str | None, token: TokenSource | None
) -> tuple[AisStore, str]:
    if "://" in text:
        scheme, found, name = split_url(text)
        if scheme != "ais":
            raise SchemaError(f"shuffling in the cluster is done by AIStore (ais://), not by {scheme}://")
    else:
        found, name = bucket or "", text
    if not found or not name:
        raise SchemaError(f"{text!r} names no bucket or no shard: say ais://bucket/name, or bucket=")
    return AisStore(found, read, endpoint=endpoint, token=token), name


def _extension(names: Sequence[str]) -> str:
    """Of all of them."""
    known = (".tar.gz", ".tar.lz4", ".tar", ".tgz", ".zip")
    found = {next((each for each in known if name.endswith(each)), "") for name in names}
    if len(found) > 1 or "" in found:
        raise SchemaError(f"shards that are shuffled together have one extension of {', '.join(known)}")
    return found.pop()


def _out_names(template: str, read: Read) -> Iterator[str]:
    return iter(expand(template, limit=read.limits.template))


def _check_apart(source: AisStore, names: Sequence[str], store: AisStore, out_name: str, read: Read) -> None:
    """Nothing that is read is replaced."""
    if source.url("") == store.url(""):
        both = set(names).intersection(_out_names(out_name, read))
        if both:
            raise SchemaError(f"shard {min(both)!r} would be read and written at once; name others")


def _clear(store: AisStore, template: str, read: Read, *, replace: bool) -> None:
    """No shard of an earlier run stays among the new ones."""
    wanted = set(_out_names(template, read))
    store.create()
    for name in [info.name for info in store.list(_shared(wanted)) if info.name in wanted]:
        if not replace:
            raise ExportError(f"{store.url(name)} is there already: say replace=True, or name others")
        store.delete(name)


def _shared(names: set[str]) -> str:
    """What all begin with."""
    first, last = min(names), max(names)
    same = next(
        (at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last))
    )
    return first[:same]
