"""The document in which `Resume` keeps where a training is: sealed JSON, replaced as a whole.

    {
      "format": 2,
      "epoch": 3, "batches": 200,                          batches of Keras's epoch 3 are done
      "batch": 32,                                         records in a batch
      "seed": 7,                                           of the order of records, also where it was drawn
      "place": {"epoch": 3, "records": 6400,               the next record, counted in the dataset's own epochs
                "position": "[1,…]", "skip": 12},          the same, as a position and records after it
      "dataset": {"shuffle window": 2048, …},              what the order depends on, by name
      "weights": "resume-0.weights.h5", "weights_checksum": "xxh3-128:…",
      "document_checksum": "xxh3-128:…"
    }

Documents of format 1 have only `epoch`, `batches`, `batch` and `weights`, and are still read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash

from ais_tar2tf.documents import CHECKSUM, document_bytes, parse_json, read_file, verify_seal
from ais_tar2tf.errors import CheckpointError
from ais_tar2tf.names import SafeName
from ais_tar2tf.options import MIB
from ais_tar2tf.owned import sync
from ais_tar2tf.structure import (
    Check,
    any_whole,
    anything,
    check,
    fields,
    keyed,
    made,
    matching,
    maybe,
    one_of,
    text,
    whole,
)
from ais_tar2tf.tfdata.begin import Place

__all__ = ["SLOTS", "State", "checksum", "differences", "read_state", "write_state"]

SLOTS = (SafeName("resume-0.weights.h5", where=""), SafeName("resume-1.weights.h5", where=""))
"""The files of weights, written in turn: the state names one of them while the other is being written."""

_FORMAT = 2
_SLOT = re.compile("|".join(map(re.escape, SLOTS)))
_OLD_WEIGHTS = re.compile(r"epoch-\d+-\d+\.weights\.h5")  # as format 1 named them
_RECORDS = whole(0, 2**62)
_VERSION = fields({"format": one_of(_FORMAT)})
_PLACE = made(Place, fields({"epoch": _RECORDS, "records": _RECORDS, "position": maybe(text), "skip": _RECORDS}))
_PROGRESS: dict[str, Check[Any]] = {"epoch": whole(0, 2**31), "batches": _RECORDS, "batch": maybe(whole(1))}
_SHOWN = 80  # characters of a value in an error


def _weights_like(pattern: re.Pattern[str]) -> Check[SafeName]:
    """Accept a name that a pattern describes; the patterns here leave no room for a folder."""
    matched = matching(pattern, "a name of weights that Resume wrote")
    return lambda value: SafeName(matched(value), where="")


@dataclass(frozen=True, kw_only=True)
class State:
    """Where a training is, and what it reads."""

    epoch: int
    batches: int
    batch: int | None
    weights: SafeName
    weights_checksum: str = ""
    seed: int | None = None
    place: Place | None = None
    dataset: Mapping[str, Any] | None = None


_OLD = made(State, fields({**_PROGRESS, "weights": _weights_like(_OLD_WEIGHTS)}))
_CURRENT = made(
    State,
    fields(
        {
            **_PROGRESS,
            "seed": any_whole,
            "place": _PLACE,
            "dataset": keyed(anything),
            "weights": _weights_like(_SLOT),
            "weights_checksum": text,
        }
    ),
)


def read_state(path: Path, *, most: int) -> State | None:
    """Return the state that a file holds; None when there is no such file.

    Args:
        path: The file.
        most: The largest size in bytes that is read (`Limits.state_bytes`).

    Raises:
        CheckpointError: The file cannot be read, is damaged, or is no state of a training.
    """
    try:
        data = read_file(path, most=most, limit="state_bytes", fail=CheckpointError)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"{path}: the state of the training cannot be read: {error}") from error
    where = str(path)
    sealed = parse_json(data, where=where, fail=CheckpointError)
    document = verify_seal(sealed, where=where, fail=CheckpointError)
    if "format" not in document:
        return check(document, _OLD, where=where, fail=CheckpointError)
    if CHECKSUM not in sealed:
        raise CheckpointError(f"{where}: the document is damaged: its checksum is missing")
    check(document, _VERSION, where=where, fail=CheckpointError)
    return check(document, _CURRENT, where=where, fail=CheckpointError)


def write_state(path: Path, state: State) -> None:
    """Replace the file by a state, so that there is always one whole document under its name."""
    assert state.place is not None
    document = {
        "format": _FORMAT,
        "epoch": state.epoch,
        "batches": state.batches,
        "batch": state.batch,
        "seed": state.seed,
        "place": asdict(state.place),
        "dataset": dict(state.dataset or {}),
        "weights": state.weights,
        "weights_checksum": state.weights_checksum,
    }
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(document_bytes(document))
    sync(part)
    part.replace(path)
    sync(path.parent)


def checksum(path: Path) -> str:
    """Return the checksum of a file of weights."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(1 * MIB):
            digest.update(block)
    return f"xxh3-128:{digest.hexdigest()}"


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a phrase for each thing in which two datasets differ.

    >>> differences({"shuffle window": 2048, "even": None}, {"shuffle window": 64, "even": None})
    ['shuffle window: 2048 then, 64 now']
    """
    names = sorted({*before, *now}, key=[*now, *before].index)
    return [
        f"{name}: {_shown(before, name)} then, {_shown(now, name)} now"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _shown(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
