"""The common part of all verbs: options, and the handling of errors, Ctrl-C and a closed pipe (`verb`)."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, signature
from typing import Annotated, Any, NoReturn

import typer

from ais_tar2tf.base.urls.signed import shown_url
from ais_tar2tf.cli import exits
from ais_tar2tf.cli.choices import ALIGNMENTS, EXISTS, GROUPINGS, ON_ERRORS
from ais_tar2tf.cli.console import Console, counted, quantity
from ais_tar2tf.cli.failures import code_of, remedy_for
from ais_tar2tf.errors import OptionError, Tar2TFError
from ais_tar2tf.recordfiles.formats import FORMATS
from ais_tar2tf.stores import has_endpoint

__all__ = [
    "Align",
    "Batch",
    "Create",
    "DryRun",
    "Endpoint",
    "Exists",
    "Fields",
    "Format",
    "Grouping",
    "Most",
    "OnErrors",
    "Out",
    "ShardRecords",
    "ShardSize",
    "Stopped",
    "Urls",
    "UrlsOrOut",
    "WithTensorflow",
    "choice",
    "fail",
    "refuse_flag",
    "show_dry_run",
    "verb",
]

_EXAMPLES = re.compile(r"^( *)Examples?:$", re.MULTILINE)  # click joins the lines of a paragraph without \b before it
_URL_PARAMETERS = ("urls", "url", "out")  # the parameters of verbs that are URLs


def choice(words: Sequence[str], help: str, *names: str, metavar: str = "HOW") -> Any:  # noqa: A002  # typer's name
    """Return an option whose value is one of `words`, which the shell completes."""
    return typer.Option(*names, help=help, metavar=metavar, autocompletion=lambda: words)


# Arguments

Urls = Annotated[
    list[str],
    typer.Argument(help="the shards: a template 'train-{0..9}.tar', a prefix/ or a glob, in quotes", metavar="URL"),
]
UrlsOrOut = Annotated[
    list[str],
    typer.Argument(
        help="the shards: a template, a prefix/ or a glob, in quotes; or the OUT of convert", metavar="URL|OUT"
    ),
]
Out = Annotated[str, typer.Argument(help="the folder or URL that convert wrote to", metavar="OUT")]

# Options for reading

Endpoint = Annotated[
    str | None,
    typer.Option(help="AIStore's proxy, as http://host:51080; AIS_ENDPOINT when left out", metavar="URL"),
]
Fields = Annotated[
    str | None,
    typer.Option("--fields", help="read only these, as 'jpg,cls?'; ? marks one that may be absent", metavar="NAMES"),
]
Grouping = Annotated[
    str | None,
    choice(
        GROUPINGS,
        "how a.b.jpg is read: first-dot (the default): field b.jpg of record a; last-dot: field jpg of a.b",
    ),
]
Most = Annotated[int | None, typer.Option("--records", help="read only the first N records", min=1, metavar="N")]
OnErrors = Annotated[
    str,
    choice(ON_ERRORS, f"what to do about bad data: {', '.join(ON_ERRORS)}", "--on-error", metavar="WHAT"),
]

# Options for writing

Format = Annotated[str, choice(FORMATS, f"the files' format: {', '.join(FORMATS)}", "--format", metavar="KIND")]
ShardSize = Annotated[
    str | None,
    typer.Option(help="the most bytes of a file, as 100MB; only a single larger record exceeds them", metavar="SIZE"),
]
ShardRecords = Annotated[int | None, typer.Option(help="the most records of a file", min=1, metavar="N")]
Align = Annotated[
    str | None,
    choice(
        ALIGNMENTS,
        "stream (the default): a file holds records of several shards; shard: each shard begins a new file",
    ),
]
Exists = Annotated[str, choice(EXISTS, f"what to do when OUT holds files: {', '.join(EXISTS)}")]
Create = Annotated[bool, typer.Option(help="create the bucket if it does not exist")]

# Options for measuring

Batch = Annotated[int, typer.Option(help="records in a batch", min=1, metavar="N")]
WithTensorflow = Annotated[
    bool, typer.Option("--tensorflow/--no-tensorflow", help="test TensorFlow, too; importing it takes seconds")
]

# Options for printing

DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="print what would be done, and do nothing")]

_Json = Annotated[bool, typer.Option("--json", help="print one JSON document to stdout")]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="print no progress and no hints, only data and errors")]
_Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        show_default=False,
        metavar="",
        help="print more; -vv also prints Python's traceback",
    ),
]
_OF_CONSOLE = (
    Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=_Json),
    Parameter("quiet", Parameter.KEYWORD_ONLY, default=False, annotation=_Quiet),
    Parameter("verbose", Parameter.KEYWORD_ONLY, default=0, annotation=_Verbose),
)


class Stopped(Exception):  # not an error: the user stopped the command
    """Ctrl-C stopped a verb.

    Args:
        done: The work that was done before.
        then: How to resume.
        in_part: Whether a part of the work is kept.
    """

    def __init__(self, done: str, then: str, *, in_part: bool) -> None:
        super().__init__(done)
        self.done, self.then, self.in_part = done, then, in_part


def verb(
    *, has_json: bool = True, check_endpoint: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that turns a function into a verb.

    The function's first parameter is the `Console` that it prints to. In its place, the verb has the options --json,
    --quiet and --verbose.

    Args:
        has_json: Whether the verb has --json.
        check_endpoint: Whether to refuse --endpoint when no URL of the command needs an endpoint.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        declared = signature(function, eval_str=True)

        @functools.wraps(function)
        def run(*args: Any, as_json: bool = False, quiet: bool = False, verbose: int = 0, **kwargs: Any) -> None:
            console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
            with _reporting_errors(console, function.__name__, kwargs.get("endpoint")):
                if check_endpoint:
                    _check_endpoint(declared.bind(console, *args, **kwargs).arguments)
                function(console, *args, **kwargs)

        _, *own = declared.parameters.values()
        parameters = [*own, *_OF_CONSOLE[not has_json :]]
        run.__signature__ = declared.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.__doc__ = _EXAMPLES.sub(r"\1\b\n\g<0>", function.__doc__ or "")
        return run

    return decorate


@contextmanager
def _reporting_errors(console: Console, verb: str, endpoint: object) -> Generator[None]:
    """Print the log and an error of this context, and exit with the error's code."""
    try:
        with console.showing_log():
            yield
        sys.stdout.flush()
    except BrokenPipeError:  # the program that read stdout has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(exits.DONE) from None
    except (Tar2TFError, OSError) as error:
        if console.verbose > 1:
            raise
        fail(console, *_explained(error, verb, endpoint))
    except Stopped as stopped:
        console.error(f"stopped: {stopped.done}", stopped.then)
        raise typer.Exit(exits.PART if stopped.in_part else exits.INTERRUPTED) from None
    except KeyboardInterrupt:
        console.error("stopped before it was done; nothing was written")
        raise typer.Exit(exits.INTERRUPTED) from None


