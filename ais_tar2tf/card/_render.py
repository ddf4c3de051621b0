"""A survey as one HTML page: no scripts, nothing loaded from anywhere, every word of the data escaped. No I/O."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Sequence

from ais_tar2tf.card._fields import FieldSurvey
from ais_tar2tf.card._numbers import Numbers
from ais_tar2tf.card._plots import bars, histogram, line, shown_number
from ais_tar2tf.card._samples import Sample, Shown
from ais_tar2tf.card._style import STYLE
from ais_tar2tf.card._survey import Survey
from ais_tar2tf.card._words import Words

__all__ = ["document", "loader", "loader_of", "render"]

# A browser that obeys this loads nothing, whatever a record smuggles in.
_POLICY = (
    "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'"
)
_TINY = 96  # pixels: an image that is shown larger than it is keeps its pixels
_EVEN = 1.5  # times: classes that differ by less are told to be even
_MOST_SHARDS = 12  # named in the table of the largest and smallest

_IMAGES = frozenset({"jpg", "jpeg", "png", "gif", "bmp"})  # that TensorFlow decodes
_RAW_LOADER = """\
import ais_tar2tf as t2t

src = t2t.open({url!r}{at}){chosen}
dataset = src.dataset(shuffle=True, seed=1, batch=32)  # dicts of raw bytes
print(dataset.element_spec)
"""
_PAIR_LOADER = """\
import ais_tar2tf as t2t
import tensorflow as tf


def pair(record):
    image = tf.io.decode_image(record["image"], channels=3, expand_animations=False)
    return tf.image.resize(image, (224, 224)) / 255, tf.strings.to_number(record["cls"], tf.int32)


