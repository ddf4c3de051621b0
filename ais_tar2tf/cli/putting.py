"""`put`: files into a store, under their names, each whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ais_tar2tf.cli import exits
from ais_tar2tf.cli.console import Console
from ais_tar2tf.cli.verbs import DryRun, Endpoint, Json, Quiet, Stopped, Verbose, fail, verb

if TYPE_CHECKING:
    from ais_tar2tf.stores import Store

__all__ = ["put"]


@verb
def put(
    files: Annotated[list[Path], typer.Argument(help="files, or folders with everything below them", metavar="FILE")],
    url: Annotated[
        str,
        typer.Argument(
            help="a bucket or prefix/ to put them into; for one file also the object's name", metavar="URL"
        ),
    ],
    endpoint: Endpoint = None,
    follow_links: Annotated[
        bool, typer.Option("--follow-links", help="store what links in folders point to, also outside of them")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="also what is there already, with the same size")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Put files into a bucket, which is made if need be.

    Hidden files in a folder, and links that lead out of it, are left out and named.

    What is there already with the same name and size is left, so the same command goes on after a break.

    \b
    Example:
      ais-tar2tf put shards/*.tar ais://imagenet/train/
    """
    from ais_tar2tf.cli.places import as_listed, check_written, store_of

    console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
    check_written(url, "URL")
    named = _named(files, console, follow_links=follow_links)
    if "/" not in url and not Path(url).exists():
        fail(console, f"{url}: there is no such folder", f"say the store too: ais://{url}, or ./{url}", exits.USAGE)
    store, prefix = store_of(as_listed(url), endpoint)
    if _is_name(prefix, files):
        named = [("", files[0])]
    elif prefix and not prefix.endswith("/"):
        prefix += "/"
    stored: list[str] = []
    kept: list[str] = []
    try:
        if not dry_run:
            store.create()
        size = sum(path.stat().st_size for _, path in named)
        with console.progress("storing", len(named), size=size, counted="") as progress:
            for name, path in named:
                there = not again and _is_there(store, prefix + name, path.stat().st_size)
                console.detail(f"{'there already' if there else 'storing'}: {store.url(prefix + name)}")
                if not there and not dry_run:
                    store.put(prefix + name, path)
                (kept if there else stored).append(store.url(prefix + name))
                progress.shard()
                progress.add(0, path.stat().st_size)
    except KeyboardInterrupt:
        raise Stopped(
            f"{len(stored)} of {len(named)} files are stored", "the same command goes on", in_part=bool(stored)
        ) from None
    finally:
        store.close()
    _tell(console, stored, kept, dry_run=dry_run)


def _tell(console: Console, stored: list[str], kept: list[str], *, dry_run: bool) -> None:
    def shown() -> None:
        for each in stored:
            console.name(each)

    console.document({"stored": stored, "kept": kept, "dry_run": dry_run}, shown)
    would = "would be " if dry_run else ""
    console.note(f"{len(stored)} {would}stored, {len(kept)} there already")


def _named(files: list[Path], console: Console, *, follow_links: bool) -> list[tuple[str, Path]]:
    """Names in the store: a file's own name, and within a folder the path below it."""
    from ais_tar2tf.packing.confined import Confined
    from ais_tar2tf.packing.left_out import LeftOut

    named: list[tuple[str, Path]] = []
    left_out = LeftOut()
    for each in files:
        if each.is_dir():
            root = Confined(each, follow_links=follow_links)
            found = (
                f"{folder.path}/{name}".lstrip("/") for folder in root.walk(left_out) for name, _ in folder.files
            )
            named += [(name, root.path_of(name)) for name in sorted(found)]
        elif each.is_file():
            named.append((each.name, each))
        else:
            fail(console, f"{each}: there is no such file", "check the path; nothing was stored", exits.NOT_FOUND)
    if left_out:
        console.note(f"left out: {left_out}")
    return named


def _is_name(prefix: str, files: list[Path]) -> bool:
    """Whether one file is put under a name of its own: `a.tar` to `b.tar`, and not to `b.tar/a.tar`."""
    if len(files) != 1 or not files[0].is_file() or prefix.endswith("/"):
        return False
    return Path(prefix).suffix == files[0].suffix != ""


def _is_there(store: Store, name: str, size: int) -> bool:
    from ais_tar2tf.errors import ShardNotFound

    try:
        return store.head(name).size == size
    except ShardNotFound:
        return False
