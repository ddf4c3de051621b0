"""The matrix in its small size (`python -m tests.matrix --full` is the large one); a faulty client fails it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ais_tar2tf.account import Account
from ais_tar2tf.archive import ShardArchive
from ais_tar2tf.fetch._receiving import Receiving
from ais_tar2tf.fetch.checksum import Checksum
from tests.matrix import __main__ as command
from tests.matrix.catalogue import FAULTS
from tests.matrix.run import run
from tests.matrix.scene import PUBLIC, WAYS

_SEEDS = (1, 2)


@pytest.mark.parametrize("way", [*WAYS, PUBLIC])
@pytest.mark.parametrize("fault", FAULTS)
def test_exact_bytes_or_one_typed_error(fault: str, way: str) -> None:
    for seed in _SEEDS:
        run(fault, way, seed)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_the_whole_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--full"]) == 0, capsys.readouterr().err


def test_the_command_tells_what_came_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "tar cut", "--only", "reset in the body", "--way", "http", "--seed", "3"]) == 0
    said = capsys.readouterr().out
    assert "| tar cut |  | 1 TruncatedArchive |  |  |" in said
    assert "| reset in the body |  | 1 exact |  |  |" in said
    assert "2 runs held" in said


def _nothing(*_: Any, **__: Any) -> None:
    """What a client leaves out that should have been done."""


_add = Account.add


def _add_no_retries(self: Account, **counts: int) -> None:
    _add(self, **{name: count for name, count in counts.items() if name != "retries"})


FAULTY_CLIENTS: dict[str, tuple[str, Any, str, Callable[..., Any]]] = {
    "resumes without skipping what it has": ("ranges ignored", Receiving, "_pass_to", _nothing),
    "takes any object for the one it had": ("replaced before the resume", Receiving, "_check", _nothing),
    "believes every byte": ("checksum wrong", Checksum, "verify", _nothing),
    "takes the end of the bytes for the archive's": ("tar cut", ShardArchive, "finish", _nothing),
    "forgets what it skipped": ("404", Account, "shard_error", _nothing),
    "does not count what it asks again": ("503", Account, "add", _add_no_retries),
    "ends a shard that breaks off without a word": ("reset in the body", Receiving, "fetch", Receiving.fetch_once),
}


@pytest.mark.parametrize("name", FAULTY_CLIENTS)
def test_a_faulty_client_does_not_hold(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, owner, method, other = FAULTY_CLIENTS[name]
    monkeypatch.setattr(owner, method, other)
    with pytest.raises(AssertionError, match=rf"python -m tests\.matrix --only '{fault}'"):
        list(map(run, [fault] * 30, ["http"] * 30, range(1, 31)))
