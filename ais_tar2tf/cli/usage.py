"""What is said of a command that cannot be read: an argument that is missing, an option that there is not."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from ais_tar2tf.cli import exits
from ais_tar2tf.cli.console import Console

__all__ = ["Verb", "Verbs"]

_Misuse: Any = typer.BadParameter.__mro__[1]  # click's UsageError; typer brings click along from 0.20 on
_NO_NUMBER = "Input should be a valid integer, unable to parse string as an integer"


class Verbs(TyperGroup):
    """The program: its verbs, and what is said when there is no such verb."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args:  # it shows the help
            return super().parse_args(ctx, args)
        with _told(ctx, "see the commands: ais-tar2tf --help"):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        with _told(ctx, "see the commands: ais-tar2tf --help"):
            return super().resolve_command(ctx, args)


class Verb(TyperCommand):
    """A verb that names the argument that is missing, and refuses empty arguments.

    To most verbs an empty argument would be the current folder, or the root.
    """

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words behind the verb in its usage line, without braces, which templates have."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # completion asks with what has been typed so far
            return super().parse_args(ctx, args)
        missing = _missing(self, ctx, args)
        example = _example(self.help or "")
        with _told(ctx, f"ais-tar2tf {self.name} --help{example and f'; for example: {example}'}"):
            if "" in args:
                raise typer.BadParameter("an argument is empty; is a variable of the shell not set?", ctx=ctx)
            if missing:
                raise _Misuse(f"missing: {'; and '.join(missing)}", ctx)
            return super().parse_args(ctx, args)


@contextmanager
def _told(ctx: Any, remedy: str) -> Generator[None]:
    """Say what is wrong as every other error is said."""
    try:
        yield
    except _Misuse as misuse:
        console = Console()
        console.note(ctx.get_usage())
        console.error(misuse.format_message().replace(_NO_NUMBER, "a whole number is expected"), remedy)
        raise typer.Exit(exits.USAGE) from None


def _missing(verb: Verb, ctx: Any, args: Sequence[str]) -> list[str]:
    """Return the arguments that are missing, each with what it is: of the first ones, as many were given.

    Click gives the only argument of `put FILE... URL` to URL, and would say that FILE is missing.
    """
    if any(option in args for option in ctx.help_option_names):
        return []
    required: list[Any] = [each for each in verb.params if each.param_type_name == "argument" and each.required]
    try:
        given, _, _ = verb.make_parser(ctx).parse_args(list(args))
    except _Misuse:  # an option is wrong, which is said first
        return []
    count = sum(given.get(each.name) not in (None, ()) for each in required)
    return [f"{each.metavar} ({each.help})" for each in required[count:]]


def _example(text: str) -> str:
    """Return the first example in a verb's help.

    >>> _example("List.\\n\\nExamples:\\n  ais-tar2tf ls ais://\\n  ais-tar2tf ls ais://b")
    'ais-tar2tf ls ais://'
    """
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line.startswith("ais-tar2tf ")), "")
