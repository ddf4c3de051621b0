"""Everything that is decided before a store is asked: what is packed, under which names, in which order."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ais_tar2tf.class_names import PLACE, folder_and_name, pattern_of
from ais_tar2tf.errors import ExportError, TemplateError
from ais_tar2tf.packing.contents import Contents
from ais_tar2tf.packing.layout import SPLIT_NAMES
from ais_tar2tf.packing.options import PackOptions
from ais_tar2tf.stores import split_url
from ais_tar2tf.templates import escape

__all__ = ["Plan", "ShardNames", "check_template", "covering", "plan_of"]

_SEED = 0  # the same folder gives the same shards
_SPLIT = "{split}"
_ODD_PLACE = re.compile(r"%\d*d|\{[^}]*\}?|\}")


@dataclass(frozen=True)
class Plan:
    """What is packed, where to, and in which order."""

    contents: Contents
    url: str
    templates: dict[str, str]  # of the shards' names, by split
    seed: int | None  # None: in the order of names
    options: PackOptions

    def readable(self, split: str, count: int) -> str:
        """Return the template under which the first `count` shards of a split are opened."""
        base = self.url[: len(self.url) - len(split_url(self.url)[2])]
        return base + ShardNames(self.templates[split]).first(count)


def plan_of(contents: Contents, url: str, options: PackOptions) -> Plan:
    """Return the plan to pack `contents` into shards named by the template `url`.

    Raises:
        TemplateError: The template does not say where the names of splits go, or there are no splits for it.
    """
    templates = {part.split: _template_of(url, part.split, contents) for part in contents.parts}
    return Plan(contents, url, templates, _seed_of(options.shuffle, contents), options)


def check_template(url: str) -> None:
    """Raise TemplateError when `url` names no shards, or says otherwise than `{}` where their number goes."""
    scheme, _, template = split_url(url)
    last = folder_and_name(template)[1]
    is_folder = scheme == "file" and Path(template).is_dir()
    if not last or is_folder or (PLACE.search(template) is None and "." not in last):
        raise TemplateError(f"{url}: no name for the shards; as '{url.rstrip('/')}/train-{{:05d}}.tar'")
    odd = _ODD_PLACE.search(PLACE.sub("", template.replace(_SPLIT, "")))
    if odd is not None:
        raise TemplateError(
            f"{url}: {odd[0]!r} would stand in the names as it is; the number of a shard that is written goes in "
            f"place of {_right_place(odd[0])!r}: '{url.replace(odd[0], _right_place(odd[0]))}'"
        )


def _right_place(odd: str) -> str:
    """Return the place for a number that is meant by a printf format, or by a range of numbers as readers take it.

    >>> [_right_place(odd) for odd in ("%06d", "%d", "{000..146}", "{0..9}", "{:03}")]
    ['{:06d}', '{}', '{:03d}', '{}', '{:05d}']
    """
    width = re.match(r"%0?(\d*)d", odd)
    if width is not None:
        return f"{{:0{width[1]}d}}" if width[1] else "{}"
    begin = re.match(r"\{(\d+)\D", odd)
    if begin is not None:
        return f"{{:0{len(begin[1])}d}}" if len(begin[1]) > 1 else "{}"
    return "{:05d}"


def covering(template: str) -> Callable[[str], bool]:
    """Return what tells whether a name is one of the template's, with any number, of any split.

    >>> [covering("out/{split}-{:03d}.tar")(name) for name in ("out/val-007.tar", "val-007.tar", "out/val-x.tar")]
    [True, False, False]
    """
    matches = re.compile(SPLIT_NAMES.join(map(pattern_of, template.split(_SPLIT))), re.IGNORECASE).fullmatch
    return lambda name: matches(name) is not None


def _template_of(url: str, split: str, contents: Contents) -> str:
    """Return the template of a split's shards, in which only the number is left open."""
    template = split_url(url)[2]
    if _SPLIT in template:
        if not split:
            raise TemplateError(
                f"{url}: there is {_SPLIT} in the name, and no folder named train, val, test or alike"
            )
        return template.replace(_SPLIT, split)
    if len(contents.parts) > 1:
        splits = ", ".join(part.split for part in contents.parts)
        number = PLACE.search(template)
        folder = url.removesuffix(folder_and_name(template)[1])
        raise TemplateError(
            f"{url}: there are {len(contents.parts)} splits ({splits}), and no {_SPLIT} says where their names go; "
            f"take '{folder}{_SPLIT}-{number[0] if number else '{:05d}'}.tar'"
        )
    return template


def _seed_of(shuffle: bool | int | None, contents: Contents) -> int | None:
    if shuffle is None:
        return _SEED if contents.shuffled else None
    return None if shuffle is False else int(shuffle) if shuffle is not True else _SEED


class ShardNames:
    """The names of one split's shards.

    >>> ShardNames("train-{:05d}.tar").at(3)
    'train-00003.tar'
    """

    def __init__(self, template: str) -> None:
        self._template = template
        self.many: bool = PLACE.search(template) is not None

    def at(self, number: int) -> str:
        """Return the name of a shard by its number, from 0."""
        if not self.many and number:
            raise ExportError(f"{self._template}: one shard is not enough; say where a number goes: 'a-{{}}.tar'")
        return PLACE.sub(lambda found: found[0].format(number), self._template)

    def first(self, count: int) -> str:
        """Return the template, as `t2t.open` reads it, of the first `count` shards.

        >>> ShardNames("train-{:03d}.tar").first(12)
        'train-{000..011}.tar'
        """
        places = list(PLACE.finditer(self._template))
        if len(places) != 1 or count < 2:
            return escape(self.at(0))
        (found,) = places
        before, after = self._template[: found.start()], self._template[found.end() :]
        return f"{escape(before)}{{{found[0].format(0)}..{found[0].format(count - 1)}}}{escape(after)}"
