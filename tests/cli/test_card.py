"""The card's statistics equal those of numpy and collections, and its page is valid HTML."""

from __future__ import annotations

import html
import html.parser
import io
import json
import math
import re
import shutil
import statistics
import subprocess
import tracemalloc
import wave
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

import ais_tar2tf as t2t
from ais_tar2tf.cli.card import DataStatistics, loader_of, render
from ais_tar2tf.cli.card.arrays import as_picture, png
from ais_tar2tf.cli.card.audio import audio_header
from ais_tar2tf.cli.card.number_statistics import NumberStatistics
from ais_tar2tf.cli.card.plots import histogram, shown_number
from ais_tar2tf.cli.card.word_counts import WordCounts
from ais_tar2tf.errors import TruncatedArchive
from ais_tar2tf.options import Card
from tests.support import shards as made

NUMBER = st.one_of(st.integers(-(10**9), 10**9).map(float), st.floats(-1e12, 1e12))


def npy(array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def wav(frames: int, rate: int = 8_000, channels: int = 1) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(b"\0\0" * frames * channels)
    return buffer.getvalue()


def records(count: int = 40):
    for number in range(count):
        yield {
            "__key__": f"n/{number:04d}",
            "__shard__": f"ais://b/train-{number // 20}.tar",
            "jpg": made.image(number),
            "cls": b"%d" % (number % 4),
            "txt": b"a <script>alert(1)</script> \xe2\x80\x9cthing\xe2\x80\x9d & more",
            "json": json.dumps({"score": number / 7, "name": "x"}).encode(),
            "line.npy": npy(np.arange(number, number + 9.0)),
            "map.npy": npy(np.arange(60.0).reshape(6, 10)),
            **({"wav": wav(1000 + number)} if number % 2 else {}),
        }


@pytest.fixture(scope="module")
def stats() -> DataStatistics:
    stats = DataStatistics()
    for record in records():
        stats.add(record)
    return stats


# Statistics


@given(st.lists(NUMBER, min_size=1, max_size=1500))
def test_numbers_are_those_of_numpy(values):
    numbers = NumberStatistics()
    for each in values:
        numbers.add(each)
    scale = max(1.0, float(np.abs(values).max()))
    summary = numbers.summary
    assert summary.count == len(values)
    assert (summary.low, summary.high) == (min(values), max(values))
    assert summary.mean == pytest.approx(np.mean(values), abs=1e-9 * scale)
    assert summary.spread == pytest.approx(np.std(values), rel=1e-6, abs=1e-6 * scale)


@given(st.lists(NUMBER, min_size=1, max_size=1500))
def test_every_number_is_in_its_bin(values):
    numbers = NumberStatistics()
    for each in values:
        numbers.add(each)
    bins = numbers.bins()
    assert sum(count for *_, count in bins) == len(values)
    assert len(bins) <= 64
    slack = 1e-9 * max(1.0, float(np.abs(values).max()))
    passed = 0
    for _, end, count in bins:
        passed += count
        below = sum(each < end - slack for each in values)
        at_most = sum(each <= end + slack for each in values)
        assert below <= passed <= at_most
    width = bins[0][1] - bins[0][0]
    assert abs(numbers.quantile(0.5) - statistics.median_low(values)) <= width * (1 + 1e-6) + slack


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), st.integers(1, 5))
@example([1.7e308, -1.7e308], 1)
@example([1.7e308, 1.6e308, 1.79e308], 2)
@example([0.0, 5e-324], 1)
@example([-5e-324, 1e300, 3.0], 1)
def test_numbers_of_any_size_are_those_of_exact_fractions(values, batch):
    numbers = NumberStatistics()
    for begin in range(0, len(values), batch):
        numbers.add_many(np.array(values[begin : begin + batch]))
    largest = max(map(abs, values))
    summary, bins = numbers.summary, numbers.bins()
    assert summary.mean == pytest.approx(statistics.mean(values), rel=1e-9, abs=1e-12 * largest)
    assert summary.spread == pytest.approx(statistics.pstdev(values), rel=1e-6, abs=1e-7 * largest)
    assert sum(count for *_, count in bins) == len(values)
    assert all(math.isfinite(begin) and begin < end < math.inf for begin, end, _ in bins)
    assert bins[0][0] <= summary.low <= numbers.quantile(0.5) <= summary.high <= bins[-1][1]
    assert "nan" not in histogram("x", numbers)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_number_that_is_not_finite_is_shown(value):
    assert (shown_number(value), shown_number(value, "pixels")) == (str(value), str(value))


