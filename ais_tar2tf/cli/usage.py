"""Errors of usage, such as a missing argument, or an option or a verb that does not exist.

The classes here change only how typer reports such errors. They must not do the work of a verb.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from ais_tar2tf.cli import exits
from ais_tar2tf.cli.console import Console

__all__ = ["Verb", "Verbs"]

_Misuse: Any = typer.BadParameter.__mro__[1]  # UsageError of typer's own copy of click (from typer 0.20 on)
_NO_NUMBER = "Input should be a valid integer, unable to parse string as an integer"


class Verbs(TyperGroup):
    """The program as a group of verbs, which reports errors of usage in our own form."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args:  # the base class shows the help
            return super().parse_args(ctx, args)
        with _reporting_misuse(ctx, "see the commands: ais-tar2tf --help"):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        with _reporting_misuse(ctx, "see the commands: ais-tar2tf --help"):
            return super().resolve_command(ctx, args)


class Verb(TyperCommand):
    """A verb of the command line. It names missing arguments in its error, and refuses empty arguments.

    Without this check, most verbs would read an empty argument as the current folder, or as the root.
    """

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words that follow the verb in its usage line, without click's braces.

        A reader could take these braces for the braces of a template.
        """
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # completion parses a line that is not finished
            return super().parse_args(ctx, args)
        missing = _missing(self, ctx, args)
        example = _example(self.help or "")
        with _reporting_misuse(ctx, f"ais-tar2tf {self.name} --help{example and f'; for example: {example}'}"):
            if "" in args:
                raise typer.BadParameter("an argument is empty; is a variable of the shell not set?", ctx=ctx)
            if missing:
                raise _Misuse(f"missing: {'; and '.join(missing)}", ctx)
            return super().parse_args(ctx, args)


@contextmanager
def _reporting_misuse(ctx: Any, remedy: str) -> Generator[None]:
    """Print an error of usage in the form of all other errors, with `remedy` as the advice, and exit."""
    try:
        yield
    except _Misuse as misuse:
        console = Console()
        console.note(ctx.get_usage())
        console.error(misuse.format_message().replace(_NO_NUMBER, "a whole number is expected"), remedy)
        raise typer.Exit(exits.USAGE) from None


def _missing(verb: Verb, ctx: Any, args: Sequence[str]) -> list[str]:
    """Return the names and help texts of the missing arguments.

    If n arguments are given, the first n required arguments count as given, and all others as missing. Click itself
    would use the only argument of `put FILE... URL` as the URL, and report that FILE is missing.
    """
    if any(option in args for option in ctx.help_option_names):
        return []
    required: list[Any] = [each for each in verb.params if each.param_type_name == "argument" and each.required]
    try:
        given, _, _ = verb.make_parser(ctx).parse_args(list(args))
    except _Misuse:  # an option is wrong: the caller parses the line again, and reports this error
        return []
    count = sum(given.get(each.name) not in (None, ()) for each in required)
    return [f"{each.metavar} ({each.help})" for each in required[count:]]


def _example(text: str) -> str:
    r"""Return the first example in a verb's help.

    >>> _example("List.\n\nExamples:\n  ais-tar2tf ls ais://\n  ais-tar2tf ls ais://b")
    'ais-tar2tf ls ais://'
    """
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line.startswith("ais-tar2tf ")), "")
