"""Flags of the command line that have no effect are refused, with exit code 2 and what would make them work."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import ais_tar2tf as t2t
import shards as made
from ais_tar2tf.cli.app import app

ENDPOINT = ("--endpoint", "http://127.0.0.1:9")


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner(env={"COLUMNS": "300"}).invoke(app, [str(each) for each in arguments])
    return done.exit_code, " ".join(done.output.split())


@pytest.fixture
def shard(tmp_path: Path) -> Path:
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
def test_an_endpoint_for_what_has_none_is_refused(verb: str, shard: Path) -> None:
    arguments = [each.format(shard=shard, folder=shard.parent) for each in VERBS[verb]]
    before = sorted(shard.parent.iterdir())
    code, text = run(*arguments, *ENDPOINT)
    assert code == 2, text
    assert "--endpoint has no effect for" in text
    assert "s3://" in text
    assert sorted(shard.parent.iterdir()) == before


def test_an_endpoint_has_effect_for_one_of_several_places(tmp_path: Path, shard: Path) -> None:
    (tmp_path / "served" / "b").mkdir(parents=True)
    with t2t.serve(tmp_path / "served", port=0) as server:
        assert run("put", shard, "ais://b/", "--endpoint", server.url)[0] == 0
        assert run("convert", "ais://b/s-0.tar", tmp_path / "out", "--endpoint", server.url)[0] == 0
        assert run("convert", shard, "ais://b/out", "--endpoint", server.url)[0] == 0


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
def test_flags_without_effect_are_refused(arguments: tuple[str, ...], said: str, shard: Path) -> None:
    code, text = run(*(each.format(shard=shard, folder=shard.parent) for each in arguments))
    assert (code, said in text) == (2, True), text
    assert [*shard.parent.iterdir()] == [shard]
