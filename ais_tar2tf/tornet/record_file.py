"""One record file of TorNet: samples read, encoded, and written beside its final name, which it gets when whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ais_tar2tf.documents import document_bytes, parse_document, read_file
from ais_tar2tf.errors import ExportError, Tar2TFError
from ais_tar2tf.options import KIB
from ais_tar2tf.structure import fields, whole
from ais_tar2tf.tfds._plain_features import plain_encoder
from ais_tar2tf.tfds._record_writer import record_writer
from ais_tar2tf.tornet.layout import FEATURES, VARIABLES
from ais_tar2tf.tornet.sample import read_sample

__all__ = ["Task", "features_of", "write"]

_ACCOUNT = fields({"bytes": whole()})
_ACCOUNT_BYTES = 4 * KIB  # of which it needs a hundred


@dataclass(frozen=True)
class Task:
    """One record file to be written: the samples `files` below `root`, in this order."""

    target: Path
    root: Path
    files: tuple[str, ...]
    file_format: str
    encoding: str

    @property
    def account(self) -> Path:
        """Holds what is known of the finished file: its payload's bytes."""
        return self.target.with_name(f"{self.target.name}.json")

    @property
    def finished(self) -> bool:
        """Whether the file is there with its account; one whose account is damaged is written again."""
        try:
            return self.target.is_file() and self.payload_bytes >= 0
        except (FileNotFoundError, ExportError):
            return False

    @property
    def payload_bytes(self) -> int:
        """As the account says.

        Raises:
            ExportError: The account is damaged.
            FileNotFoundError: There is none.
        """
        try:
            data = read_file(self.account, most=_ACCOUNT_BYTES, limit="document_bytes", fail=ExportError)
        except OSError as error:
            if isinstance(error, ExportError | FileNotFoundError):
                raise
            raise ExportError(f"{self.account}: this file cannot be read ({error.strerror})") from error
        return parse_document(data, _ACCOUNT, where=str(self.account), fail=ExportError)["bytes"]


def features_of(encoding: str) -> dict[str, tuple[tuple[int, ...], str, str]]:
    """Shape, type and encoding of each feature; only the radar's variables are worth encoding."""
    return {name: (*kind, encoding if name in VARIABLES else "none") for name, kind in FEATURES.items()}


def write(task: Task, written: Callable[[int], None]) -> None:
    """Write the file; `written` is told the bytes of each sample."""
    beside = task.target.with_name(f".{task.target.name}.{os.getpid()}")
    encode = plain_encoder(features_of(task.encoding))
    total = 0
    try:
        # What is deflated gains nothing from ArrayRecord's own compression, and what is to be read fast loses by it.
        with record_writer(beside, task.file_format, compressed=False) as put:
            for name in task.files:
                payload = encode(read_sample(task.root / name))
                put(payload)
                total += len(payload)
                written(len(payload))
        beside.replace(task.target)
        task.account.write_bytes(document_bytes({"bytes": total}))
    except OSError as error:
        if isinstance(error, Tar2TFError):  # of ours, too, some are OSErrors
            raise
        raise ExportError(f"{task.target}: writing failed ({error})") from error
    finally:
        beside.unlink(missing_ok=True)