def _explained(error: Tar2TFError | OSError, verb: str, endpoint: object) -> tuple[str, str, int]:
    """Return the text of an error, what to do next, and the exit code."""
    if isinstance(error, OptionError):
        return str(error), f"see the options: ais-tar2tf {verb} --help", exits.USAGE
    if isinstance(error, Tar2TFError):
        return f"{type(error).__name__}: {error}", remedy_for(error, verb, endpoint), code_of(error)
    where = f"{error.filename}: " if error.filename else ""
    text = f"{where}the file system said: {error.strerror or error}"
    return text, "check that path; -vv shows where it happened", exits.FAILED


def refuse_flag(flag: str, given: object, why: str, advice: str) -> None:
    """Refuse a flag that has no effect.

    Args:
        flag: The flag.
        given: Its value; None or False when the user did not give it.
        why: Why the flag has no effect, as a phrase that begins with "for", "with" or "without".
        advice: What to do instead.
    """
    if given is not None and given is not False:
        raise OptionError(f"{flag} has no effect {why}: {advice}")


def _check_endpoint(given: Mapping[str, object]) -> None:
    """Refuse `--endpoint` when no URL of the command is in a store that has endpoints."""
    values = [given.get(name) for name in _URL_PARAMETERS]
    urls = [str(each) for value in values if value for each in (value if isinstance(value, list) else [value])]
    if urls and not any(map(has_endpoint, urls)):
        advice = "only URLs that begin with ais://, s3://, gs:// or az:// have an endpoint; leave it out"
        refuse_flag("--endpoint", given.get("endpoint"), f"for {shown_url(urls[0])!r}", advice)


def fail(console: Console, text: str, remedy: str, code: int) -> NoReturn:
    """Print what went wrong and what to do next, and exit with `code`."""
    console.error(text, remedy)
    raise typer.Exit(code)


def show_dry_run(console: Console, extent: tuple[int, int], then: str, **document: object) -> None:
    """Print what a verb would do.

    Args:
        console: Prints.
        extent: How many shards would be read, and the sum of their bytes.
        then: What would be done next, as a phrase that begins with a verb.
        document: More entries of the JSON document.
    """
    shards, size = extent
    text = f"would read {counted(shards, 'shard')} ({quantity(size)}) and {then}"
    console.document({"dry_run": True, "shards": shards, "bytes": size, **document}, lambda: console.data(text))