@pytest.mark.parametrize(
    ("value", "text"), [(999.4, "999"), (999.5, "1,000"), (999.9, "1,000"), (-999.9, "-1,000"), (1000.4, "1,000")]
)
def test_numbers_near_a_thousand_have_no_exponent(value, text):
    assert shown_number(value) == text


def test_labels_that_are_no_numbers_are_not_compared_with_the_classes():
    stats = DataStatistics()
    stats.classes = {"cls": ("ant", "bee")}
    stats.add({"__key__": "a", "__shard__": "s.tar", "cls": float("nan")})
    stats.check_classes()
    assert stats.first_errors == []
    stats.add({"__key__": "b", "__shard__": "s.tar", "cls": 2.0})
    stats.check_classes()
    assert "has labels from 2 to 2" in stats.first_errors[0].text


@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_the_largest_and_smallest_numbers_have_a_card(shape):
    for values in ([1.7e308, -1.7e308, 0, 1e308], [0, 5e-324, 0, 0]):
        stats = DataStatistics()
        array = np.array(values).reshape(shape)
        stats.add({"__key__": "k", "__shard__": "s.tar", "npy": npy(array), "cls": b"1.7e308"})
        page = render(stats, "s.tar")
        parsed(page)
        points = re.findall(r'points="([^"]*)"', page)
        assert all("nan" not in each and "inf" not in each for each in points)


def test_a_few_integers_have_a_bin_each():
    numbers = NumberStatistics()
    for each in [0, 0, 1, 2, 2, 2, 9]:
        numbers.add(each)
    assert [count for *_, count in numbers.bins()] == [2, 1, 3, 0, 0, 0, 0, 0, 0, 1]


def test_values_that_are_not_finite_are_counted_separately():
    numbers = NumberStatistics()
    numbers.add_many(np.array([1.0, np.nan, np.inf, 3.0]))
    summary = numbers.summary
    assert (summary.count, summary.not_finite, summary.mean) == (2, 2, 2.0)


@pytest.mark.parametrize(
    "text", ["inf", "-inf", "+nan", "-NaN", " inf", "\tnan\n", "Infinity", "-INFINITY", "1_000", ""]
)
def test_words_that_python_reads_as_numbers_are_text(text):
    stats = DataStatistics()
    stats.add({"__key__": "k", "__shard__": "s", "txt": text.encode()})
    assert stats.fields["txt"].kinds == {"text": 1}


@pytest.mark.parametrize("text", ["1", " -2.5e3\n", "+.5"])
def test_numbers_in_texts_are_numbers(text):
    stats = DataStatistics()
    stats.add({"__key__": "k", "__shard__": "s", "txt": text.encode()})
    assert stats.fields["txt"].kinds == {"number": 1}
    assert stats.fields["txt"].numbers["value"].summary.mean == float(text)


@given(st.lists(st.text(max_size=3), max_size=60))
def test_words_are_counted_up_to_a_limit(texts):
    words = WordCounts(8, 80)
    for text in texts:
        words.add(text)
    expected = Counter(texts)
    assert words.total == len(texts)
    assert words.overflowed == (len(expected) > 8)
    assert words.counts == (Counter() if words.overflowed else expected)


@pytest.mark.parametrize(("frames", "rate", "channels"), [(8_000, 8_000, 1), (22_050, 44_100, 2)])
def test_the_length_of_a_recording(frames, rate, channels):
    found = audio_header(wav(frames, rate, channels))
    assert (found.seconds, found.rate, found.channels) == (frames / rate, rate, channels)


def test_a_flac_has_a_length_and_a_cut_one_has_none():
    bits = 44_100 << 44 | 1 << 41 | 15 << 36 | 88_200  # STREAMINFO: rate, channels less one, depth less one, samples
    data = b"fLaC" + bytes([0x80, 0, 0, 34]) + bytes(10) + bits.to_bytes(8, "big") + bytes(16)
    found = audio_header(data)
    assert (found.seconds, found.rate, found.channels) == (2.0, 44_100, 2)
    assert all(audio_header(data[:cut]) is None for cut in range(26))
    assert all(audio_header(wav(8)[:cut]) is None for cut in range(30))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((5, 7)),
        np.arange(200 * 300, dtype=np.int32).reshape(200, 300),
        np.full((4, 120, 240, 2), np.nan, np.float32),
        np.ones((6, 8, 3), np.uint8),
        np.array([[True, False], [False, True]]),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_a_picture_of_an_array_is_a_png(array):
    form, data = as_picture(array)
    assert form == "image"
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert max(image.size) <= 96


