"""`put`: store files in a bucket or a folder. It must not replace an object with a part of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ais_tar2tf.cli import exits
from ais_tar2tf.cli.command import DryRun, Endpoint, Stopped, fail, verb
from ais_tar2tf.cli.console import Console

if TYPE_CHECKING:
    from ais_tar2tf.stores import Store

__all__ = ["put"]


@verb()
def put(
    console: Console,
    files: Annotated[
        list[Path],
        typer.Argument(
            help="files, or folders whose files are all stored, also those in sub-folders", metavar="FILE"
        ),
    ],
    url: Annotated[
        str,
        typer.Argument(
            help="the bucket, folder or prefix/ to store the files in, or a new name for one file", metavar="URL"
        ),
    ],
    endpoint: Endpoint = None,
    follow_links: Annotated[
        bool, typer.Option("--follow-links", help="follow links in folders, even to files outside the folder")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="send a file even if an object with the same name and size exists")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Store files in a bucket; create the bucket if necessary.

    Hidden files in a folder, and links that lead out of the folder, are left out. The command counts them and prints
    the first names.

    A file is not sent if an object with the same name and size exists. So, after an interruption, run the same
    command again to store the remaining files.

    Example:
      ais-tar2tf put shards/*.tar ais://imagenet/train/
    """
    from ais_tar2tf.cli.places import as_listed, check_written, store_of

    check_written(url, "URL")
    entries = _names_and_paths(files, console, follow_links=follow_links)
    _check_names(entries, console)
    if "/" not in url and not Path(url).exists():
        fail(console, f"{url}: there is no such folder", f"say the store too: ais://{url}, or ./{url}", exits.USAGE)
    store, prefix = store_of(as_listed(url), endpoint)
    if _is_full_name(prefix, files):
        entries = [("", files[0])]
    elif prefix and not prefix.endswith("/"):
        prefix += "/"
    stored: list[str] = []
    kept: list[str] = []
    try:
        if not dry_run:
            store.create()
        size = sum(path.stat().st_size for _, path in entries)
        with console.progress("storing", len(entries), size=size, counted="") as progress:
            for name, path in entries:
                exists = not again and _is_stored(store, prefix + name, path.stat().st_size)
                console.detail(f"{'already stored' if exists else 'storing'}: {store.url(prefix + name)}")
                if not exists and not dry_run:
                    store.put(prefix + name, path)
                (kept if exists else stored).append(store.url(prefix + name))
                progress.add_shard()
                progress.add(0, path.stat().st_size)
    except KeyboardInterrupt:
        raise Stopped(
            f"{len(stored)} of {len(entries)} files were stored, {len(kept)} were already stored",
            "run the same command again to store the others",
            in_part=bool(stored),
        ) from None
    finally:
        store.close()
    _show(console, stored, kept, dry_run=dry_run)


def _show(console: Console, stored: list[str], kept: list[str], *, dry_run: bool) -> None:
    document = {"stored": stored, "kept": kept, "dry_run": dry_run}
    console.document(document, lambda: console.names(stored))
    would = "would be " if dry_run else ""
    console.note(f"{len(stored)} {would}stored, {len(kept)} already stored")


def _names_and_paths(files: list[Path], console: Console, *, follow_links: bool) -> list[tuple[str, Path]]:
    """Return, for each file to store, the end of its name in the store, and its path.

    For a file that was found in a folder of `files`, the end of the name is its path below this folder.
    """
    from ais_tar2tf.recordfiles.packing.confined_folder import ConfinedFolder
    from ais_tar2tf.recordfiles.packing.left_out import LeftOut

    entries: list[tuple[str, Path]] = []
    left_out = LeftOut()
    for path in files:
        if path.is_dir():
            root = ConfinedFolder(path, follow_links=follow_links)
            found = (
                f"{folder.path}/{name}".lstrip("/") for folder in root.walk(left_out) for name, _ in folder.files
            )
            entries += [(name, root.path_of(name)) for name in sorted(found)]
        elif path.is_file():
            entries.append((path.name, path))
        else:
            fail(console, f"{path}: there is no such file", "check the path; nothing was stored", exits.NOT_FOUND)
    if left_out:
        console.note(f"left out: {left_out}")
    return entries


def _check_names(entries: list[tuple[str, Path]], console: Console) -> None:
    """Refuse two different files that would be stored under the same name: the second would replace the first."""
    paths: dict[str, Path] = {}
    for name, path in entries:
        first = paths.setdefault(name, path)
        if not first.samefile(path):
            fail(
                console,
                f"{first} and {path} would both be stored as {name!r}",
                "rename one, or put each of them to a prefix/ of its own; nothing was stored",
                exits.USAGE,
            )


def _is_full_name(prefix: str, files: list[Path]) -> bool:
    """Return whether `prefix`, the part of the URL after the bucket, is the new name of a single file.

    It is if `prefix` and the file have the same extension: `put a.tar ais://bucket/b.tar` stores `b.tar`.
    Otherwise, `prefix` is a folder: `put a.tar ais://bucket/b` stores `b/a.tar`.
    """
    if len(files) != 1 or not files[0].is_file() or prefix.endswith("/"):
        return False
    return Path(prefix).suffix == files[0].suffix != ""


def _is_stored(store: Store, name: str, size: int) -> bool:
    from ais_tar2tf.errors import ShardNotFound

    try:
        return store.head(name).size == size
    except ShardNotFound:
        return False
