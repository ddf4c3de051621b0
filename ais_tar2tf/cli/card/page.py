"""The HTML page of a card. The page has no scripts and loads nothing, and all data in it are escaped.

This module must not do I/O.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence

from ais_tar2tf.cli.card.field_statistics import UNITS, FieldStatistics
from ais_tar2tf.cli.card.loading_code import loader_of
from ais_tar2tf.cli.card.number_statistics import NumberStatistics
from ais_tar2tf.cli.card.plots import bars, histogram, line, shown_number
from ais_tar2tf.cli.card.samples import CardField, CardRecord
from ais_tar2tf.cli.card.statistics import DataStatistics
from ais_tar2tf.cli.card.style import STYLE
from ais_tar2tf.cli.card.word_counts import WordCounts

__all__ = ["document", "render"]

# Under this policy, browsers load nothing, whatever the records contain.
_POLICY = (
    "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'"
)
_TINY = 96  # pixels: smaller images are enlarged without smoothing
_EVEN = 1.5  # classes whose counts differ by a smaller factor are called even
_MOST_SHARDS = 12  # rows in the table of the largest and smallest shards


def render(stats: DataStatistics, title: str, *, note: str = "", code: str | None = None) -> str:
    """Return the page.

    Args:
        stats: The statistics of the data.
        title: The URL that was read.
        note: A text that says how much of the data was read.
        code: Python code that loads the data; None derives the code from the statistics.
    """
    sections = (
        ("samples", "Samples", _samples(stats)),
        ("schema", "Schema", _schema(stats)),
        ("classes", "Classes", _classes(stats)),
        ("fields", "Fields", _fields(stats)),
        ("sizes", "Sizes", _sizes(stats)),
        ("bad", "Bad records", _bad(stats)),
        ("loader", "Load it", _loader(code or loader_of(stats, title))),
    )
    shown = [each for each in sections if each[2]]
    links = "".join(f'<li><a href="#{key}">{name}</a></li>' for key, name, _ in shown)
    bodies = "".join(
        f'<section id="{key}" aria-labelledby="{key}-title"><h2 id="{key}-title">{name}</h2>{body}</section>'
        for key, name, body in shown
    )
    heading = html.escape(title)
    body = (
        '<a class=skip href="#samples">Skip to the samples</a>'
        f"<header><h1>{heading}</h1><p class=soft>{html.escape(_summary(stats, note))}</p>{_tiles(stats)}</header>\n"
        f"<nav aria-label=Sections><ul>{links}</ul></nav>\n<main>{bodies}</main>\n"
    )
    return document(f"{heading}: a card of the data", body, "Made by <code>ais-tar2tf card</code>.")


def document(title: str, body: str, made_by: str) -> str:
    """Return a complete HTML page with this body; all arguments are HTML."""
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


def _summary(stats: DataStatistics, note: str) -> str:
    shards = len(stats.shards)
    many = "more than " if stats.more_shards else ""
    text = f"{stats.records:,} records in {many}{shards:,} shard{'s' if shards != 1 else ''}"
    return f"{text}; {note}" if note else text


def _tiles(stats: DataStatistics) -> str:
    rows = [
        ("Records", f"{stats.records:,}", ""),
        ("Bytes", shown_number(stats.bytes, "bytes"), ""),
        ("Shards", f"{len(stats.shards):,}{'+' if stats.more_shards else ''}", ""),
        ("Fields", f"{len(stats.fields):,}{'+' if stats.more_fields else ''}", ""),
        (
            "A record",
            f"≈ {shown_number(stats.record_sizes.summary.mean, 'bytes')}" if stats.records else "none",
            "",
        ),
        ("Bad", f"{stats.error_count:,}", "bad" if stats.error_count else "good"),
    ]
    cells = "".join(f"<div class='{kind}'><dt>{name}</dt><dd>{value}</dd></div>" for name, value, kind in rows)
    return f"<dl class=tiles>{cells}</dl>"


# Samples


def _samples(stats: DataStatistics) -> str:
    samples = stats.samples
    if not samples:
        return "<p>There are no records.</p>"
    cells = "".join(_sample(sample, stats) for sample in samples)
    chosen = f"{len(samples)} of {stats.records:,} records, drawn at random from all of them."
    return f"<p class=soft>{chosen}</p><ul class=sheet>{cells}</ul>"


def _sample(sample: CardRecord, stats: DataStatistics) -> str:
    media = "".join(_media(shown, sample.key) for shown in sample.fields)
    rows = "".join(_text_row(shown, stats) for shown in sample.fields)
    media_box = f"<div class=seen>{media}</div>" if media else ""
    where = html.escape(f"{sample.shard}, record {sample.number:,}".removeprefix(", "), quote=True)
    return (
        f"<li>{media_box}<div class=told><div class=key title='{where}'>{html.escape(sample.key)}</div>"
        f"<dl>{rows}</dl></div></li>"
    )


def _media(shown: CardField, key: str) -> str:
    label = html.escape(f"{shown.name} of record {key}, {shown.note}", quote=True)
    if shown.form == "image":
        style = "array" if shown.media_type == "image/png" and not shown.note[:1].isdigit() else _size_class(shown)
        return f"<img class='{style}' loading=lazy alt='{label}' src='{_data(shown)}'>"
    if shown.form == "audio":
        return f"<audio controls preload=none aria-label='{label}' src='{_data(shown)}'></audio>"
    return line(shown.content, f"{shown.name} of record {key}: {shown.note}") if shown.form == "line" else ""


def _size_class(shown: CardField) -> str:
    width, _, height = shown.note.partition("×")
    small = width.isdigit() and height.isdigit() and max(int(width), int(height)) <= _TINY
    return "tiny" if small else "photo"


def _data(shown: CardField) -> str:
    return f"data:{shown.media_type};base64,{base64.b64encode(shown.content).decode()}"


def _text_row(shown: CardField, stats: DataStatistics) -> str:
    text = html.escape(shown.content) if shown.form == "text" else ""
    name = stats.class_name(shown.name, text)
    text = text if name is None else f"{text} {html.escape(name)}"
    if text and len(text) <= 24 and not shown.note:
        text = f"<span class=tag>{text}</span>"
    note = f"<span class=soft>{html.escape(shown.note)}</span>" if shown.note else ""
    return f"<div><dt>{html.escape(shown.name)}</dt><dd>{text} {note}</dd></div>"


# Schema, classes, fields


def _schema(stats: DataStatistics) -> str:
    rows = "".join(
        f"<tr><th scope=row>{html.escape(field.name)}</th><td>{html.escape(field.type_text)}</td>"
        f"<td>{html.escape(field.encoding_text)}</td><td class=number>{stats.presence(field.name)}</td></tr>"
        for field in stats.schema
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
    """Return a table that can be scrolled by the keyboard when it is wider than the page."""
    numeric = {"Present", "Records", "Bytes", "Count"}
    head = "".join(f"<th scope=col{' class=number' if each in numeric else ''}>{each}</th>" for each in headings)
    return (
        f"<div class=wide role=region aria-label='{name}' tabindex=0><table><caption>{caption}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _classes(stats: DataStatistics) -> str:
    return "".join(_balance(field, stats) for field in stats.fields.values() if field.class_counts is not None)


def _balance(field: FieldStatistics, stats: DataStatistics) -> str:
    words = field.class_counts
    assert words is not None
    counts = [count for _, count in words.common()]
    ratio = counts[0] / counts[-1]
    balance = "even" if ratio < _EVEN else f"the most frequent is {ratio:,.1f} times as frequent as the least"
    summary = f"{len(counts):,} classes in {words.total:,} records: {balance}" if len(counts) > 1 else "one class"
    return (
        f"<div class=field><h3>{html.escape(field.name)}</h3>"
        f"<p class='soft small'>{summary}</p>"
        f"{bars('', _named(words, field.name, stats), stats.limits.shown_words, field.records)}</div>"
    )


def _named(words: WordCounts, field: str, stats: DataStatistics) -> WordCounts:
    """Return the same counts, with the names of classes after their numbers."""
    named = WordCounts(len(words.counts), 0)
    for word, count in words.counts.items():
        name = stats.class_name(field, word)
        named.counts[word if name is None else f"{word} {name}"] = count
    return named


def _fields(stats: DataStatistics) -> str:
    return "".join(_field(field, stats) for field in stats.fields.values())


def _field(field: FieldStatistics, stats: DataStatistics) -> str:
    kinds = ", ".join(
        f"{name} {count / field.records:.0%}" if len(field.kinds) > 1 else name
        for name, count in field.kinds.most_common(6)
    )
    size, length = field.numbers.get("size"), field.numbers.get("length")
    same = size is not None and length is not None and size.to_json() == length.to_json()
    plots = [
        histogram(name.rstrip(":"), numbers, UNITS.get(name, ""))
        for name, numbers in field.numbers.items()
        if not (same and name == "length")
    ]
    plots += [
        bars(name, words, 12, field.records)
        for name, words in field.words.items()
        if not words.overflowed
        and not (name == "value" and (field.class_counts is words or len(words.counts) > words.total // 2))
    ]
    return (
        f"<div class=field><h3>{html.escape(field.name)}</h3>"
        f"<p class='soft small'>{html.escape(kinds)} · in {field.records:,} of {stats.records:,} records</p>"
        f"<div class=plots>{''.join(plots)}</div></div>"
    )


# Sizes, bad records, loader


def _sizes(stats: DataStatistics) -> str:
    if not stats.shards:
        return ""
    records, sizes = NumberStatistics(), NumberStatistics()
    for shard in stats.shards.values():
        records.add(shard.records)
        sizes.add(shard.bytes)
    plots = [histogram("A record", stats.record_sizes, "bytes")]
    if len(stats.shards) > 1:
        plots += [histogram("Fields of a shard", sizes, "bytes"), histogram("Records of a shard", records)]
    ordered = sorted(stats.shards.items(), key=lambda pair: (-pair[1].bytes, pair[0]))
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


def _bad(stats: DataStatistics) -> str:
    if not stats.error_count:
        return f"<p class=fine>Nothing was wrong with what was read. {_NOT_DECODED}</p>"
    kinds = ", ".join(f"{count:,} × {html.escape(name)}" for name, count in stats.errors_by_kind.most_common())
    rows = "".join(
        f"<tr><th scope=row>{html.escape(bad.kind)}</th><td class=bad-text>{html.escape(bad.text)}</td></tr>"
        for bad in stats.first_errors
    )
    named = (
        "all of them" if len(stats.first_errors) == stats.error_count else f"the first {len(stats.first_errors):,}"
    )
    return (
        f"<p class=alarm role=note>{stats.error_count:,} wrong: {kinds}. {_NOT_DECODED}</p>"
        f"{_table('Bad records', f'What was wrong: {named}.', ('Error', 'What, and where'), rows)}"
    )


def _loader(code: str) -> str:
    return (
        "<p class=soft>To copy: click or Tab into the code, Ctrl-A, Ctrl-C.</p>"
        f"<textarea readonly spellcheck=false rows={code.count(chr(10))} "
        "aria-label='Python code that loads these data'>"
        f"{html.escape(code)}</textarea>"
    )
