"""Run the matrix of faults with two seeds, and show that it detects faulty clients.

`python -m tests.matrix --full` runs twenty seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ais_tar2tf.archive import ShardArchive
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.fetch.checksum import Checksum
from ais_tar2tf.fetch.downloader import Downloader
from ais_tar2tf.fetch.receiver import Receiver
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


def test_the_command_prints_the_outcomes(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "tar cut", "--only", "reset in the body", "--way", "http", "--seed", "3"]) == 0
    output = capsys.readouterr().out
    assert "| tar cut |  | 1 TruncatedArchive |  |  |" in output
    assert "| reset in the body |  | 1 exact |  |  |" in output
    assert "2 runs passed" in output


def _nothing(*_: Any, **__: Any) -> None:
    """Stands for a step that a faulty client omits."""


_add = Account.add


def _add_no_retries(self: Account, **counts: int) -> None:
    _add(self, **{name: count for name, count in counts.items() if name != "retries"})


FAULTY_CLIENTS: dict[str, tuple[str, Any, str, Callable[..., Any]]] = {
    "resumes without skipping received bytes": ("ranges ignored", Receiver, "skip_received", _nothing),
    "resumes with a replaced object": ("replaced before the resume", Downloader, "_check_content", _nothing),
    "does not verify checksums": ("checksum wrong", Checksum, "verify", _nothing),
    "accepts a cut archive": ("tar cut", ShardArchive, "finish", _nothing),
    "does not count skipped shards": ("404", Account, "shard_error", _nothing),
    "does not count retries": ("503", Account, "add", _add_no_retries),
    "accepts a body that breaks off": (
        "reset in the body",
        Downloader,
        "download",
        Downloader.download_once,
    ),
}


@pytest.mark.parametrize("name", FAULTY_CLIENTS)
def test_a_faulty_client_fails_the_matrix(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, owner, method, other = FAULTY_CLIENTS[name]
    monkeypatch.setattr(owner, method, other)
    with pytest.raises(AssertionError, match=rf"python -m tests\.matrix --only '{fault}'"):
        list(map(run, [fault] * 30, ["http"] * 30, range(1, 31)))
