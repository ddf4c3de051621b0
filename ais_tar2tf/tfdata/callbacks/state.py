"""The file in which `Resume` saves the state of a training: JSON with a checksum, replaced as a whole each time.

    {
      "format": 2,
      "epoch": 3, "batches": 200,                          200 batches of Keras's epoch 3 are done
      "batch": 32,                                         records in a batch
      "seed": 7,                                           seed of the order: the user's, or a drawn number
      "place": {"epoch": 3, "records": 6400,               the next record comes after 6400 records of the dataset's
                "position": "[1,…]", "skip": 12},          epoch 3; the position is 12 records before that record
      "dataset": {"shuffle window": 2048, …},              the options on which the order depends
      "weights": "resume-0.weights.h5",                    the file with the weights, next to this file
      "weights_checksum": "xxh3-128:…",
      "document_checksum": "xxh3-128:…"                    the checksum of this document without this line
    }

A document of format 1 has only `epoch`, `batches`, `batch` and `weights`. This module still reads such a
document. This module must not load or save weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash

from ais_tar2tf.base.documents.folders import sync
from ais_tar2tf.base.documents.sealed import CHECKSUM, document_bytes, parse_json, read_file, verify_seal
from ais_tar2tf.base.documents.structure import (
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
from ais_tar2tf.base.urls.names import SafeName
from ais_tar2tf.errors import CheckpointError
from ais_tar2tf.options import MIB
from ais_tar2tf.tfdata.progress import EpochOffset

__all__ = ["SLOTS", "State", "checksum", "differences", "read_state", "write_state"]

SLOTS = (SafeName("resume-0.weights.h5", where=""), SafeName("resume-1.weights.h5", where=""))
"""The names of two files for weights.

`Resume` writes to the file that the saved state does not name. So the saved state always names complete weights, even
if writing is interrupted.
"""

_FORMAT = 2
_SLOT = re.compile("|".join(map(re.escape, SLOTS)))
_OLD_WEIGHTS = re.compile(r"epoch-\d+-\d+\.weights\.h5")  # file names in format 1
_RECORDS = whole(0, 2**62)
_VERSION = fields({"format": one_of(_FORMAT)})
_PLACE = made(
    EpochOffset, fields({"epoch": _RECORDS, "records": _RECORDS, "position": maybe(text), "skip": _RECORDS})
)
_PROGRESS: dict[str, Check[Any]] = {"epoch": whole(0, 2**31), "batches": _RECORDS, "batch": maybe(whole(1))}
_SHOWN = 80  # characters of a value that an error shows


def _weights_like(pattern: re.Pattern[str]) -> Check[SafeName]:
    """Return a check for a file name that matches a pattern.

    No pattern of this module matches a `/`, so the named file is always in the folder of the state.
    """
    matched = matching(pattern, "a name of weights that Resume wrote")
    return lambda value: SafeName(matched(value), where="")


@dataclass(frozen=True, kw_only=True)
class State:
    """The state of a training.

    Attributes:
        epoch: The number of Keras's epoch, from 0.
        batches: The number of batches of this epoch that are done.
        batch: The number of records in a batch; None for a dataset that is not batched.
        weights: The name of the file with the weights.
        weights_checksum: The checksum of the file with the weights; "" in a document of format 1.
        seed: The seed of the order of records; None in a document of format 1.
        place: The place of the next record; None in a document of format 1.
        dataset: The options on which the order depends, by name; None in a document of format 1.
    """

    epoch: int
    batches: int
    batch: int | None
    weights: SafeName
    weights_checksum: str = ""
    seed: int | None = None
    place: EpochOffset | None = None
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
    """Read the state of a training from a file; return None if the file does not exist.

    Args:
        path: The file.
        most: The largest permitted size of the file in bytes (`Limits.state_bytes`).

    Raises:
        CheckpointError: The file cannot be read, is damaged, or is not the state of a training.
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
    """Write a state to a temporary file, sync it to disk, and rename it to `path`."""
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
    """Return a phrase for each option whose value in `before` differs from its value in `now`.

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
