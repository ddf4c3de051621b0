"""`card`: one HTML file that shows what the data are."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ais_tar2tf.cli import exits
from ais_tar2tf.cli.console import Console, counted, quantity
from ais_tar2tf.cli.verbs import DryRun, Endpoint, Fields, Grouping, Json, Most, Quiet, UrlsOrOut, Verbose, verb
from ais_tar2tf.errors import ExportError, OptionError
from ais_tar2tf.signed_urls import shown_url

if TYPE_CHECKING:
    from ais_tar2tf.cli.surveying import Reading

__all__ = ["card", "check_page", "write_page"]

_FOOTER = b"<footer>Made by <code>ais-tar2tf"  # which `card.document` puts at the end of each page
_FOOTER_WITHIN = 1_000  # bytes from the end


@verb
def card(
    urls: UrlsOrOut,
    out: Annotated[Path, typer.Option("--out", "-o", help="the file to write", metavar="FILE")] = Path("card.html"),
    grouping: Grouping = None,
    endpoint: Endpoint = None,
    fields: Fields = None,
    records: Most = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Make a page to look at: samples, statistics, classes.

    One HTML file with samples, schema, statistics, classes, sizes and bad records, which needs no network. Images are
    judged by their headers and end marks, and not decoded.

    \b
    Example:
      ais-tar2tf card 'ais://imagenet/train-{000..146}.tar' -o imagenet.html
    """
    from ais_tar2tf.card import render
    from ais_tar2tf.cli.surveying import next_of_bad, read_all

    console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
    if len(urls) > 1 and urls[-1].endswith((".html", ".htm")):
        raise OptionError(f"{urls[-1]} is no shard: the page to write is given as --out {shlex.quote(urls[-1])}")
    check_page(out)
    if dry_run:
        _rehearse(console, urls, out, endpoint)
        return
    reading = read_all(
        urls, console, endpoint=endpoint, fields=fields, most=records, what="reading", grouping=grouping
    )
    survey = reading.survey
    note = "" if reading.whole else "only the first of them were read"
    first = shown_url(urls[0])
    title = first if len(urls) == 1 else f"{first} and more"
    page = render(survey, title, note=note, code=_code(reading, urls, endpoint, grouping))
    write_page(out, page)
    size = out.stat().st_size
    document = {"card": str(out), "card_bytes": size, **survey.to_json()}
    console.document(document, lambda: console.data(str(out)))
    console.note(
        f"{counted(survey.records, 'record')}, {survey.faulty:,} bad; {quantity(size)}: open it in a browser"
    )
    if not survey.records and survey.faulty:
        console.error("no record could be read; the card shows why", next_of_bad(reading, urls))
        raise typer.Exit(exits.CORRUPT)
    if reading.stopped:
        console.error("stopped: the card shows what was read until then", "--records N reads only the first N")
        raise typer.Exit(exits.PART)


def _rehearse(console: Console, urls: list[str], out: Path, endpoint: str | None) -> None:
    from ais_tar2tf.cli.surveying import extent_of

    shards, size = extent_of(urls, endpoint)
    document = {"dry_run": True, "shards": shards, "bytes": size, "card": str(out)}
    text = f"would read {counted(shards, 'shard')} ({quantity(size)}) and write {out}"
    console.document(document, lambda: console.data(text))


def _code(reading: Reading, urls: list[str], endpoint: str | None, grouping: str | None) -> str:
    from ais_tar2tf.card import loader_of

    if reading.split is None:
        return loader_of(reading.survey, shown_url(urls[0]), endpoint, grouping)
    loaded = f"t2t.load({shown_url(urls[0])!r}).dataset({reading.split!r}, shuffle=True, batch=32)"
    return f"import ais_tar2tf as t2t\n\ndataset = {loaded}\n"


def check_page(out: Path) -> None:
    """Refuse what a page cannot be written to before everything is read for it."""
    text = str(out)
    if ":/" in text:
        raise OptionError(f"--out is a file on this machine, not {text!r}")
    if out.is_dir():
        raise OptionError(f"--out is a file, and {text} is a folder: say --out {shlex.quote(str(out / 'card.html'))}")
    if not out.parent.is_dir():
        raise OptionError(f"--out {text}: there is no folder {out.parent}; make it, or say --out card.html")
    if out.exists() and not out.is_file():  # a rename would replace a device by a file
        raise OptionError(f"--out is a file, and {text} is a device or a pipe")
    if not _is_ours(out):
        raise OptionError(f"--out {text}: this file is there, and is no page of ais-tar2tf; choose another name")


def _is_ours(out: Path) -> bool:
    """Return whether nothing would be lost: there is no file, or an empty one, or a page that was made before."""
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
    """Beside, then renamed: no half of a page has the name."""
    beside = out.with_name(f".{out.name}.{secrets.token_hex(4)}.part")
    try:
        beside.write_text(page, encoding="utf-8", errors="replace")
        beside.replace(out)
    except OSError as error:
        raise ExportError(f"{out}: the page cannot be written there ({error.strerror})") from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
