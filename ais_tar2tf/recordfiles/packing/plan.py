"""Plan a run of `pack`: the names of its shards and the order of its records.

This module must not read the files to pack, write shards, or do I/O on stores.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ais_tar2tf.base.urls.templates import escape
from ais_tar2tf.errors import ExportError, TemplateError
from ais_tar2tf.recordfiles.packing.contents import Contents
from ais_tar2tf.recordfiles.packing.folder_layout import SPLIT_NAMES
from ais_tar2tf.recordfiles.packing.options import PackOptions
from ais_tar2tf.stores import split_url
from ais_tar2tf.streams.class_names import PLACE, folder_and_name, pattern_of

__all__ = ["PackPlan", "ShardNames", "check_template", "make_plan", "name_matcher"]

_SEED = 0  # the seed of every shuffle without a given seed: packing a folder again gives the same shards
_SPLIT = "{split}"
_ODD_PLACE = re.compile(r"%\d*d|\{[^}]*\}?|\}")  # a printf format, or any brace


@dataclass(frozen=True)
class PackPlan:
    """The plan of a run of `pack`: the contents, the names of the shards, and the order of the records."""

    contents: Contents
    url: str
    templates: dict[str, str]  # the template of the names of shards, by split
    seed: int | None  # the seed of the shuffle; None: no shuffle, the records are in the order of their names
    options: PackOptions

    def reading_url(self, split: str, count: int) -> str:
        """Return the URL by which `t2t.open` reads the first `count` shards of a split."""
        base = self.url[: len(self.url) - len(split_url(self.url)[2])]
        return base + ShardNames(self.templates[split]).reading_template(count)


def make_plan(contents: Contents, url: str, options: PackOptions) -> PackPlan:
    """Return the plan to pack `contents` into shards named by the template `url`.

    Raises:
        TemplateError: There are several splits, and the template has no `{split}`; or there are no splits, and the
            template has `{split}`.
    """
    templates = {split.name: _split_template(url, split.name, contents) for split in contents.splits}
    return PackPlan(contents, url, templates, _seed_of(options.shuffle, contents), options)


def check_template(url: str) -> None:
    """Raise TemplateError if `url` is not a template for the names of shards.

    In such a template, a *place* stands for the number of a shard: `{}`, or a format such as `{:05d}`. A template
    without a place names one shard, and must have an extension. A printf format such as `%05d`, or a range such as
    `{0..9}`, is refused.
    """
    scheme, _, template = split_url(url)
    last = folder_and_name(template)[1]
    is_folder = scheme == "file" and Path(template).is_dir()
    if not last or is_folder or (PLACE.search(template) is None and "." not in last):
        raise TemplateError(f"{url}: no name for the shards; as '{url.rstrip('/')}/train-{{:05d}}.tar'")
    odd = _ODD_PLACE.search(PLACE.sub("", template.replace(_SPLIT, "")))
    if odd is not None:
        raise TemplateError(
            f"{url}: {odd[0]!r} would be a part of the names; the number of a shard replaces "
            f"{_suggested_place(odd[0])!r}: '{url.replace(odd[0], _suggested_place(odd[0]))}'"
        )


def _suggested_place(odd: str) -> str:
    """Return the place, such as `{:05d}`, that the user probably means by a printf format or by a range for reading.

    >>> [_suggested_place(odd) for odd in ("%06d", "%d", "{000..146}", "{0..9}", "{:03}")]
    ['{:06d}', '{}', '{:03d}', '{}', '{:05d}']
    """
    width = re.match(r"%0?(\d*)d", odd)
    if width is not None:
        return f"{{:0{width[1]}d}}" if width[1] else "{}"
    begin = re.match(r"\{(\d+)\D", odd)
    if begin is not None:
        return f"{{:0{len(begin[1])}d}}" if len(begin[1]) > 1 else "{}"
    return "{:05d}"


def name_matcher(template: str) -> Callable[[str], bool]:
    """Return a function that returns whether a name fits `template`, with any shard number and any split.

    >>> [name_matcher("out/{split}-{:03d}.tar")(name) for name in ("out/val-007.tar", "val-007.tar", "out/val-x.tar")]
    [True, False, False]
    """
    matches = re.compile(SPLIT_NAMES.join(map(pattern_of, template.split(_SPLIT))), re.IGNORECASE).fullmatch
    return lambda name: matches(name) is not None


def _split_template(url: str, split: str, contents: Contents) -> str:
    """Return the template of the names of a split's shards: the template of `url` with the split's name filled in."""
    template = split_url(url)[2]
    if _SPLIT in template:
        if not split:
            raise TemplateError(
                f"{url}: there is {_SPLIT} in the name, and no folder named train, val, test or alike"
            )
        return template.replace(_SPLIT, split)
    if len(contents.splits) > 1:
        names = ", ".join(each.name for each in contents.splits)
        number = PLACE.search(template)
        folder = url.removesuffix(folder_and_name(template)[1])
        raise TemplateError(
            f"{url}: there are {len(contents.splits)} splits ({names}), and no {_SPLIT} says where their names go; "
            f"take '{folder}{_SPLIT}-{number[0] if number else '{:05d}'}.tar'"
        )
    return template


def _seed_of(shuffle: bool | int | None, contents: Contents) -> int | None:
    """Return the seed of the shuffle; None if the records stay in the order of their names.

    If the option `shuffle` is a number, it is the seed. If the option is True or False, it decides whether the
    records are shuffled. If the option is None, `contents.shuffled` decides this.
    """
    chosen = contents.shuffled if shuffle is None else shuffle
    if isinstance(chosen, bool):
        return _SEED if chosen else None
    return chosen


class ShardNames:
    """The names of one split's shards.

    >>> ShardNames("train-{:05d}.tar").at(3)
    'train-00003.tar'
    """

    def __init__(self, template: str) -> None:
        self._template = template
        self.has_number: bool = PLACE.search(template) is not None  # if False, the template names only one shard

    def at(self, number: int) -> str:
        """Return the name of shard `number`; the first shard has number 0."""
        if not self.has_number and number:
            raise ExportError(f"{self._template}: one shard is not enough; say where a number goes: 'a-{{}}.tar'")
        return PLACE.sub(lambda found: found[0].format(number), self._template)

    def reading_template(self, count: int) -> str:
        """Return the template by which `t2t.open` reads the first `count` shards.

        >>> ShardNames("train-{:03d}.tar").reading_template(12)
        'train-{000..011}.tar'
        >>> ShardNames("{}/train-{}.tar").reading_template(2)
        '{0/train-0,1/train-1}.tar'
        """
        places = list(PLACE.finditer(self._template))
        if not places or count < 2:
            return escape(self.at(0))
        begin, end = places[0].start(), places[-1].end()
        before, numbered, after = self._template[:begin], ShardNames(self._template[begin:end]), self._template[end:]
        if len(places) == 1:
            choices = f"{numbered.at(0)}..{numbered.at(count - 1)}"
        else:  # several ranges would stand for all combinations of their numbers
            choices = ",".join(escape(numbered.at(number)) for number in range(count))
        return f"{escape(before)}{{{choices}}}{escape(after)}"
