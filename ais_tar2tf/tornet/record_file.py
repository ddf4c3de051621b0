"""The writing of one record file of TorNet.

Samples are read, encoded and written under a temporary name. The file gets its final name when it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ais_tar2tf.base.documents.sealed import document_bytes, parse_document, read_file
from ais_tar2tf.base.documents.structure import fields, whole
from ais_tar2tf.errors import ExportError, Tar2TFError
from ais_tar2tf.options import KIB
from ais_tar2tf.tfds.plain_features import plain_encoder
from ais_tar2tf.tfds.record_writer import record_writer
from ais_tar2tf.tornet.layout import FEATURES, VARIABLES
from ais_tar2tf.tornet.sample import read_sample

__all__ = ["Task", "features_of", "write"]

_SUMMARY = fields({"bytes": whole()})
_MAX_SUMMARY = 4 * KIB  # a summary has about a hundred bytes


@dataclass(frozen=True)
class Task:
    """A record file to write: the samples `files` below `root`, in this order."""

    target: Path
    root: Path
    files: tuple[str, ...]
    file_format: str
    encoding: str

    @property
    def summary_path(self) -> Path:
        """The path of the summary of the finished file, which states the size of the payloads."""
        return self.target.with_name(f"{self.target.name}.json")

    @property
    def is_finished(self) -> bool:
        """Whether the file exists with a valid summary."""
        try:
            return self.target.is_file() and self.payload_bytes >= 0
        except (FileNotFoundError, ExportError):
            return False

    @property
    def payload_bytes(self) -> int:
        """The size of the payloads, from the summary.

        Raises:
            ExportError: The summary is damaged.
            FileNotFoundError: There is no summary.
        """
        try:
            data = read_file(self.summary_path, most=_MAX_SUMMARY, limit=None, fail=ExportError)
        except (ExportError, FileNotFoundError):
            raise
        except OSError as error:
            raise ExportError(f"{self.summary_path}: this file cannot be read ({error.strerror})") from error
        return parse_document(data, _SUMMARY, where=str(self.summary_path), fail=ExportError)["bytes"]


def features_of(encoding: str) -> dict[str, tuple[tuple[int, ...], str, str]]:
    """Return shape, type and encoding of each feature; only radar variables are large enough to be encoded."""
    return {name: (*kind, encoding if name in VARIABLES else "none") for name, kind in FEATURES.items()}


def write(task: Task, report: Callable[[int], None]) -> None:
    """Write the file. `report` is called with the size of each payload."""
    temporary = task.target.with_name(f".{task.target.name}.{os.getpid()}")
    encode = plain_encoder(features_of(task.encoding))
    total = 0
    try:
        # ArrayRecord's own compression saves nothing on deflated values, and slows down reading of other values.
        with record_writer(temporary, task.file_format, compressed=False) as write_payload:
            for name in task.files:
                payload = encode(read_sample(task.root / name))
                write_payload(payload)
                total += len(payload)
                report(len(payload))
        temporary.replace(task.target)
        task.summary_path.write_bytes(document_bytes({"bytes": total}))
    except Tar2TFError:  # some of these are OSErrors, too
        raise
    except OSError as error:
        raise ExportError(f"{task.target}: writing failed ({error})") from error
    finally:
        temporary.unlink(missing_ok=True)
