"""What all verbs share: their options, and what becomes of an error, of Ctrl-C and of a reader that went away."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Annotated, NoReturn, ParamSpec, TypeVar

import typer

from ais_tar2tf.cli import exits
from ais_tar2tf.cli.console import Console
from ais_tar2tf.cli.remedies import remedy_for
from ais_tar2tf.errors import OptionError, Tar2TFError
from ais_tar2tf.signed_urls import shown_url
from ais_tar2tf.stores import has_endpoint

__all__ = [
    "ON_ERRORS",
    "Align",
    "Batch",
    "Create",
    "DryRun",
    "Endpoint",
    "Exists",
    "Fields",
    "Format",
    "Grouping",
    "Json",
    "Most",
    "OnErrors",
    "Out",
    "Quiet",
    "ShardRecords",
    "ShardSize",
    "Stopped",
    "Urls",
    "UrlsOrOut",
    "Verbose",
    "WithTensorflow",
    "fail",
    "refuse_flag",
    "verb",
]

P = ParamSpec("P")
T = TypeVar("T")

_FORMATS = ("tfrecord", "array_record", "tar")
_EXISTS = ("resume", "replace", "error")
_ALIGNS = ("stream", "shard")
_GROUPINGS = ("first-dot", "last-dot")
ON_ERRORS = ("raise", "skip-record", "skip-shard")

_PLACES = ("urls", "url", "out")  # parameters of verbs that are URLs

# What verbs take.

Urls = Annotated[
    list[str],
    typer.Argument(help="shards: a template 'train-{0..9}.tar', a prefix/, a glob; quoted", metavar="URL"),
]
UrlsOrOut = Annotated[
    list[str],
    typer.Argument(
        help="shards, quoted: a template, a prefix/, a glob; or where convert wrote to", metavar="URL|OUT"
    ),
]
Out = Annotated[str, typer.Argument(help="where convert wrote to: a folder or a URL", metavar="OUT")]

# Which data.

Endpoint = Annotated[
    str | None,
    typer.Option(help="AIStore's proxy, http://host:51080; else AIS_ENDPOINT says it", metavar="URL"),
]
Fields = Annotated[
    str | None,
    typer.Option("--fields", help="only these, as 'jpg,cls?'; the others are skipped", metavar="NAMES"),
]
Grouping = Annotated[
    str | None,
    typer.Option(
        help="a.b.jpg is: first-dot (the default): a field b.jpg of a; last-dot: a field jpg of a.b",
        metavar="HOW",
        autocompletion=lambda: _GROUPINGS,
    ),
]
Most = Annotated[int | None, typer.Option("--records", help="only so many records, the first", min=1, metavar="N")]
OnErrors = Annotated[
    str,
    typer.Option("--on-error", help=", ".join(ON_ERRORS), metavar="WHAT", autocompletion=lambda: ON_ERRORS),
]

# What is written.

Format = Annotated[
    str, typer.Option("--format", help=", ".join(_FORMATS), metavar="KIND", autocompletion=lambda: _FORMATS)
]
ShardSize = Annotated[
    str | None,
    typer.Option(help="no file is larger, as 100MB, but for a single record that is", metavar="SIZE"),
]
ShardRecords = Annotated[int | None, typer.Option(help="no file has more records", min=1, metavar="N")]
Align = Annotated[
    str | None,
    typer.Option(
        help="stream (the default): files go across shards; shard: each begins a new one",
        metavar="HOW",
        autocompletion=lambda: _ALIGNS,
    ),
]
Exists = Annotated[
    str,
    typer.Option(
        help=f"of what is there already: {', '.join(_EXISTS)}", metavar="HOW", autocompletion=lambda: _EXISTS
    ),
]
Create = Annotated[bool, typer.Option(help="make the bucket when it is not there")]

# What is measured.

Batch = Annotated[int, typer.Option(help="records of a batch", min=1, metavar="N")]
WithTensorflow = Annotated[bool, typer.Option("--tensorflow/--no-tensorflow", help="with it, which takes seconds")]

# How it is told.

Json = Annotated[bool, typer.Option("--json", help="one JSON document on stdout")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="say what would be done, and do nothing")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="no narration; errors are still told")]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose", "-v", count=True, show_default=False, metavar="", help="tell more; twice: Python's traceback"
    ),
]


class Stopped(Exception):  # it is no error: Ctrl-C came, and this is what was done until then
    """Ctrl-C in the middle: what was done, and how to go on. `in_part` when something of it stays."""

    def __init__(self, done: str, then: str, *, in_part: bool) -> None:
        super().__init__(done)
        self.done, self.then, self.in_part = done, then, in_part


def verb(function: Callable[P, T]) -> Callable[P, T]:
    """A command whose errors end as one line, what to do next, and an exit code."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        console = Console(quiet=bool(kwargs.get("quiet")), verbose=int(str(kwargs.get("verbose") or 0)))
        try:
            if function.__name__ != "doctor":  # which looks at the endpoint itself
                _check_endpoint(signature(function).bind(*args, **kwargs).arguments)
            with console.telling_of_waits():
                result = function(*args, **kwargs)
            sys.stdout.flush()
        except OptionError as error:
            if console.verbose > 1:
                raise
            fail(console, str(error), f"see the options: ais-tar2tf {function.__name__} --help", exits.USAGE)
        except Tar2TFError as error:
            if console.verbose > 1:
                raise
            remedy = remedy_for(error, function.__name__, kwargs.get("endpoint"))
            fail(console, f"{type(error).__name__}: {error}", remedy, exits.code_of(error))
        except BrokenPipeError:  # whoever read stdout has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(exits.DONE) from None
        except OSError as error:
            if console.verbose > 1:
                raise
            where = f"{error.filename}: " if error.filename else ""
            told = f"{where}the file system said: {error.strerror or error}"
            fail(console, told, "check that path; -vv shows where it happened", exits.FAILED)
        except Stopped as stopped:
            console.error(f"stopped: {stopped.done}", stopped.then)
            raise typer.Exit(exits.PART if stopped.in_part else exits.INTERRUPTED) from None
        except KeyboardInterrupt:
            console.error("stopped before it was done; nothing was written")
            raise typer.Exit(exits.INTERRUPTED) from None
        return result

    return run


def refuse_flag(flag: str, given: object, why: str, advice: str) -> None:
    """Refuse a flag that was given and can have no effect; `advice` says what would make it work."""
    if given is not None and given is not False:
        raise OptionError(f"{flag} has no effect {why}: {advice}")


def _check_endpoint(given: Mapping[str, object]) -> None:
    """Refuse `--endpoint` where nothing that a verb reads or writes is in a store that has one."""
    named = [given.get(name) for name in _PLACES]
    places = [str(each) for value in named if value for each in (value if isinstance(value, list) else [value])]
    if places and not any(map(has_endpoint, places)):
        advice = "a URL that begins with one of ais://, s3://, gs://, az:// has an endpoint; leave it out"
        refuse_flag("--endpoint", given.get("endpoint"), f"for {shown_url(places[0])!r}", advice)


def fail(console: Console, text: str, remedy: str, code: int) -> NoReturn:
    """Tell what went wrong and what to do next, and end with `code`."""
    console.error(text, remedy)
    raise typer.Exit(code)