src = t2t.open({url!r}{at}).select({image!r}, "cls")
dataset = src.dataset(pair, shuffle=True, seed=1, batch=32)  # what a model's fit takes
"""

_Section = tuple[str, str, Callable[[Survey], str]]


def render(survey: Survey, title: str, *, note: str = "", code: str | None = None) -> str:
    """The page. `title` is the URL that was read, `note` says how much of it, `code` how it is loaded."""
    sections = [(key, name, make(survey)) for key, name, make in _sections(code or loader_of(survey, title))]
    shown = [each for each in sections if each[2]]
    links = "".join(f'<li><a href="#{key}">{name}</a></li>' for key, name, _ in shown)
    bodies = "".join(
        f'<section id="{key}" aria-labelledby="{key}-title"><h2 id="{key}-title">{name}</h2>{body}</section>'
        for key, name, body in shown
    )
    said = html.escape(title)
    body = (
        '<a class=skip href="#samples">Skip to the samples</a>'
        f"<header><h1>{said}</h1><p class=soft>{html.escape(_summary(survey, note))}</p>{_tiles(survey)}</header>\n"
        f"<nav aria-label=Sections><ul>{links}</ul></nav>\n<main>{bodies}</main>\n"
    )
    return document(f"{said}: a card of the data", body, "Made by <code>ais-tar2tf card</code>.")


def document(title: str, body: str, made_by: str) -> str:
    """A whole page that loads nothing; what is given is HTML already."""
    return (
        "<!doctype html>\n"
        '<html lang=en><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n"
        f"<body>{body}<footer>{made_by} This page holds all that it shows; it loads nothing and runs nothing."
        "</footer></body></html>\n"
    )


def _sections(code: str) -> Sequence[_Section]:
    return (
        ("samples", "Samples", _samples),
        ("schema", "Schema", _schema),
        ("classes", "Classes", _classes),
        ("fields", "Fields", _fields),
        ("sizes", "Sizes", _sizes),
        ("bad", "Bad records", _bad),
        ("loader", "Load it", lambda _: _loader(code)),
    )


def _summary(survey: Survey, note: str) -> str:
    shards = len(survey.shards)
    many = "more than " if survey.more_shards else ""
    text = f"{survey.records:,} records in {many}{shards:,} shard{'s' if shards != 1 else ''}"
    return f"{text}; {note}" if note else text


def _tiles(survey: Survey) -> str:
    rows = [
        ("Records", f"{survey.records:,}", ""),
        ("Bytes", shown_number(survey.bytes, "bytes"), ""),
        ("Shards", f"{len(survey.shards):,}{'+' if survey.more_shards else ''}", ""),
        ("Fields", f"{len(survey.fields):,}{'+' if survey.more_fields else ''}", ""),
        ("A record", f"≈ {shown_number(survey.record_sizes.mean, 'bytes')}" if survey.records else "none", ""),
        ("Bad", f"{survey.faulty:,}", "bad" if survey.faulty else "good"),
    ]
    cells = "".join(f"<div class='{kind}'><dt>{name}</dt><dd>{value}</dd></div>" for name, value, kind in rows)
    return f"<dl class=tiles>{cells}</dl>"


# Samples.


def _samples(survey: Survey) -> str:
    samples = survey.samples
    if not samples:
        return "<p>There are no records.</p>"
    cells = "".join(_sample(sample, survey) for sample in samples)
    chosen = f"{len(samples)} of {survey.records:,} records, chosen evenly from all of them."
    return f"<p class=soft>{chosen}</p><ul class=sheet>{cells}</ul>"


def _sample(sample: Sample, survey: Survey) -> str:
    media = "".join(_media(shown, sample.key) for shown in sample.fields)
    rows = "".join(_told(shown, survey) for shown in sample.fields)
    seen = f"<div class=seen>{media}</div>" if media else ""
    where = html.escape(f"{sample.shard}, record {sample.number:,}".removeprefix(", "), quote=True)
    return (
        f"<li>{seen}<div class=told><div class=key title='{where}'>{html.escape(sample.key)}</div>"
        f"<dl>{rows}</dl></div></li>"
    )


def _media(shown: Shown, key: str) -> str:
    told = html.escape(f"{shown.name} of record {key}, {shown.note}", quote=True)
    if shown.form == "image":
        style = "array" if shown.media_type == "image/png" and not shown.note[:1].isdigit() else _size_class(shown)
        return f"<img class='{style}' loading=lazy alt='{told}' src='{_data(shown)}'>"
    if shown.form == "audio":
        return f"<audio controls preload=none aria-label='{told}' src='{_data(shown)}'></audio>"
    return line(shown.content, f"{shown.name} of record {key}: {shown.note}") if shown.form == "line" else ""


def _size_class(shown: Shown) -> str:
    width, _, height = shown.note.partition("×")
    small = width.isdigit() and height.isdigit() and max(int(width), int(height)) <= _TINY
    return "tiny" if small else "photo"


def _data(shown: Shown) -> str:
    return f"data:{shown.media_type};base64,{base64.b64encode(shown.content).decode()}"


def _told(shown: Shown, survey: Survey) -> str:
    text = html.escape(shown.content) if shown.form == "text" else ""
    name = survey.class_name(shown.name, text)
    text = text if name is None else f"{text} {html.escape(name)}"
    if text and len(text) <= 24 and not shown.note:
        text = f"<span class=tag>{text}</span>"
    note = f"<span class=soft>{html.escape(shown.note)}</span>" if shown.note else ""
    return f"<div><dt>{html.escape(shown.name)}</dt><dd>{text} {note}</dd></div>"


# Schema, classes, fields.


def _schema(survey: Survey) -> str:
    rows = "".join(
        f"<tr><th scope=row>{html.escape(field.name)}</th><td>{html.escape(field.type_text)}</td>"
        f"<td>{html.escape(field.encoding_text)}</td><td class=number>{_presence(survey, field.name)}</td></tr>"
        for field in survey.schema
    )
    if not rows:
        return ""
    return _table(
        "Schema",
        "Found out from the records; ? is a size that varies.",
        ("Field", "Type", "Stored as", "Present"),
        rows,
    )


def _table(name: str, caption: str, headings: Sequence[str], rows: str) -> str:
    """It can be scrolled by the keyboard where it is wider than the page."""
    numeric = {"Present", "Records", "Bytes", "Count"}
    head = "".join(f"<th scope=col{' class=number' if each in numeric else ''}>{each}</th>" for each in headings)
    return (
        f"<div class=wide role=region aria-label='{name}' tabindex=0><table><caption>{caption}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _presence(survey: Survey, name: str) -> str:
    found = survey.fields.get(name)
    if found is None or not survey.records:
        return ""
    return "always" if found.records == survey.records else f"{found.records / survey.records:.1%}"


def _classes(survey: Survey) -> str:
    return "".join(_balance(field, survey) for field in survey.fields.values() if field.classes is not None)


def _balance(field: FieldSurvey, survey: Survey) -> str:
    words = field.classes
    assert words is not None
    counts = [count for _, count in words.common()]
    ratio = counts[0] / counts[-1]
    balance = "even" if ratio < _EVEN else f"the most frequent is {ratio:,.1f} times as frequent as the least"
    said = f"{len(counts):,} classes in {words.total:,} records: {balance}" if len(counts) > 1 else "one class"
    return (
        f"<div class=field><h3>{html.escape(field.name)}</h3>"
        f"<p class='soft small'>{said}</p>"
        f"{bars('', _named(words, field.name, survey), survey.limits.shown_words, field.records)}</div>"
    )


def _named(words: Words, field: str, survey: Survey) -> Words:
    """The same counts, with the names of classes beside their numbers."""
    named = Words(len(words.counts), 0)
    for word, count in words.counts.items():
        name = survey.class_name(field, word)
        named.counts[word if name is None else f"{word} {name}"] = count
    return named


def _fields(survey: Survey) -> str:
    return "".join(_field(field, survey) for field in survey.fields.values())


def _field(field: FieldSurvey, survey: Survey) -> str:
    kinds = ", ".join(
        f"{name} {count / field.records:.0%}" if len(field.kinds) > 1 else name
        for name, count in field.kinds.most_common(6)
    )
    size, length = field.numbers.get("size"), field.numbers.get("length")
    same = size is not None and length is not None and size.to_json() == length.to_json()
    plots = [
        histogram(name.rstrip(":"), numbers, field.unit(name))
        for name, numbers in field.numbers.items()
        if not (same and name == "length")
    ]
    plots += [
        bars(name, words, 12, field.records)
        for name, words in field.words.items()
        if not words.given_up
        and not (name == "value" and (field.classes is words or len(words.counts) > words.total // 2))
    ]
    return (
        f"<div class=field><h3>{html.escape(field.name)}</h3>"
        f"<p class='soft small'>{html.escape(kinds)} · in {field.records:,} of {survey.records:,} records</p>"
        f"<div class=plots>{''.join(plots)}</div></div>"
    )


# Sizes, bad records, loader.


def _sizes(survey: Survey) -> str:
    if not survey.shards:
        return ""
    records, sizes = Numbers(), Numbers()
    for shard in survey.shards.values():
        records.add(shard.records)
        sizes.add(shard.bytes)
    plots = [histogram("A record", survey.record_sizes, "bytes")]
    if len(survey.shards) > 1:
        plots += [histogram("Fields of a shard", sizes, "bytes"), histogram("Records of a shard", records)]
    ordered = sorted(survey.shards.items(), key=lambda pair: (-pair[1].bytes, pair[0]))
    half = _MOST_SHARDS // 2
    named = ordered if len(ordered) <= _MOST_SHARDS else ordered[:half] + ordered[-half:]
    what = "All shards" if len(ordered) <= _MOST_SHARDS else f"The {half} largest and the {half} smallest shards"
    rows = "".join(
        f"<tr><th scope=row>{html.escape(name)}</th><td class=number>{shard.records:,}</td>"
        f"<td class=number>{shown_number(shard.bytes, 'bytes')}</td></tr>"
        for name, shard in named
    )
    table = _table("Shards", f"{what}, by the bytes of their fields.", ("Shard", "Records", "Bytes"), rows)
    return f"<div class=plots>{''.join(plots)}</div><p></p>{table}"


_NOT_DECODED = "Images were judged by their headers and end marks, and not decoded."


def _bad(survey: Survey) -> str:
    if not survey.faulty:
        return f"<p class=fine>Nothing was wrong with what was read. {_NOT_DECODED}</p>"
    kinds = ", ".join(f"{count:,} × {html.escape(name)}" for name, count in survey.faults.most_common())
    rows = "".join(
        f"<tr><th scope=row>{html.escape(bad.kind)}</th><td class=bad-text>{html.escape(bad.text)}</td></tr>"
        for bad in survey.bad
    )
    named = "all of them" if len(survey.bad) == survey.faulty else f"the first {len(survey.bad):,}"
    return (
        f"<p class=alarm role=note>{survey.faulty:,} wrong: {kinds}. {_NOT_DECODED}</p>"
        f"{_table('Bad records', f'What was wrong: {named}.', ('Error', 'What, and where'), rows)}"
    )


def _loader(code: str) -> str:
    return (
        "<p class=soft>To copy: click or Tab into the code, Ctrl-A, Ctrl-C.</p>"
        f"<textarea readonly spellcheck=false rows={code.count(chr(10))} "
        "aria-label='Python code that loads these data'>"
        f"{html.escape(code)}</textarea>"
    )


def loader_of(survey: Survey, url: str, endpoint: str | None = None, grouping: str | None = None) -> str:
    """Return Python that loads the data that were surveyed into TensorFlow."""
    some = {name: each.records for name, each in survey.fields.items() if each.records < survey.records}
    images = [name for name in some if _is_image(name)]
    alternatives = images if sum(some[name] for name in images) == survey.records else ()
    return loader(url, list(survey.fields), endpoint, grouping, some=list(some), alternatives=alternatives)


def loader(
    url: str,
    fields: Sequence[str],
    endpoint: str | None = None,
    grouping: str | None = None,
    *,
    some: Sequence[str] = (),
    alternatives: Sequence[str] = (),
) -> str:
    """Return Python that loads the data into TensorFlow.

    `some` are the fields that only some records have, and `alternatives` the images of which every record has one.
    """
    at = f", endpoint={endpoint!r}" if endpoint and url.startswith("ais://") else ""
    at += f", grouping={grouping!r}" if grouping else ""
    image = next((name for name in fields if _is_image(name) and name not in some), None)
    source = image or ";".join(alternatives)
    if source and "cls" in fields and "cls" not in some:
        return _PAIR_LOADER.format(url=url, at=at, image=f"image={source}")
    wanted = ", ".join(repr(f"{name}?" if name in some else name) for name in fields)
    chosen = f".select({wanted})  # b'' where a record has no such field" if some else ""
    return _RAW_LOADER.format(url=url, at=at, chosen=chosen)


def _is_image(name: str) -> bool:
    return name.rpartition(".")[2] in _IMAGES
