"""The conversion of errors of the operating system into errors of an export."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

from ais_tar2tf.errors import ExportError, Tar2TFError

__all__ = ["raise_export_errors"]


@contextlib.contextmanager
def raise_export_errors(where: str | Path, failed: str = "writing failed", in_the_way: str = "") -> Generator[None]:
    """Raise `ExportError` in place of an OSError from the block.

    Errors of this package that are also OSErrors, such as `StoreError`, are not changed.

    Args:
        where: The place of the failure, with which the text of the error begins.
        failed: The action that failed.
        in_the_way: Advice for the case that a file exists where a folder is expected.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, Tar2TFError):
            raise
        advice = in_the_way if isinstance(error, FileExistsError | NotADirectoryError) else ""
        raise ExportError(f"{where}: {failed} ({error.strerror or error}){advice}") from error
