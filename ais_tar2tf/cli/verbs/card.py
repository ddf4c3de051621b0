"""`card`: write one HTML file that shows samples and statistics of the data."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ais_tar2tf.base.urls.signed import shown_url
from ais_tar2tf.cli import exits
from ais_tar2tf.cli.command import DryRun, Endpoint, Fields, Grouping, Most, UrlsOrOut, show_dry_run, verb
from ais_tar2tf.cli.console import Console, counted, quantity
from ais_tar2tf.errors import ExportError, OptionError

if TYPE_CHECKING:
    from ais_tar2tf.cli.scan import ScanResult

__all__ = ["card", "check_page", "write_page"]

_FOOTER = b"<footer>Made by <code>ais-tar2tf"  # `cli.card` writes this text at the end of each page
_FOOTER_WITHIN = 1_000  # the footer is in the last so many bytes of a page


@verb()
def card(
    console: Console,
    urls: UrlsOrOut,
    out: Annotated[Path, typer.Option("--out", "-o", help="the file to write", metavar="FILE")] = Path("card.html"),
    grouping: Grouping = None,
    endpoint: Endpoint = None,
    fields: Fields = None,
    records: Most = None,
    dry_run: DryRun = False,
) -> None:
    """Make an HTML page with samples and statistics.

    The page is one file that loads nothing from elsewhere. It shows samples, the schema, statistics, classes, sizes,
    bad records, and code that loads the data. Images are not decoded: only their headers and end marks are checked.

    Example:
      ais-tar2tf card 'ais://imagenet/train-{000..146}.tar' -o imagenet.html
    """
    from ais_tar2tf.cli.card import render
    from ais_tar2tf.cli.scan import extent_of, next_of_bad, scan

    if len(urls) > 1 and urls[-1].endswith((".html", ".htm")):
        raise OptionError(f"{urls[-1]} is no shard: the page to write is given as --out {shlex.quote(urls[-1])}")
    check_page(out)
    if dry_run:
        show_dry_run(console, extent_of(urls, endpoint), f"write {out}", card=str(out))
        return
    reading = scan(urls, console, endpoint=endpoint, fields=fields, most=records, what="reading", grouping=grouping)
    statistics = reading.statistics
    note = "" if reading.whole else "only the first of them were read"
    first = shown_url(urls[0])
    title = first if len(urls) == 1 else f"{first} and more"
    page = render(statistics, title, note=note, code=_code(reading, urls, endpoint, grouping))
    write_page(out, page)
    size = out.stat().st_size
    document = {"card": str(out), "card_bytes": size, **statistics.to_json()}
    console.document(document, lambda: console.data(str(out)))
    records_read = counted(statistics.records, "record")
    console.note(f"{records_read}, {statistics.error_count:,} bad; {quantity(size)}: open it in a browser")
    if not statistics.records and statistics.error_count:
        console.error("no record could be read; the card shows why", next_of_bad(reading, urls))
        raise typer.Exit(exits.CORRUPT)
    if reading.stopped:
        console.error("stopped: the card shows what was read until then", "--records N reads only the first N")
        raise typer.Exit(exits.PART)


def _code(reading: ScanResult, urls: list[str], endpoint: str | None, grouping: str | None) -> str:
    """Return the Python code that loads the data; the page shows it."""
    from ais_tar2tf.cli.card import loader_of

    if reading.split is None:
        return loader_of(reading.statistics, shown_url(urls[0]), endpoint, grouping)
    loaded = f"t2t.load({shown_url(urls[0])!r}).dataset({reading.split!r}, shuffle=True, batch=32)"
    return f"import ais_tar2tf as t2t\n\ndataset = {loaded}\n"


def check_page(out: Path) -> None:
    """Raise OptionError if the page must not be written to `out`. Call this before the data are read."""
    text = str(out)
    if ":/" in text:
        raise OptionError(f"--out is a file on this machine, not {text!r}")
    if out.is_dir():
        raise OptionError(f"--out is a file, and {text} is a folder: say --out {shlex.quote(str(out / 'card.html'))}")
    if not out.parent.is_dir():
        raise OptionError(f"--out {text}: there is no folder {out.parent}; make it, or say --out card.html")
    if out.exists() and not out.is_file():  # a rename would replace a device by a file
        raise OptionError(f"--out is a file, and {text} is a device or a pipe")
    if not _may_be_replaced(out):
        raise OptionError(f"--out {text}: this file is there, and is no page of ais-tar2tf; choose another name")


def _may_be_replaced(out: Path) -> bool:
    """Return whether `out` does not exist, is empty, or is a page of an earlier run."""
    try:
        with out.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _FOOTER_WITHIN, 0))
            return size == 0 or _FOOTER in file.read()
    except FileNotFoundError:
        return True
    except OSError as error:
        raise ExportError(f"{out}: the page cannot be written there ({error.strerror})") from error


def write_page(out: Path, page: str) -> None:
    """Write the page to a temporary file, then rename this file to `out`, so that `out` is never a partial page."""
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}.part")
    try:
        temporary.write_text(page, encoding="utf-8", errors="replace")
        temporary.replace(out)
    except OSError as error:
        raise ExportError(f"{out}: the page cannot be written there ({error.strerror})") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