def test_our_png_is_read_by_pillow():
    pixels = np.random.RandomState(1).randint(0, 255, (11, 7, 3), np.uint8)
    with Image.open(io.BytesIO(png(pixels))) as image:
        assert (np.asarray(image) == pixels).all()


def test_statistics_count_all_values(stats):
    assert (stats.records, len(stats.shards), stats.error_count) == (40, 2, 0)
    assert stats.bytes == sum(len(value) for record in records() for name, value in record.items() if name[0] != "_")
    assert stats.fields["cls"].class_counts.counts == Counter({"0": 10, "1": 10, "2": 10, "3": 10})
    assert stats.fields["jpg"].numbers["width"].summary.mean == 40
    assert stats.fields["json"].numbers["score:"].summary.high == pytest.approx(39 / 7)
    assert stats.fields["line.npy"].numbers["values"].summary.high == 47
    assert stats.fields["wav"].records == 20
    assert stats.fields["txt"].class_counts.counts.total() == 40
    assert [field.name for field in stats.schema if field.optional] == ["wav"]
    assert json.loads(json.dumps(stats.to_json()))["records"] == 40


def test_samples_are_chosen_evenly():
    """Each of 200 records is chosen equally often over 300 seeds, tested with chi-square."""
    chosen: Counter[str] = Counter()
    for seed in range(300):
        stats = DataStatistics(Card(samples=10, seed=seed))
        for number in range(200):
            stats.add({"__key__": str(number), "__shard__": "s", "cls": b"1"})
        keys = [sample.key for sample in stats.samples]
        assert keys == sorted(keys, key=int)
        chosen.update(keys)
    expected = 300 * 10 / 200
    chi_square = sum((chosen[str(number)] - expected) ** 2 / expected for number in range(200))
    assert 130 < chi_square < 290  # 199 degrees of freedom: exceeded by chance in 1 of 10,000 runs


