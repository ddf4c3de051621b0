"""Flags without effect are refused with exit code 2 and an explanation of what would make them work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ais_tar2tf as t2t
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.base.nearest import check_choice
from ais_tar2tf.cli import choices
from ais_tar2tf.cli.app import app
from ais_tar2tf.errors import OptionError
from ais_tar2tf.recordfiles.export.request import ExportOptions
from ais_tar2tf.recordfiles.export.target import EXISTS
from ais_tar2tf.recordfiles.packing.options import LABELS
from ais_tar2tf.records import splitter
from tests.support import shards as made

ENDPOINT = ("--endpoint", "http://127.0.0.1:9")


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner(env={"COLUMNS": "300"}).invoke(app, [str(each) for each in arguments])
    return done.exit_code, " ".join(done.output.split())


@pytest.fixture
def small_shard(tmp_path: Path) -> Path:
    path = tmp_path / "s-0.tar"
    path.write_bytes(made.tar([("a", {"txt": b"x", "cls": b"1"})]))
    return path


VERBS = {
    "ls": ("ls", "{shard}"),
    "inspect": ("inspect", "{shard}"),
    "card": ("card", "{shard}", "--out", "{folder}/c.html"),
    "convert": ("convert", "{shard}", "{folder}/out"),
    "index": ("index", "{shard}"),
    "bench": ("bench", "{shard}", "--no-tensorflow", "--seconds", "0.05"),
    "put": ("put", "{shard}", "{folder}/bucket/"),
    "pack": ("pack", "{folder}", "{folder}/packed/p-{{}}.tar"),
    "verify": ("verify", "{folder}/out"),
    "finish": ("finish", "{folder}/out"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_an_endpoint_for_a_local_path_is_refused(verb: str, small_shard: Path) -> None:
    arguments = [each.format(shard=small_shard, folder=small_shard.parent) for each in VERBS[verb]]
    before = sorted(small_shard.parent.iterdir())
    code, text = run(*arguments, *ENDPOINT)
    assert code == 2, text
    assert "--endpoint has no effect for" in text
    assert "s3://" in text
    assert sorted(small_shard.parent.iterdir()) == before


def test_an_endpoint_for_one_of_several_arguments_is_accepted(tmp_path: Path, small_shard: Path) -> None:
    (tmp_path / "served" / "b").mkdir(parents=True)
    with t2t.serve(tmp_path / "served", port=0) as server:
        assert run("put", small_shard, "ais://b/", "--endpoint", server.url)[0] == 0
        assert run("convert", "ais://b/s-0.tar", tmp_path / "out", "--endpoint", server.url)[0] == 0
        assert run("convert", small_shard, "ais://b/out", "--endpoint", server.url)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("convert", "{shard}", "{folder}/out", "--runner-option", "a=b"),
            "--runner-option has no effect without",
        ),
        (("convert", "{shard}", "{folder}/out", "--idx", "--format", "tar"), "--idx has no effect with --format tar"),
        (("convert", "{shard}", "{folder}/out", "--idx", "--format", "array_record"), "--idx has no effect with"),
        (
            ("convert", "{shard}", "{folder}/out", "--types", "cls=int64", "--format", "tar"),
            "--types has no effect with",
        ),
        (("index", "{shard}", "--counts-only"), "--counts-only has no effect for"),
        (("pack", "{folder}", "{folder}/p/p-{{}}.tar", "--no-create"), "--no-create has no effect for"),
        (("pack", "{folder}", "{folder}/p/p-{{}}.tar", "--root", "{folder}"), "root"),
        (("pack", "{folder}", "{folder}/p/p-{{}}.tar", "--shuffle", "1", "--no-shuffle"), "contradict"),
        (("convert", "{shard}", "{folder}/out", "--resume", "--exists", "replace"), "contradict"),
    ],
)
def test_flags_without_effect_are_refused(arguments: tuple[str, ...], said: str, small_shard: Path) -> None:
    code, text = run(*(each.format(shard=small_shard, folder=small_shard.parent) for each in arguments))
    assert (code, said in text) == (2, True), text
    assert [*small_shard.parent.iterdir()] == [small_shard]


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (Account, choices.ON_ERRORS),
        (splitter, choices.GROUPINGS),
        (lambda word: ExportOptions(align=word).check(), choices.ALIGNMENTS),
        (lambda word: check_choice("exists", word, EXISTS), choices.EXISTS),
        (lambda word: check_choice("labels", word, (each or "none" for each in LABELS)), choices.LABELS),
    ],
    ids=["on_error", "grouping", "align", "exists", "labels"],
)
def test_the_words_of_options_are_those_of_the_functions(
    use: Callable[[str], object], words: tuple[str, ...]
) -> None:
    """`cli/choices.py` repeats words that other rooms define, so that `--help` does not import those rooms."""
    for word in words:
        use(word)
    with pytest.raises(OptionError, match=f"is one of {', '.join(words)}( or a callable)?, not 'nonsense'"):
        use("nonsense")
