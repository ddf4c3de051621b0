"""ArrayRecord files, read by their own library, whose errors become ours."""

from __future__ import annotations

import re
from pathlib import Path

from ais_tar2tf.errors import ArchiveError
from ais_tar2tf.export.formats import array_record_module
from ais_tar2tf.stores.file import translated

__all__ = ["ArrayFile"]

_PLACE = re.compile(r"\b(?:block|chunk) at (\d+)")
_LIBRARYS = (RuntimeError, ValueError, IndexError)


class ArrayFile:
    """One local ArrayRecord file. The library proves the checksums, and says in words where one is wrong.

    Args:
        path: The file.
        shown: The name that errors have for it, such as the URL that it was copied from.
    """

    def __init__(self, path: Path, shown: str) -> None:
        self._shown = shown
        try:
            path.stat()
            self._reader = array_record_module().ArrayRecordReader(str(path))
            self.records: int = self._reader.num_records()
        except OSError as error:
            raise translated(error, shown) from error
        except _LIBRARYS as error:
            raise self._damaged(0, error) from error

    def read(self, number: int) -> bytes:
        """Return the payload of a record by its number."""
        try:
            (payload,) = self._reader.read([number])
        except _LIBRARYS as error:
            raise self._damaged(number, error) from error
        return payload

    def close(self) -> None:
        try:
            self._reader.close()
        except _LIBRARYS as error:
            raise self._damaged(self.records, error) from error

    def _damaged(self, number: int, error: Exception) -> ArchiveError:
        text = str(error).splitlines()[0] if str(error) else "unreadable"
        place = _PLACE.search(text)
        return ArchiveError(f"record {number:,}: {text}", shard=self._shown, offset=int(place[1]) if place else 0)