def test_memory_does_not_grow_with_the_records():
    stats = DataStatistics(Card(samples=4, shards=100))
    word = "x" * 60
    image = made.image(1)

    def feed(begin: int, end: int) -> int:
        for number in range(begin, end):
            stats.add(
                {"__key__": str(number), "__shard__": f"s{number}", "jpg": image, "txt": f"{word}{number}".encode()}
            )
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        first = feed(0, 3_000)
        second = feed(3_000, 9_000)
    finally:
        tracemalloc.stop()
    assert second - first < 100_000
    assert stats.more_shards
    assert len(stats.shards) == 100


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_cut_image_is_bad_and_named(kind):
    """An image that is cut anywhere after its header is bad, even if it contains a whole thumbnail."""
    whole = made.image(3, kind, (64, 48))
    if kind == "JPEG":
        thumbnail = made.image(4, size=(8, 8))
        whole = whole[:2] + b"\xff\xe1" + (len(thumbnail) + 2).to_bytes(2, "big") + thumbnail + whole[2:]
    stats = DataStatistics()
    stats.add({"__key__": "whole", "__shard__": "s.tar", "img": whole, "more": whole + b"behind"})
    assert stats.error_count == 0
    for at, cut in enumerate(range(len(whole) // 2, len(whole) - 4, 97)):
        stats.add({"__key__": f"{at}", "__shard__": "s.tar", "img": whole[:cut]})
        assert stats.error_count == at + 1
    with (
        pytest.raises(OSError, match=r"truncat|cut|decod"),
        Image.open(io.BytesIO(whole[: len(whole) // 2])) as opened,
    ):
        opened.load()
    assert stats.first_errors[0].text == "s.tar, record '0': field 'img' is an image that is cut: its end is missing"
    assert "judged by their headers and end marks, and not decoded" in render(stats, "s.tar")


def test_values_that_do_not_fit_are_bad_and_named():
    stats = DataStatistics()
    stats.add({"__key__": "a", "__shard__": "s.tar", "npy": npy(np.zeros(3, np.float32))})
    stats.add({"__key__": "b", "__shard__": "s.tar", "npy": b"no array \xff"})
    assert stats.error_count == 1
    assert (stats.first_errors[0].kind, stats.first_errors[0].key, stats.first_errors[0].shard) == (
        "SchemaError",
        "b",
        "s.tar",
    )


@given(st.dictionaries(st.sampled_from(["cls", "npy", "json", "x"]), st.binary(max_size=40), max_size=3))
def test_no_bytes_break_a_survey_or_its_page(fields):
    stats = DataStatistics()
    stats.add({"__key__": "k", "__shard__": "s.tar", **fields})
    parsed(render(stats, "s.tar"))


# The page

VOID = {"meta", "img", "br", "hr", "rect", "polyline"}


class Page(html.parser.HTMLParser):
    """Collects all elements with their attributes, and checks their nesting."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open, f"</{tag}> closes nothing"
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def parsed(text: str) -> Page:
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


@pytest.fixture(scope="module")
def page(stats) -> Page:
    stats.add_error(TruncatedArchive("it ends <here>", shard="ais://b/train-1.tar", offset=7))
    return parsed(render(stats, "ais://b/train-{0..1}.tar"))


def test_nothing_is_loaded_and_nothing_runs(page):
    for tag, attributes in page.elements:
        assert tag not in {"script", "link", "iframe", "object", "embed", "base", "form"}
        for name, value in attributes.items():
            assert not name.startswith("on"), f"{tag} {name}"
            if name in {"src", "srcset", "poster", "data", "background"}:
                assert value.startswith("data:"), f"{tag} {name}"
            if name in {"href", "xlink:href"}:
                assert value.startswith("#"), f"{tag} {name}"
            if name == "style":
                assert "url(" not in value
    style = "".join(page.text)
    assert "url(" not in style.partition("}")[0]
    assert "@import" not in style
    (policy,) = [each["content"] for each in page.all("meta") if each.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")


def test_markup_in_data_is_text(page):
    assert "script" not in {tag for tag, _ in page.elements}
    assert any("<script>alert(1)</script>" in text for text in page.text)
    assert any("it ends <here>" in text for text in page.text)


def test_keyboard_and_screen_reader_basics(page):
    assert page.all("html")[0]["lang"] == "en"
    assert len(page.all("title")) == 1 + sum(tag == "rect" for tag, _ in page.elements)
    assert len(page.all("main")) == len(page.all("header")) == len(page.all("h1")) == 1
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    links = [attributes["href"][1:] for attributes in page.all("a")]
    assert set(links) <= ids
    assert links[0] == "samples"  # the link that skips the heading comes first
    for section in page.all("section"):
        assert section["aria-labelledby"] in ids
    for image in page.all("img"):
        assert image["alt"]
    for plot in page.all("svg"):
        assert plot["role"] == "img"
        assert plot["aria-label"]
    for region in (each for each in page.all("div") if each.get("role") == "region"):
        assert region["tabindex"] == "0"
        assert region["aria-label"]
    assert all(each["aria-label"] for each in (*page.all("audio"), *page.all("textarea"), *page.all("nav")))


def test_it_shows_every_kind(page):
    text = " ".join(page.text)
    assert len(page.all("audio")) > 0
    assert any(tag == "polyline" for tag, _ in page.elements)
    sources = [each["src"] for each in page.all("img")]
    assert any(source.startswith("data:image/jpeg") for source in sources)
    assert any(source.startswith("data:image/png") for source in sources)
    for each in ("n/00", "uint8 (30, 40, 3)", "TruncatedArchive", "4 classes in 40 records: even", "train-1.tar"):
        assert each in text


def test_an_empty_survey_has_a_page():
    assert "There are no records." in " ".join(parsed(render(DataStatistics(), "nothing")).text)


def test_a_large_image_is_shrunk():
    buffer = io.BytesIO()
    pixels = np.random.RandomState(0).randint(0, 255, (600, 800, 3), np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    stats = DataStatistics()
    stats.add({"__key__": "a", "__shard__": "s", "png": buffer.getvalue()})
    (shown,) = stats.samples[0].fields
    assert (shown.form, shown.media_type, shown.note) == ("image", "image/jpeg", "800×600")
    with Image.open(io.BytesIO(shown.content)) as image:
        assert image.size == (224, 168)


@pytest.mark.parametrize(("fields", "count"), [(["jpg", "cls"], 6), (["txt"], 6)])
def test_its_loader_runs(tmp_path, fields, count):
    shard = tmp_path / "a.tar"
    shard.write_bytes(made.labelled("n", 6, lambda n: {"jpg": made.image(n), "cls": b"1", "txt": b"hi"}))
    stats = DataStatistics()
    for record in t2t.open(str(shard)).select(*fields).records():
        stats.add(record)
    names: dict[str, object] = {}
    exec(compile(loader_of(stats, str(shard)), "loader", "exec"), names)  # noqa: S102  # it is ours
    batches = list(names["dataset"].unbatch())
    assert len(batches) == count


@pytest.mark.parametrize(
    ("fields", "chosen", "names"),
    [
        (lambda n: {"png" if n % 3 else "jpg": made.image(n), "cls": b"1"}, "'image=jpg;png', \"cls\"", None),
        (
            lambda n: {"jpg": made.image(n), "cls": b"1"} | ({"seg.png": made.image(n, "PNG")} if n % 2 else {}),
            "'image=jpg', \"cls\"",
            None,
        ),
        (lambda n: {"cls": b"1"} | ({"jpg": made.image(n)} if n % 3 else {}), "'cls', 'jpg?'", {"cls", "jpg"}),
        (lambda n: {"png": made.image(n)} | ({"cls": b"1"} if n % 3 else {}), "'png', 'cls?'", {"cls", "png"}),
        (
            lambda n: {"cls": b"1"} | dict.fromkeys([("jpg", "png"), ("jpg",), ()][n % 3], made.image(n)),
            "'cls', 'jpg?', 'png?'",
            {"cls", "jpg", "png"},
        ),
    ],
    ids=["two kinds of images", "masks beside", "some without an image", "some without a label", "two and none"],
)
def test_its_loader_runs_on_records_of_different_fields(tmp_path, fields, chosen, names):
    shard = tmp_path / "a.tar"
    shard.write_bytes(made.labelled("n", 6, fields))
    stats = DataStatistics()
    for record in t2t.open(str(shard)).records():
        stats.add(record)
    (code,) = re.findall(r"<textarea[^>]*>(.*)</textarea>", render(stats, str(shard)), re.DOTALL)
    code = html.unescape(code)
    assert f".select({chosen})" in code
    found: dict[str, object] = {}
    exec(compile(code, "loader", "exec"), found)  # noqa: S102  # it is ours
    elements = list(found["dataset"].unbatch())
    assert len(elements) == 6
    if names is not None:
        assert set(elements[0]) == {*names, "__key__", "__shard__"}


@pytest.mark.full
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_in_chromium(page, stats, tmp_path, width, scheme):
    """In a browser, nothing is wider than the window, and the background follows the system's colour scheme."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium is not None, "this test needs Chromium: apt install chromium"
    card, picture = tmp_path / "card.html", tmp_path / "card.png"
    card.write_text(render(stats, "ais://b/train-{0..1}.tar"), encoding="utf-8")
    _screenshot(chromium, card, picture, width, scheme, tmp_path)
    with Image.open(picture) as image:
        pixels = np.asarray(image.convert("L"), np.float64)
    ground = np.median(pixels[:, :8])
    assert (ground < 64) if scheme == "dark" else (ground > 192)
    assert pixels.std() > 15  # the page is not empty
    right = pixels[:, -6:]
    assert right.std() < 6, "the page is wider than the window"


def _screenshot(chromium: str, card: Path, picture: Path, width: int, scheme: str, folder: Path) -> None:
    # A window is at least 500 pixels wide, so a frame in a page simulates a narrower one.
    frame = folder / "frame.html"
    frame.write_text(
        f"<style>body{{margin:0}}iframe{{border:0;width:{width}px;height:2400px}}</style>"
        f"<iframe src='{card.name}'></iframe>"
    )
    subprocess.run(
        [
            chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--user-data-dir={folder / 'profile'}",
            f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
            f"--window-size={max(width, 500)},2400", f"--screenshot={picture}", frame.as_uri(),
        ],
        check=True, capture_output=True, timeout=200,
    )  # fmt: skip
    with Image.open(picture) as image:
        image.crop((0, 0, width, image.height)).save(picture)


def test_a_source_in_a_notebook_is_a_table(tmp_path):
    (tmp_path / "<b>.tar").write_bytes(made.labelled("n", 3))
    source = t2t.open([str(tmp_path / "<b>.tar")])
    assert sum(1 for _ in source.records()) == 3
    page = parsed(source._repr_html_())
    assert str(tmp_path / "<b>.tar") in page.text
    assert "3" in page.text
    assert not page.all("b")
